//! Geneve (RFC 8926) with its options, as in `drivers/net/geneve.c`.

use sluice_flow::action::{Encapsulation, EncapsulationOptions, tunnel_flag};

use super::header::{Payload, TunnelHeader};
use crate::packet::headers::{GENEVE_CONTROL, GENEVE_CRITICAL, Geneve};
use crate::packet::tunnel::GeneveOptions;
use crate::packet::{TunnelOptions, eth_type};

const LENGTH: usize = Geneve::<&[u8]>::LENGTH;

pub(super) fn write(frame: &mut Vec<u8>, payload: Payload<'_>, encapsulation: &Encapsulation) -> Option<()> {
    if payload.layer3.is_some() {
        return None;
    }
    let (options, is_critical) = match &encapsulation.options {
        EncapsulationOptions::Geneve { bytes, is_critical } => (&bytes[..], *is_critical),
        _ => (&[][..], false),
    };
    let is_control = encapsulation.flags & tunnel_flag::CONTROL != 0;
    let mut header = [0; LENGTH];
    let mut geneve = Geneve::new(header.as_mut_slice())?;
    geneve.set_version_and_length(u8::try_from(options.len() / 4).ok()?);
    geneve.set_flags(if is_control { GENEVE_CONTROL } else { 0 } | if is_critical { GENEVE_CRITICAL } else { 0 });
    geneve.set_protocol(eth_type::TEB);
    geneve.set_vni_and_reserved(encapsulation.id << 8);
    frame.extend_from_slice(&header);
    frame.extend_from_slice(options);
    Some(())
}

/// What is in the options is not looked at, as in the kernel: a flow may match it (`geneve_udp_encap_recv`).
pub(super) fn read(bytes: &[u8]) -> Option<TunnelHeader> {
    let geneve = Geneve::new(bytes)?;
    let header = geneve.header_length();
    let options = GeneveOptions::new(bytes.get(LENGTH..header)?)?;
    let is_known = geneve.version() == 0 && geneve.protocol() == eth_type::TEB;
    let control = if geneve.flags() & GENEVE_CONTROL != 0 { tunnel_flag::CONTROL } else { 0 };
    is_known.then(|| TunnelHeader {
        id: u64::from(geneve.vni_and_reserved() >> 8),
        flags: tunnel_flag::KEY | control,
        options: TunnelOptions::Geneve(options),
        payload: header..bytes.len(),
        layer3: None,
    })
}
