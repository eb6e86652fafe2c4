//! `set(…)`: rewriting headers, and putting right the checksums that cover them.
//!
//! As in the OVS kernel datapath (`net/openvswitch/actions.c`) checksums are updated incrementally, so that a wrong one
//! stays wrong, a UDP checksum of zero stays zero, and the first fragment of a packet gets the checksum of the whole.

use sluice_flow::action::FieldSet;
use sluice_flow::field::{Attribute, Field};

use super::Packet;
use crate::packet::checksum::{crc32c, replace, replace_udp};
use crate::packet::extract::neighbour_options;
use crate::packet::headers::{Arp, Ethernet, Icmp, Ipv4, Ipv6, Neighbour, NeighbourOption, Sctp, Tcp, Udp};
use crate::packet::{Network, Transport, mac_from_bits, mac_to_bits};

/// The packet does not have the header that is to be rewritten: it is cut off or malformed.
#[derive(Debug)]
pub(crate) struct Missing;

/// Rewrites the fields of one header.
pub(crate) fn apply(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    match set.attribute {
        Attribute::SkbMark => packet.metadata.mark = narrow(merge(set, Field::SkbMark, packet.metadata.mark)),
        Attribute::SkbPriority => {
            packet.metadata.priority = narrow(merge(set, Field::SkbPriority, packet.metadata.priority));
        }
        Attribute::Ethernet => ethernet(packet, set)?,
        Attribute::Ipv4 => ipv4(packet, set)?,
        Attribute::Ipv6 => ipv6(packet, set)?,
        Attribute::Arp => arp(packet, set)?,
        // A later fragment has no transport header and stays as it is; its first fragment carries the change.
        _ if packet.layout.later_fragment => {}
        Attribute::Tcp => tcp(packet, set)?,
        Attribute::Udp => udp(packet, set)?,
        Attribute::Sctp => sctp(packet, set)?,
        Attribute::Icmp => icmp(packet, set, Transport::Icmp, [Field::IcmpType, Field::IcmpCode])?,
        Attribute::Icmpv6 => icmp(packet, set, Transport::Icmpv6, [Field::Icmpv6Type, Field::Icmpv6Code])?,
        Attribute::Nd => neighbour(packet, set)?,
        _ => return Err(Missing),
    }
    Ok(())
}

/// A field's old value with the bits that are to be set.
fn merge(set: &FieldSet, field: Field, old: impl Into<u128>) -> u128 {
    let old = old.into();
    set.get(field).map_or(old, |(value, mask)| old & !mask | value & mask)
}

/// The lowest bits of a merged value, which has no others.
fn narrow<T: TryFrom<u128> + Default>(value: u128) -> T {
    T::try_from(value).unwrap_or_default()
}

fn ethernet(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let mut header = Ethernet::new(packet.bytes.as_mut_slice()).ok_or(Missing)?;
    header.set_source(mac_from_bits(merge(set, Field::EthSrc, mac_to_bits(header.source()))));
    header.set_destination(mac_from_bits(merge(set, Field::EthDst, mac_to_bits(header.destination()))));
    Ok(())
}

fn ipv4(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.network(Network::Ipv4)?;
    let header = Ipv4::new(&packet.bytes[at..]).ok_or(Missing)?;
    let old = [header.source(), header.destination()];
    let new =
        [Field::Ipv4Src, Field::Ipv4Dst].map(|field| merge(set, field, old[usize::from(field == Field::Ipv4Dst)]));
    let new: [u32; 2] = new.map(narrow);
    for (old, new) in old.into_iter().zip(new) {
        if old != new {
            cover(packet, &old.to_be_bytes(), &new.to_be_bytes());
        }
    }

    let mut header = Ipv4::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    let tos = narrow(merge(set, Field::Ipv4Tos, header.tos()));
    let ttl = narrow(merge(set, Field::Ipv4Ttl, header.ttl()));
    let mut checksum = header.checksum();
    for (old, new) in old.into_iter().zip(new) {
        if old != new {
            checksum = replace(checksum, &old.to_be_bytes(), &new.to_be_bytes());
        }
    }
    if tos != header.tos() {
        let version = header.version_and_length();
        checksum = replace(checksum, &[version, header.tos()], &[version, tos]);
    }
    if ttl != header.ttl() {
        let protocol = header.protocol();
        checksum = replace(checksum, &[header.ttl(), protocol], &[ttl, protocol]);
    }
    header.set_source(new[0]);
    header.set_destination(new[1]);
    header.set_tos(tos);
    header.set_ttl(ttl);
    header.set_checksum(checksum);
    Ok(())
}

fn ipv6(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.network(Network::Ipv6)?;
    let header = Ipv6::new(&packet.bytes[at..]).ok_or(Missing)?;
    let (old_source, old_destination) = (header.source(), header.destination());
    let source = merge(set, Field::Ipv6Src, old_source);
    let destination = merge(set, Field::Ipv6Dst, old_destination);
    if source != old_source {
        cover(packet, &old_source.to_be_bytes(), &source.to_be_bytes());
    }
    // While a source route has stations left, checksums hold the last of them and not the destination.
    if destination != old_destination && !packet.layout.source_route {
        cover(packet, &old_destination.to_be_bytes(), &destination.to_be_bytes());
    }

    let mut header = Ipv6::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    header.set_source(source);
    header.set_destination(destination);
    header.set_traffic_class(narrow(merge(set, Field::Ipv6Tclass, header.traffic_class())));
    header.set_flow_label(narrow(merge(set, Field::Ipv6Label, header.flow_label())));
    header.set_hop_limit(narrow(merge(set, Field::Ipv6Hlimit, header.hop_limit())));
    Ok(())
}

/// Puts the transport checksum right after an address of its pseudo header changed.
fn cover(packet: &mut Packet, old: &[u8], new: &[u8]) {
    let Some((transport, at)) = packet.layout.transport else {
        return;
    };
    let bytes = &mut packet.bytes[at..];
    match transport {
        Transport::Tcp => {
            if let Some(mut tcp) = Tcp::new(bytes) {
                tcp.set_checksum(replace(tcp.checksum(), old, new));
            }
        }
        Transport::Udp => {
            if let Some(mut udp) = Udp::new(bytes) {
                udp.set_checksum(replace_udp(udp.checksum(), old, new));
            }
        }
        Transport::Icmpv6 => {
            if let Some(mut icmp) = Icmp::new(bytes) {
                icmp.set_checksum(replace(icmp.checksum(), old, new));
            }
        }
        // Neither has a pseudo header.
        Transport::Icmp | Transport::Sctp => {}
    }
}

fn arp(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.network(Network::Arp)?;
    let mut arp = Arp::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    arp.set_operation(narrow(merge(set, Field::ArpOp, arp.operation())));
    arp.set_sender_ip(narrow(merge(set, Field::ArpSip, arp.sender_ip())));
    arp.set_target_ip(narrow(merge(set, Field::ArpTip, arp.target_ip())));
    arp.set_sender_mac(mac_from_bits(merge(set, Field::ArpSha, mac_to_bits(arp.sender_mac()))));
    arp.set_target_mac(mac_from_bits(merge(set, Field::ArpTha, mac_to_bits(arp.target_mac()))));
    Ok(())
}

/// Old and new ports as they stand one behind the other on the wire.
fn ports(old: [u16; 2], new: [u16; 2]) -> ([u8; 4], [u8; 4]) {
    let octets = |[source, destination]: [u16; 2]| {
        let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
        [a, b, c, d]
    };
    (octets(old), octets(new))
}

fn tcp(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.transport(Transport::Tcp)?;
    let mut tcp = Tcp::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    let old = [tcp.source(), tcp.destination()];
    let new = [narrow(merge(set, Field::TcpSrc, old[0])), narrow(merge(set, Field::TcpDst, old[1]))];
    if new != old {
        let (before, after) = ports(old, new);
        tcp.set_source(new[0]);
        tcp.set_destination(new[1]);
        tcp.set_checksum(replace(tcp.checksum(), &before, &after));
    }
    Ok(())
}

fn udp(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.transport(Transport::Udp)?;
    let mut udp = Udp::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    let old = [udp.source(), udp.destination()];
    let new = [narrow(merge(set, Field::UdpSrc, old[0])), narrow(merge(set, Field::UdpDst, old[1]))];
    if new != old {
        let (before, after) = ports(old, new);
        udp.set_source(new[0]);
        udp.set_destination(new[1]);
        udp.set_checksum(replace_udp(udp.checksum(), &before, &after));
    }
    Ok(())
}

fn sctp(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.transport(Transport::Sctp)?;
    let end = packet.layout.end.max(at);
    let right = |bytes: &[u8]| sctp_checksum(&bytes[at..end]).ok_or(Missing);
    let right_before = right(&packet.bytes)?;
    let mut sctp = Sctp::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    sctp.set_source(narrow(merge(set, Field::SctpSrc, sctp.source())));
    sctp.set_destination(narrow(merge(set, Field::SctpDst, sctp.destination())));
    let stood_there = sctp.checksum();
    let right_after = right(&packet.bytes)?;
    // A difference from the right checksum is carried through, as the kernel does.
    let mut sctp = Sctp::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    sctp.set_checksum(stood_there ^ right_before ^ right_after);
    Ok(())
}

/// The CRC32c of an SCTP packet, whose own checksum counts as zero, as it stands on the wire.
pub(crate) fn sctp_checksum(packet: &[u8]) -> Option<u32> {
    let (ports_and_tag, rest) = packet.split_at_checked(8)?;
    let (_, chunks) = rest.split_at_checked(4)?;
    Some(crc32c(&[ports_and_tag, &[0; 4], chunks]).swap_bytes())
}

fn icmp(packet: &mut Packet, set: &FieldSet, kind: Transport, fields: [Field; 2]) -> Result<(), Missing> {
    let at = packet.transport(kind)?;
    let mut icmp = Icmp::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    let old = [icmp.kind(), icmp.code()];
    let new = [narrow(merge(set, fields[0], old[0])), narrow(merge(set, fields[1], old[1]))];
    if new != old {
        icmp.set_kind(new[0]);
        icmp.set_code(new[1]);
        icmp.set_checksum(replace(icmp.checksum(), &old, &new));
    }
    Ok(())
}

/// Sets the target, and the addresses for which the message has an option; none is added.
fn neighbour(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.transport(Transport::Icmpv6)?;
    let message = &mut packet.bytes[at..];
    let mut checksum = Icmp::new(&*message).ok_or(Missing)?.checksum();
    let mut header = Neighbour::new(&mut *message).ok_or(Missing)?;
    let old = header.target();
    let new = merge(set, Field::NdTarget, old);
    header.set_target(new);
    checksum = replace(checksum, &old.to_be_bytes(), &new.to_be_bytes());

    let options: Vec<_> = neighbour_options(message)
        .filter_map(|(option, at)| {
            let field = match (option.kind(), option.length()) {
                (1, 1) => Field::NdSll,
                (2, 1) => Field::NdTll,
                _ => return None,
            };
            Some((field, at))
        })
        .collect();
    for (field, at) in options {
        let mut option = NeighbourOption::new(&mut message[at..]).ok_or(Missing)?;
        let old = option.mac();
        let new = mac_from_bits(merge(set, field, mac_to_bits(old)));
        option.set_mac(new);
        checksum = replace(checksum, &old, &new);
    }
    Icmp::new(message).ok_or(Missing)?.set_checksum(checksum);
    Ok(())
}
