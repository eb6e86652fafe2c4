//! GTP-U (3GPP TS 29.281), as in `lib/netdev-native-tnl.c` of OVS; extension headers are stepped over.

use sluice_flow::action::{Encapsulation, EncapsulationOptions};

use super::header::{Payload, TunnelHeader};
use crate::packet::headers::{Gtpu, GtpuOptional};
use crate::packet::{TunnelOptions, eth_type};

/// A message that carries a packet.
pub(super) const G_PDU: u8 = 255;
/// The flag of a sequence number.
pub(super) const SEQUENCE: u8 = 0x02;
/// The flag of an extension header.
const EXTENSION: u8 = 0x04;
/// The flags of which any adds [`GtpuOptional`].
const OPTIONAL: u8 = 0x07;
/// Version 1, and GTP as opposed to GTP'.
const DEFAULT_FLAGS: u8 = 0x30;
const LENGTH: usize = Gtpu::<&[u8]>::LENGTH;
const OPTIONAL_LENGTH: usize = GtpuOptional::<&[u8]>::LENGTH;

/// As in OVS, flags and message type of zero stand for those of a packet (`netdev_gtpu_build_header`).
pub(super) fn write(frame: &mut Vec<u8>, payload: Payload<'_>, encapsulation: &Encapsulation) -> Option<()> {
    if !matches!(payload.layer3, Some(eth_type::IPV4 | eth_type::IPV6)) {
        return None;
    }
    let or_default = |value, default| if value == 0 { default } else { value };
    let (flags, message_type) = match encapsulation.options {
        EncapsulationOptions::Gtpu { flags, message_type } => {
            (or_default(flags, DEFAULT_FLAGS), or_default(message_type, G_PDU))
        }
        _ => (DEFAULT_FLAGS, G_PDU),
    };
    let mut header = [0; LENGTH + OPTIONAL_LENGTH];
    let mut gtpu = Gtpu::new(header.as_mut_slice())?;
    gtpu.set_flags(flags);
    gtpu.set_message_type(message_type);
    gtpu.set_endpoint(encapsulation.id);
    frame.extend_from_slice(&header[..header_length(flags)]);
    Some(())
}

/// Bytes of the header with what its flags add, without extension headers.
pub(super) fn header_length(flags: u8) -> usize {
    if flags & OPTIONAL == 0 { LENGTH } else { LENGTH + OPTIONAL_LENGTH }
}

pub(super) fn read(bytes: &[u8]) -> Option<TunnelHeader> {
    let gtpu = Gtpu::new(bytes)?;
    let end = LENGTH + usize::from(gtpu.length());
    let bytes = bytes.get(..end)?;
    let (flags, message_type) = (gtpu.flags(), gtpu.message_type());
    if flags & 0xf0 != DEFAULT_FLAGS {
        return None;
    }
    let options = TunnelOptions::Gtpu { flags, message_type };
    let (start, layer3) = if message_type == G_PDU {
        let start = payload_start(bytes, flags)?;
        let layer3 = match bytes.get(start)? >> 4 {
            4 => eth_type::IPV4,
            6 => eth_type::IPV6,
            _ => return None,
        };
        (start, Some(layer3))
    } else {
        (LENGTH, None)
    };
    Some(TunnelHeader { id: gtpu.endpoint().into(), flags: 0, options, payload: start..end, layer3 })
}

/// Where the payload of a packet begins, behind extension headers (TS 29.281, section 5.2.1): each has its length in units
/// of four bytes in front and the type of the next at its end.
fn payload_start(bytes: &[u8], flags: u8) -> Option<usize> {
    let mut at = header_length(flags);
    if flags & EXTENSION == 0 {
        return Some(at);
    }
    let mut next = GtpuOptional::new(bytes.get(LENGTH..)?)?.next_extension();
    while next != 0 {
        let length = usize::from(*bytes.get(at)?) * 4;
        if length == 0 {
            return None;
        }
        at += length;
        next = *bytes.get(at - 1)?;
    }
    Some(at)
}
