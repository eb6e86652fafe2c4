//! `set(nd(…))` and `set(nd_ext(…))`, which only OVS's userspace has (`packet_set_nd` and `packet_set_nd_ext` in
//! lib/packets.c). A message that is too short for them stays as it is.

use sluice_flow::action::FieldSet;
use sluice_flow::field::Field;

use super::Packet;
use super::merge::{Missing, merge, narrow};
use crate::packet::checksum::{pseudo_header, replace};
use crate::packet::extract::neighbour_options;
use crate::packet::headers::{Icmp, Ipv6, Neighbour, NeighbourOption};
use crate::packet::{Network, Transport, ip_proto, mac_from_bits, mac_to_bits};

/// Sets the target, and the address of the first option that has one; none is added.
pub(super) fn set(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.transport(Transport::Icmpv6)?;
    let end = packet.layout.end;
    let Some(message) = packet.bytes.get_mut(at..end) else {
        return Ok(());
    };
    let Some(mut header) = Neighbour::new(&mut *message) else {
        return Ok(());
    };
    let old = header.target();
    let new = merge(set, Field::NdTarget, old);
    header.set_target(new);
    let mut checksum = Icmp::new(&*message).ok_or(Missing)?.checksum();
    if new != old {
        checksum = replace(checksum, &old.to_be_bytes(), &new.to_be_bytes());
    }

    let with_address = neighbour_options(message).find_map(|(option, at)| match (option.kind(), option.length()) {
        (1, 1) => Some((Field::NdSll, at)),
        (2, 1) => Some((Field::NdTll, at)),
        _ => None,
    });
    if let Some((field, at)) = with_address {
        let mut option = NeighbourOption::new(&mut message[at..]).ok_or(Missing)?;
        let old = option.mac();
        let new = mac_from_bits(merge(set, field, mac_to_bits(old)));
        option.set_mac(new);
        if new != old {
            checksum = replace(checksum, &old, &new);
        }
    }
    Icmp::new(message).ok_or(Missing)?.set_checksum(checksum);
    Ok(())
}

/// Sets the reserved bits and the type of the first option, and computes the checksum in full.
pub(super) fn set_extensions(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.transport(Transport::Icmpv6)?;
    let ip = packet.bytes.get(packet.network(Network::Ipv6)?..).and_then(Ipv6::new).ok_or(Missing)?;
    let (source, destination) = (ip.source().to_be_bytes(), ip.destination().to_be_bytes());
    let end = packet.layout.end;
    let Some(message) = packet.bytes.get_mut(at..end) else {
        return Ok(());
    };
    let Some(mut header) = Neighbour::new(&mut *message) else {
        return Ok(());
    };
    header.set_reserved(narrow(merge(set, Field::NdReserved, header.reserved())));
    let first = message.get_mut(Neighbour::<&[u8]>::LENGTH..).and_then(NeighbourOption::new);
    if let Some(mut option) = first {
        option.set_kind(narrow(merge(set, Field::NdOptionsType, option.kind())));
    }
    Icmp::new(&mut *message).ok_or(Missing)?.set_checksum(0);
    let pseudo = pseudo_header(&source, &destination, ip_proto::ICMPV6, message.len());
    let checksum = pseudo.bytes(message).finish();
    Icmp::new(message).ok_or(Missing)?.set_checksum(checksum);
    Ok(())
}
