//! `set(…)`: rewriting headers, and putting right the checksums that cover them.
//!
//! As in the OVS kernel datapath (`net/openvswitch/actions.c`) checksums are updated incrementally, so that a wrong one
//! stays wrong, a UDP checksum of zero stays zero, and the first fragment of a packet gets the checksum of the whole.

use sluice_flow::action::FieldSet;
use sluice_flow::field::{Attribute, Field};

use super::merge::{Missing, merge, narrow};
use super::{Packet, mpls, neighbour, nsh};
use crate::packet::checksum::{crc32c, replace, replace_udp};
use crate::packet::headers::{Arp, Ethernet, Icmp, Ipv4, Ipv6, Sctp, Tcp, Udp};
use crate::packet::{Network, Transport, eth_type, ip_proto, mac_from_bits, mac_to_bits};

/// Rewrites the fields of one header.
pub(crate) fn apply(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    match set.attribute {
        Attribute::SkbMark => packet.metadata.mark = narrow(merge(set, Field::SkbMark, packet.metadata.mark)),
        Attribute::SkbPriority => {
            packet.metadata.priority = narrow(merge(set, Field::SkbPriority, packet.metadata.priority));
        }
        Attribute::Ethernet if packet.metadata.layer3.is_some() => return Err(Missing),
        Attribute::Ethernet => ethernet(packet, set)?,
        Attribute::Ipv4 => ipv4(packet, set)?,
        Attribute::Ipv6 => ipv6(packet, set)?,
        Attribute::Arp => arp(packet, set)?,
        Attribute::Mpls => mpls::set(packet, set)?,
        Attribute::Nsh => nsh::set(packet, set)?,
        Attribute::Tcp => tcp(packet, set)?,
        Attribute::Udp => udp(packet, set)?,
        Attribute::Sctp => sctp(packet, set)?,
        Attribute::Icmp => icmp(packet, set, Transport::Icmp, [Field::IcmpType, Field::IcmpCode])?,
        Attribute::Icmpv6 => icmp(packet, set, Transport::Icmpv6, [Field::Icmpv6Type, Field::Icmpv6Code])?,
        Attribute::Nd => neighbour::set(packet, set)?,
        Attribute::NdExt => neighbour::set_extensions(packet, set)?,
        _ => return Err(Missing),
    }
    Ok(())
}

fn ethernet(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let mut header = Ethernet::new(packet.bytes.as_mut_slice()).ok_or(Missing)?;
    header.set_source(mac_from_bits(merge(set, Field::EthSrc, mac_to_bits(header.source()))));
    header.set_destination(mac_from_bits(merge(set, Field::EthDst, mac_to_bits(header.destination()))));
    Ok(())
}

/// Sets the source, then the destination, then the rest, as the kernel does. It does so, too, where the header has a
/// wrong length, and then takes the transport header to be where the network header is (`check_iphdr` in flow.c).
fn ipv4(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let (at, transport) = match packet.network(Network::Ipv4) {
        Ok(at) => (at, packet.layout.transport),
        Err(Missing) => (packet.layout.payload_at, misplaced_transport(packet)),
    };
    for field in [Field::Ipv4Src, Field::Ipv4Dst] {
        let is_source = field == Field::Ipv4Src;
        let header = packet.bytes.get(at..).and_then(Ipv4::new).ok_or(Missing)?;
        let old = if is_source { header.source() } else { header.destination() };
        let new: u32 = narrow(merge(set, field, old));
        if new != old {
            let (before, after) = (old.to_be_bytes(), new.to_be_bytes());
            cover(packet, transport, &before, &after);
            let mut header = Ipv4::new(&mut packet.bytes[at..]).ok_or(Missing)?;
            header.set_checksum(replace(header.checksum(), &before, &after));
            if is_source { header.set_source(new) } else { header.set_destination(new) }
        }
    }

    let mut header = packet.bytes.get_mut(at..).and_then(Ipv4::new).ok_or(Missing)?;
    // These two also where nothing changes, which makes a checksum of 0xffff, that no right header has, zero.
    if set.get(Field::Ipv4Tos).is_some() {
        let (version, old) = (header.version_and_length(), header.tos());
        let new = narrow(merge(set, Field::Ipv4Tos, old));
        header.set_checksum(replace(header.checksum(), &[version, old], &[version, new]));
        header.set_tos(new);
    }
    if set.get(Field::Ipv4Ttl).is_some() {
        let (old, protocol) = (header.ttl(), header.protocol());
        let new = narrow(merge(set, Field::Ipv4Ttl, old));
        header.set_checksum(replace(header.checksum(), &[old, protocol], &[new, protocol]));
        header.set_ttl(new);
    }
    Ok(())
}

/// Where the kernel takes the transport header to be under an IPv4 header of a wrong length.
fn misplaced_transport(packet: &Packet) -> Option<(Transport, usize)> {
    let at = packet.layout.payload_at;
    let ip = packet.bytes.get(at..).and_then(Ipv4::new).filter(|ip| !ip.is_later_fragment())?;
    match ip.protocol() {
        ip_proto::TCP => Some((Transport::Tcp, at)),
        ip_proto::UDP => Some((Transport::Udp, at)),
        _ => None,
    }
}

fn ipv6(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.network(Network::Ipv6)?;
    let header = Ipv6::new(&packet.bytes[at..]).ok_or(Missing)?;
    let (old_source, old_destination) = (header.source(), header.destination());
    let source = merge(set, Field::Ipv6Src, old_source);
    let destination = merge(set, Field::Ipv6Dst, old_destination);
    if source != old_source {
        cover(packet, packet.layout.transport, &old_source.to_be_bytes(), &source.to_be_bytes());
    }
    // While a source route has stations left, checksums hold the last of them and not the destination.
    if destination != old_destination && !packet.layout.source_route {
        cover(packet, packet.layout.transport, &old_destination.to_be_bytes(), &destination.to_be_bytes());
    }

    let mut header = Ipv6::new(&mut packet.bytes[at..]).ok_or(Missing)?;
    header.set_source(source);
    header.set_destination(destination);
    header.set_traffic_class(narrow(merge(set, Field::Ipv6Tclass, header.traffic_class())));
    header.set_flow_label(narrow(merge(set, Field::Ipv6Label, header.flow_label())));
    header.set_hop_limit(narrow(merge(set, Field::Ipv6Hlimit, header.hop_limit())));
    Ok(())
}

/// Decrements the time to live or the hop limit; false where it would become zero. A packet that is not IP stays as it
/// is (`execute_dec_ttl`).
pub(super) fn dec_ttl(packet: &mut Packet) -> Result<bool, Missing> {
    let protocol = packet.protocol();
    let header = packet.bytes.get_mut(packet.layout.payload_at..).unwrap_or_default();
    match protocol {
        eth_type::IPV4 => {
            let mut ip = Ipv4::new(header).ok_or(Missing)?;
            let (ttl, protocol) = (ip.ttl(), ip.protocol());
            if ttl <= 1 {
                return Ok(false);
            }
            ip.set_ttl(ttl - 1);
            ip.set_checksum(replace(ip.checksum(), &[ttl, protocol], &[ttl - 1, protocol]));
        }
        eth_type::IPV6 => {
            let mut ip = Ipv6::new(header).ok_or(Missing)?;
            if ip.hop_limit() <= 1 {
                return Ok(false);
            }
            ip.set_hop_limit(ip.hop_limit() - 1);
        }
        _ => {}
    }
    Ok(true)
}

/// Puts the transport checksum right after an address of its pseudo header changed.
fn cover(packet: &mut Packet, transport: Option<(Transport, usize)>, old: &[u8], new: &[u8]) {
    let Some((transport, at)) = transport else {
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
    let bytes = |[source, destination]: [u16; 2]| {
        let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
        [a, b, c, d]
    };
    (bytes(old), bytes(new))
}

fn tcp(packet: &mut Packet, set: &FieldSet) -> Result<(), Missing> {
    let at = packet.transport(Transport::Tcp)?;
    let mut tcp = packet.bytes.get_mut(at..).and_then(Tcp::new).ok_or(Missing)?;
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
    let mut udp = packet.bytes.get_mut(at..).and_then(Udp::new).ok_or(Missing)?;
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
    let right = |bytes: &[u8]| bytes.get(at..end).and_then(sctp_checksum).ok_or(Missing);
    let right_before = right(&packet.bytes)?;
    let mut sctp = packet.bytes.get_mut(at..).and_then(Sctp::new).ok_or(Missing)?;
    sctp.set_source(narrow(merge(set, Field::SctpSrc, sctp.source())));
    sctp.set_destination(narrow(merge(set, Field::SctpDst, sctp.destination())));
    let stood_there = sctp.checksum();
    let right_after = right(&packet.bytes)?;
    // A difference from the right checksum is carried through, as the kernel does.
    let mut sctp = packet.bytes.get_mut(at..).and_then(Sctp::new).ok_or(Missing)?;
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
    let mut icmp = packet.bytes.get_mut(at..).and_then(Icmp::new).ok_or(Missing)?;
    let old = [icmp.kind(), icmp.code()];
    let new = [narrow(merge(set, fields[0], old[0])), narrow(merge(set, fields[1], old[1]))];
    if new != old {
        icmp.set_kind(new[0]);
        icmp.set_code(new[1]);
        icmp.set_checksum(replace(icmp.checksum(), &old, &new));
    }
    Ok(())
}
