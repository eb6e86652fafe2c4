//! GRE (RFC 2784, RFC 2890), as in `net/ipv4/ip_gre.c` and `net/ipv4/gre_demux.c`.
//!
//! A sequence number is taken and not looked at; it is not sent, since a flow has no flag for it (`TUNNEL_SEQ`).

use sluice_flow::action::{Encapsulation, tunnel_flag};

use super::header::{Payload, TunnelHeader, is_checksum_right};
use crate::packet::headers::{GRE_CHECKSUM, GRE_KEY, GRE_ROUTING, GRE_VERSION, Gre, Number};
use crate::packet::{TunnelOptions, eth_type};

/// Bytes of the longest header.
const LONGEST: usize = 16;

pub(super) fn write(frame: &mut Vec<u8>, payload: Payload<'_>, encapsulation: &Encapsulation) -> Option<()> {
    let has = |asked, flag| if encapsulation.flags & asked != 0 { flag } else { 0 };
    let mut header = [0; LONGEST];
    let mut gre = Gre::new(header.as_mut_slice())?;
    gre.set_flags(has(tunnel_flag::CHECKSUM, GRE_CHECKSUM) | has(tunnel_flag::KEY, GRE_KEY));
    gre.set_protocol(payload.protocol());
    let (key_at, length) = (gre.place(GRE_KEY), gre.header_length());
    if let Some(at) = key_at {
        Number::new(header.get_mut(at..)?)?.set_value(encapsulation.id);
    }
    frame.extend_from_slice(header.get(..length)?);
    Some(())
}

/// Other versions, such as that of PPTP, are not of the tunnel. Linux takes seven bits for the version (`gre_rcv` in
/// `net/ipv4/gre_demux.c`), so that most reserved bits must be zero as well.
pub(super) fn is_version_0<T: AsRef<[u8]>>(gre: &Gre<T>) -> bool {
    gre.flags() & GRE_VERSION == 0
}

/// What the fixed part says, its checksum and its source route looked at (`gre_parse_header`).
pub(super) fn checked(bytes: &[u8]) -> Option<Gre<&[u8]>> {
    let gre = Gre::new(bytes).filter(is_version_0)?;
    let is_whole = bytes.len() >= gre.header_length();
    let is_right = gre.flags() & GRE_CHECKSUM == 0 || is_checksum_right(bytes);
    (is_whole && is_right && gre.flags() & GRE_ROUTING == 0).then_some(gre)
}

pub(super) fn read(bytes: &[u8]) -> Option<TunnelHeader> {
    let gre = checked(bytes)?;
    let has = |flag, shown| if gre.flags() & flag != 0 { shown } else { 0 };
    let id = match gre.place(GRE_KEY) {
        Some(at) => u64::from(Number::new(bytes.get(at..)?)?.value()),
        None => 0,
    };
    Some(TunnelHeader {
        id,
        flags: has(GRE_CHECKSUM, tunnel_flag::CHECKSUM) | has(GRE_KEY, tunnel_flag::KEY),
        options: TunnelOptions::None,
        payload: gre.header_length()..bytes.len(),
        layer3: Some(gre.protocol()).filter(|protocol| *protocol != eth_type::TEB),
    })
}
