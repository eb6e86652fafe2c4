//! Putting translated addresses and ports into a packet.
//!
//! Checksums are updated incrementally (`net/netfilter/nf_nat_proto.c`), so that a wrong one stays wrong; a UDP checksum
//! of zero stays zero, and the CRC of SCTP is computed anew.

use std::net::IpAddr;

use sluice_flow::action::NatSide;

use crate::packet::checksum::{Sum, crc32c, pseudo_header, replace, replace_udp};
use crate::packet::headers::{Icmp, Ipv4, Ipv6, Sctp, Tcp, Udp, Wire};
use crate::packet::ip_proto;

use super::icmp;
use super::tuple::{DCCP, Family, GRE, GRE_HEADER, Located, Tuple, UDP_LITE, gre_version, locate};

/// Gives one side of an IP packet what `target` has there; `None` if the packet is cut off.
pub(crate) fn translate(packet: &mut [u8], family: Family, target: &Tuple, side: NatSide) -> Option<()> {
    let address = match side {
        NatSide::Source => target.source,
        NatSide::Destination => target.destination,
    };
    let located = locate(packet, family);
    let old = match (side, &located) {
        (NatSide::Source, Some(located)) => located.source,
        (NatSide::Destination, Some(located)) => located.destination,
        (_, None) => address,
    };
    if let Some(located) = &located {
        let bytes = [address_bytes(old), address_bytes(address)];
        transport(packet.get_mut(located.transport..).unwrap_or_default(), located.protocol, target, side, bytes)?;
    }
    match address {
        IpAddr::V4(address) => {
            let mut ip = Ipv4::new(packet)?;
            let was = if side == NatSide::Source { ip.source() } else { ip.destination() };
            ip.set_checksum(replace(ip.checksum(), &was.to_be_bytes(), &address.octets()));
            match side {
                NatSide::Source => ip.set_source(address.to_bits()),
                NatSide::Destination => ip.set_destination(address.to_bits()),
            }
        }
        IpAddr::V6(address) => {
            let mut ip = Ipv6::new(packet)?;
            match side {
                NatSide::Source => ip.set_source(address.to_bits()),
                NatSide::Destination => ip.set_destination(address.to_bits()),
            }
        }
    }
    Some(())
}

/// An address with its length.
struct AddressBytes([u8; 16], usize);

impl AddressBytes {
    fn get(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

fn address_bytes(address: IpAddr) -> AddressBytes {
    let mut bytes = AddressBytes([0; 16], 0);
    match address {
        IpAddr::V4(address) => {
            bytes.0[..4].copy_from_slice(&address.octets());
            bytes.1 = 4;
        }
        IpAddr::V6(address) => bytes = AddressBytes(address.octets(), 16),
    }
    bytes
}

fn transport(
    bytes: &mut [u8],
    protocol: u8,
    target: &Tuple,
    side: NatSide,
    [old, new]: [AddressBytes; 2],
) -> Option<()> {
    // The outer header of an ICMP error has another protocol than its connection.
    let has_ports = protocol == target.protocol;
    let (at, port) = match side {
        NatSide::Source => (0, target.source_port),
        NatSide::Destination => (2, target.destination_port),
    };
    // In an ICMP error a header may be cut off behind as much as a router must send back (RFC 792).
    const SENT_BACK: usize = 8;
    if has_ports && matches!(protocol, ip_proto::TCP | ip_proto::SCTP | DCCP) && bytes.len() < SENT_BACK {
        return None;
    }
    let is_covered = |header: usize| bytes.len() >= header;
    match protocol {
        ip_proto::TCP if has_ports => {
            let old_port = set_port(bytes, at, port)?;
            if let Some(mut tcp) = Tcp::new(bytes) {
                let sum = replace(tcp.checksum(), old.get(), new.get());
                tcp.set_checksum(replace(sum, &old_port, &port.to_be_bytes()));
            }
        }
        DCCP if has_ports => {
            const CHECKSUM: usize = 6;
            const HEADER: usize = 12;
            let covered = is_covered(HEADER);
            let old_port = set_port(bytes, at, port)?;
            if covered {
                let sum = replace(u16::read(bytes, CHECKSUM), old.get(), new.get());
                replace(sum, &old_port, &port.to_be_bytes()).write(bytes, CHECKSUM);
            }
        }
        ip_proto::UDP | UDP_LITE if has_ports => {
            let old_port = set_port(bytes, at, port)?;
            let mut udp = Udp::new(bytes)?;
            let sum = replace_udp(udp.checksum(), old.get(), new.get());
            udp.set_checksum(replace_udp(sum, &old_port, &port.to_be_bytes()));
        }
        ip_proto::SCTP if has_ports => {
            set_port(bytes, at, port)?;
            if let Some(mut sctp) = Sctp::new(&mut *bytes) {
                sctp.set_checksum(0);
                let checksum = crc32c(&[bytes]);
                Sctp::new(bytes)?.set_checksum(u32::read(&checksum.to_le_bytes(), 0));
            }
        }
        ip_proto::ICMP | ip_proto::ICMPV6 => {
            const IDENTIFIER: usize = 4;
            let header = Icmp::new(&mut *bytes)?;
            let (kind, mut sum) = (header.kind(), header.checksum());
            if protocol == ip_proto::ICMPV6 {
                sum = replace(sum, old.get(), new.get());
            }
            if has_ports && icmp::has_identifier(protocol, kind) {
                sum = replace(sum, &bytes[IDENTIFIER..IDENTIFIER + 2], &target.source_port.to_be_bytes());
                target.source_port.write(bytes, IDENTIFIER);
            }
            Icmp::new(bytes)?.set_checksum(sum);
        }
        GRE => {
            const CALL: usize = 6;
            if bytes.len() < GRE_HEADER {
                return None;
            }
            // Nobody but PPTP has something to translate, and it says only to which call it goes (`gre_manip_pkt`).
            match (side, gre_version(bytes)?) {
                (NatSide::Source, _) | (NatSide::Destination, 0) => {}
                (NatSide::Destination, 1) => target.destination_port.write(bytes, CALL),
                (NatSide::Destination, _) => return None,
            }
        }
        _ => {}
    }
    Some(())
}

/// Writes a port; the bytes of the old one come back.
fn set_port(bytes: &mut [u8], at: usize, port: u16) -> Option<[u8; 2]> {
    let place = bytes.get_mut(at..at + 2)?;
    let old = [place[0], place[1]];
    place.copy_from_slice(&port.to_be_bytes());
    Some(old)
}

/// Translates an ICMP error that goes to or comes from one side of a connection, and the packet in it the other way
/// round (`nf_nat_icmp_reply_translation`). `inside` is the direction of the connection that is the inner packet's,
/// `outside` the one whose end gets or sends the error.
pub(crate) fn translate_error(
    packet: &mut [u8],
    family: Family,
    [inside, outside]: [&Tuple; 2],
    side: NatSide,
) -> Option<()> {
    let located = locate(packet, family)?;
    let inner = packet.get_mut(located.transport + icmp::HEADER..)?;
    let other_side = match side {
        NatSide::Source => NatSide::Destination,
        NatSide::Destination => NatSide::Source,
    };
    translate(inner, family, inside, other_side)?;
    sum_error(packet, &located)?;
    translate(packet, family, &Tuple { protocol: located.protocol, ..*outside }, side)
}

/// What an error carries has changed at any place, so the sum is made anew.
fn sum_error(packet: &mut [u8], located: &Located) -> Option<()> {
    let bytes = packet.get_mut(located.transport..)?;
    Icmp::new(&mut *bytes)?.set_checksum(0);
    let sum = match (located.source, located.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            pseudo_header(&source.octets(), &destination.octets(), located.protocol, bytes.len())
        }
        _ => Sum::default(),
    };
    let sum = sum.bytes(bytes).finish();
    Icmp::new(bytes)?.set_checksum(sum);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::frames::{self, is_summed, tuple};

    fn there_and_back(family: Family, packet: Vec<u8>, target: &Tuple) {
        let located = locate(&packet, family).unwrap();
        let original = Tuple::read(&packet, &located).unwrap();
        let mut translated = packet.clone();
        for side in [NatSide::Source, NatSide::Destination] {
            translate(&mut translated, family, target, side).unwrap();
        }
        assert_ne!(translated, packet);
        let now = locate(&translated, family).unwrap();
        assert_eq!(Tuple::read(&translated, &now).unwrap(), *target);
        assert!(is_summed(&translated, family), "protocol {}", target.protocol);
        for side in [NatSide::Source, NatSide::Destination] {
            translate(&mut translated, family, &original, side).unwrap();
        }
        assert_eq!(translated, packet, "the way back restores every byte");
    }

    #[test]
    fn translation_keeps_checksums_right_and_the_way_back_restores_every_byte() {
        let udp = frames::udp(1000, 53, b"question");
        let tcp = frames::tcp(1000, 80, 0x02, 7, 0, 500, b"");
        let sctp = frames::sctp(1000, 80, 0, &[1, 0, 0, 20, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for (protocol, payload) in [(17, &udp), (6, &tcp), (132, &sctp)] {
            let packet = frames::summed(Family::V4, frames::v4("10.0.0.1", "10.0.0.2", protocol, payload));
            there_and_back(Family::V4, packet, &tuple(protocol, "198.51.100.7:40001", "192.0.2.77:9999"));
            let packet = frames::summed(Family::V6, frames::v6("fd00::1", "fd00::2", protocol, payload));
            there_and_back(Family::V6, packet, &tuple(protocol, "[2001:db8::7]:40001", "[2001:db8::77]:9999"));
        }
        let echo = [8, 0, 0, 0, 0, 7, 0, 1, b'x'];
        let packet = frames::summed(Family::V4, frames::v4("10.0.0.1", "10.0.0.2", 1, &echo));
        let target = Tuple { destination_port: 0x0800, ..tuple(1, "198.51.100.7:4711", "192.0.2.77:0") };
        there_and_back(Family::V4, packet, &target);
        let echo = [128, 0, 0, 0, 0, 7, 0, 1, b'x'];
        let packet = frames::summed(Family::V6, frames::v6("fd00::1", "fd00::2", 58, &echo));
        let target = Tuple { destination_port: 0x8000, ..tuple(58, "[2001:db8::7]:4711", "[2001:db8::77]:0") };
        there_and_back(Family::V6, packet, &target);
    }

    #[test]
    fn a_udp_checksum_of_zero_stays_zero() {
        let mut packet = frames::v4("10.0.0.1", "10.0.0.2", 17, &frames::udp(1000, 53, b"question"));
        let target = tuple(17, "198.51.100.7:40001", "10.0.0.2:53");
        translate(&mut packet, Family::V4, &target, NatSide::Source).unwrap();
        assert_eq!(packet[26..28], [0, 0]);
    }

    #[test]
    fn gre_is_translated_if_eight_bytes_of_it_are_there() {
        let target = tuple(GRE, "198.51.100.7:0", "192.0.2.9:0");
        let translated = |header: &[u8], side| {
            let mut packet = frames::v4("10.0.0.1", "10.0.0.2", GRE, header);
            translate(&mut packet, Family::V4, &target, side).map(|()| packet[20..].to_vec())
        };
        let whole = [0, 0, 8, 0, 1, 2, 3, 4];
        for side in [NatSide::Source, NatSide::Destination] {
            assert_eq!(translated(&whole, side), Some(whole.to_vec()));
            assert_eq!(translated(&whole[..7], side), None);
        }
        let call = [0x30, 1, 0x88, 0x0b, 0, 0, 0x12, 0x34];
        assert_eq!(translated(&call, NatSide::Source), Some(call.to_vec()));
        assert_eq!(translated(&call, NatSide::Destination), Some([&call[..6], &[0, 0]].concat()));
        assert_eq!(translated(&[0, 2, 8, 0, 0, 0, 0, 0], NatSide::Destination), None, "no such version");
    }

    #[test]
    fn an_error_is_translated_inside_and_outside() {
        let inner = frames::summed(
            Family::V4,
            frames::v4("198.51.100.7", "192.0.2.9", 17, &frames::udp(40001, 53, b"question")),
        );
        let error = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &inner].concat();
        let mut packet = frames::summed(Family::V4, frames::v4("192.0.2.1", "198.51.100.7", 1, &error));
        let original = tuple(17, "10.0.0.1:1000", "192.0.2.9:53");
        let outside = original.inverse().unwrap();
        translate_error(&mut packet, Family::V4, [&original, &outside], NatSide::Destination).unwrap();
        assert!(is_summed(&packet, Family::V4));
        assert_eq!(packet[16..20], [10, 0, 0, 1], "it goes to whom it concerns");
        let inner = &packet[28..];
        assert!(is_summed(inner, Family::V4));
        let located = locate(inner, Family::V4).unwrap();
        assert_eq!(Tuple::read(inner, &located).unwrap(), original);
    }

    #[test]
    fn an_error_with_eight_bytes_of_a_header_is_translated_as_far_as_it_goes_and_one_with_fewer_is_not() {
        let tcp = frames::tcp(40001, 80, 0x02, 7, 0, 500, b"");
        for protocol in [ip_proto::TCP, ip_proto::UDP, ip_proto::SCTP, DCCP, UDP_LITE] {
            let original = tuple(protocol, "10.0.0.1:1000", "192.0.2.9:80");
            let outside = original.inverse().unwrap();
            for (length, is_translated) in [(8, true), (7, false), (4, false)] {
                let inner = frames::v4("198.51.100.7", "192.0.2.9", protocol, &tcp[..length]);
                let error = [&[11, 0, 0, 0, 0, 0, 0, 0][..], &inner].concat();
                let mut packet = frames::summed(Family::V4, frames::v4("192.0.2.1", "198.51.100.7", 1, &error));
                let done = translate_error(&mut packet, Family::V4, [&original, &outside], NatSide::Destination);
                assert_eq!(done.is_some(), is_translated, "{length} bytes of {protocol}");
                if is_translated {
                    assert!(is_summed(&packet, Family::V4));
                    assert_eq!(packet[48..50], 1000u16.to_be_bytes());
                }
            }
        }
    }
}
