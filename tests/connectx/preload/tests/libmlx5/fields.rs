//! Every field that libmlx5 takes in a match: a packet with it is found, and by a rule that differs in one bit it is not.

use sluice_connectx::profile::{BLUEFIELD_2, Profile};
use sluice_connectx::steering::Port;
use sluice_connectx_preload::Plugged;
use sluice_libmlx5::dv::Match;

use crate::frames::{ethernet, ipv4};
use crate::packet::{ICMP, ICMPV6, Packet, TCP, UDP};
use crate::rig::field::{self as f, Field};
use crate::rig::{FORMATS, comes_out, exactly, play_in_switch, value};

/// A field in a packet, with what must be matched besides.
pub(crate) struct Case {
    name: &'static str,
    besides: Vec<(Field, u128)>,
    field: Field,
    value: u128,
    frame: Vec<u8>,
}

pub(crate) fn case(
    name: &'static str,
    besides: &[(Field, u128)],
    field: Field,
    value: impl Into<u128>,
    frame: &[u8],
) -> Case {
    Case { name, besides: besides.to_vec(), field, value: value.into(), frame: frame.to_vec() }
}

pub(crate) const V4: (Field, u128) = (f::IP_VERSION, 4);
pub(crate) const V6: (Field, u128) = (f::IP_VERSION, 6);

pub(crate) fn inner(field: Field) -> Field {
    (field.0 + f::INNER, field.1)
}

/// A frame within UDP to that port, behind a tunnel's header.
pub(crate) fn tunnel(port: u16, header: &[u8], inside: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + header.len() + inside.len()).unwrap();
    let words = [40_000, port, length, 0];
    let udp: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    ethernet(0x0800, &ipv4([172, 16, 0, 1], [172, 16, 0, 2], UDP, &[&udp, header, inside].concat()))
}

pub(crate) fn layer_2() -> Vec<Case> {
    let plain = Packet::v4(UDP);
    let one = Packet { tags: vec![(0x8100, 0xb064)], ..plain.clone() };
    let two = Packet { tags: vec![(0x88a8, 0x2007), (0x8100, 0xd009)], ..plain.clone() };
    let services = Packet { tags: vec![(0x88a8, 0x2007), (0x88a8, 0x1008)], ..plain.clone() }.frame();
    let (plain, one, two) = (plain.frame(), one.frame(), two.frame());
    let tagged = [(f::CVLAN_TAG, 1)];
    vec![
        case("destination MAC", &[], f::DESTINATION_MAC, 0x0200_0000_0002_u64, &plain),
        case("source MAC", &[], f::SOURCE_MAC, 0x0200_0000_0001_u64, &plain),
        case(
            "source MAC with destination",
            &[(f::DESTINATION_MAC, 0x0200_0000_0002)],
            f::SOURCE_MAC,
            0x0200_0000_0001_u64,
            &plain,
        ),
        case("EtherType", &[], f::ETHERTYPE, 0x0800_u16, &plain),
        case("VLAN id", &tagged, f::VLAN, 0x064_u16, &one),
        case("VLAN priority", &tagged, f::PRIORITY, 5_u8, &one),
        case("VLAN CFI", &tagged, f::CFI, 1_u8, &one),
        case("service VLAN id", &[(f::SVLAN_TAG, 1)], f::VLAN, 7_u8, &two),
        case("second VLAN id", &[(f::SVLAN_TAG, 1), (f::SECOND_CVLAN_TAG, 1)], f::SECOND_VLAN, 9_u8, &two),
        case("second VLAN priority", &[(f::SVLAN_TAG, 1), (f::SECOND_CVLAN_TAG, 1)], f::SECOND_PRIORITY, 6_u8, &two),
        case("second VLAN CFI", &[(f::SVLAN_TAG, 1), (f::SECOND_CVLAN_TAG, 1)], f::SECOND_CFI, 1_u8, &two),
        case("second service VLAN id", &[(f::SVLAN_TAG, 1), (f::SECOND_SVLAN_TAG, 1)], f::SECOND_VLAN, 8_u8, &services),
        case("source port", &[], f::SOURCE_PORT, 0_u8, &plain),
        case("send queue", &[], f::SOURCE_SQN, 0_u8, &plain),
    ]
}

pub(crate) fn layer_3() -> Vec<Case> {
    let v4 = Packet { tos: 0x2a << 2 | 1, ..Packet::v4(TCP) };
    let part = Packet { fragment: 0x2000, ..Packet::v4(UDP) };
    let v6 = Packet { tos: 0x15 << 2 | 2, ..Packet::v6(UDP) };
    let labelled = {
        let mut frame = v6.frame();
        frame[15] |= 0x3;
        frame[16..18].copy_from_slice(&[0x45, 0x67]);
        frame
    };
    let (v4, part, v6) = (v4.frame(), part.frame(), v6.frame());
    let (source, destination) = (0xfd00_u128 << 112 | 1, 0xfd09_u128 << 112 | 9);
    vec![
        case("protocol", &[V4], f::PROTOCOL, TCP, &v4),
        case("DSCP", &[V4], f::DSCP, 0x2a_u8, &v4),
        case("ECN", &[V4], f::ECN, 1_u8, &v4),
        case("TTL", &[V4], f::TTL, 64_u8, &v4),
        case("header length", &[V4], f::IHL, 5_u8, &v4),
        case("fragment", &[V4], f::FRAGMENT, 1_u8, &part),
        case("IPv4 source", &[V4], f::SOURCE_V4, 0x0a00_0001_u32, &v4),
        case("IPv4 destination", &[V4], f::DESTINATION_V4, 0x0a09_0909_u32, &v4),
        case("IPv6 source", &[V6], f::SOURCE_V6, source, &v6),
        case("IPv6 destination", &[V6], f::DESTINATION_V6, destination, &v6),
        case("IPv6 source with destination", &[V6, (f::DESTINATION_V6, destination)], f::SOURCE_V6, source, &v6),
        case("next header", &[V6], f::PROTOCOL, UDP, &v6),
        case("class", &[V6], f::DSCP, 0x15_u8, &v6),
        case("hop limit", &[V6], f::TTL, 64_u8, &v6),
        case("flow label", &[V6], f::FLOW_LABEL, 0x3_4567_u32, &labelled),
    ]
}

pub(crate) fn layer_4() -> Vec<Case> {
    let (tcp, udp) = (Packet::v4(TCP).frame(), Packet::v4(UDP).frame());
    let (tcp_6, udp_6) = (Packet::v6(TCP).frame(), Packet::v6(UDP).frame());
    let icmp = Packet { ports: [0x0803, 0x1234], ..Packet::v4(ICMP) }.frame();
    let icmp_6 = Packet { ports: [0x8001, 0x1234], ..Packet::v6(ICMPV6) }.frame();
    let of = |protocol: u8| [V4, (f::PROTOCOL, protocol.into())];
    let of_6 = |protocol: u8| [V6, (f::PROTOCOL, protocol.into())];
    vec![
        case("TCP source", &of(TCP), f::TCP_SOURCE, 1000_u16, &tcp),
        case("TCP destination", &of(TCP), f::TCP_DESTINATION, 80_u16, &tcp),
        case("TCP flags", &of(TCP), f::TCP_FLAGS, 0x12_u16, &tcp),
        case("TCP sequence", &of(TCP), f::TCP_SEQUENCE, 0x0102_0304_u32, &tcp),
        case("TCP acknowledgement", &of(TCP), f::TCP_ACKNOWLEDGEMENT, 0x0506_0708_u32, &tcp),
        case("UDP source", &of(UDP), f::UDP_SOURCE, 1000_u16, &udp),
        case("UDP destination", &of(UDP), f::UDP_DESTINATION, 80_u16, &udp),
        case("TCP over IPv6, source", &of_6(TCP), f::TCP_SOURCE, 1000_u16, &tcp_6),
        case("TCP over IPv6, flags", &of_6(TCP), f::TCP_FLAGS, 0x12_u16, &tcp_6),
        case("UDP over IPv6, destination", &of_6(UDP), f::UDP_DESTINATION, 80_u16, &udp_6),
        case("ICMP type", &of(ICMP), f::ICMP_TYPE, 8_u8, &icmp),
        case("ICMP code", &of(ICMP), f::ICMP_CODE, 3_u8, &icmp),
        case("ICMP data", &of(ICMP), f::ICMP_DATA, 0x1234_0001_u32, &icmp),
        case("ICMPv6 data", &of_6(ICMPV6), f::ICMPV6_DATA, 0x1234_0001_u32, &icmp_6),
        case("ICMPv6 type", &of_6(ICMPV6), f::ICMPV6_TYPE, 0x80_u8, &icmp_6),
        case("ICMPv6 code", &of_6(ICMPV6), f::ICMPV6_CODE, 1_u8, &icmp_6),
    ]
}

pub(crate) fn tunnels() -> Vec<Case> {
    const GRE: u8 = 47;
    let inside = Packet { to: [2, 0, 0, 0, 0xaa, 1], from: [2, 0, 0, 0, 0xaa, 2], ..Packet::v4(TCP) }.frame();
    let inside_6 = Packet::v6(UDP).frame();
    let header = [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0];
    let (vxlan, vxlan_6) = (tunnel(4789, &header, &inside), tunnel(4789, &header, &inside_6));
    let geneve = tunnel(6081, &[0, 0, 0x65, 0x58, 0x65, 0x43, 0x21, 0], &inside);
    let gre = [&[0x20, 0, 0x65, 0x58, 0xde, 0xad, 0xbe, 0xef], &inside[..]].concat();
    let gre = ethernet(0x0800, &ipv4([172, 16, 0, 1], [172, 16, 0, 2], GRE, &gre));
    let over = |port: u128| [V4, (f::PROTOCOL, UDP.into()), (f::UDP_DESTINATION, port)];
    let vni = [V4, (f::PROTOCOL, UDP.into()), (f::UDP_DESTINATION, 4789), (f::VXLAN_VNI, 0x12_3456)];
    let inner_v4 = (inner(f::IP_VERSION), 4);
    let inner_v6 = (inner(f::IP_VERSION), 6);
    vec![
        case("VXLAN identifier", &over(4789), f::VXLAN_VNI, 0x12_3456_u32, &vxlan),
        case("Geneve identifier", &over(6081), f::GENEVE_VNI, 0x65_4321_u32, &geneve),
        case("Geneve protocol", &over(6081), f::GENEVE_PROTOCOL, 0x6558_u16, &geneve),
        case("GRE key", &[V4, (f::PROTOCOL, GRE.into())], f::GRE_KEY, 0xdead_beef_u32, &gre),
        case("GRE protocol", &[V4, (f::PROTOCOL, GRE.into())], f::GRE_PROTOCOL, 0x6558_u16, &gre),
        case("inner destination MAC", &vni, inner(f::DESTINATION_MAC), 0x0200_0000_aa01_u64, &vxlan),
        case("inner source MAC", &vni, inner(f::SOURCE_MAC), 0x0200_0000_aa02_u64, &vxlan),
        case("inner IPv4 source", &[inner_v4], inner(f::SOURCE_V4), 0x0a00_0001_u32, &vxlan),
        case("inner IPv4 destination", &[inner_v4], inner(f::DESTINATION_V4), 0x0a09_0909_u32, &vxlan),
        case("inner protocol", &[inner_v4], inner(f::PROTOCOL), TCP, &vxlan),
        case(
            "inner TCP port",
            &[inner_v4, (inner(f::PROTOCOL), TCP.into())],
            inner(f::TCP_DESTINATION),
            80_u16,
            &vxlan,
        ),
        case("inner IPv6 destination", &[inner_v6], inner(f::DESTINATION_V6), 0xfd09_u128 << 112 | 9, &vxlan_6),
    ]
}

/// Every case on a device of that kind.
pub(crate) fn check(profile: Profile, cases: Vec<Case>) {
    check_those(profile, cases, |_| true);
}

/// The same of those that a matcher is good for. Their names.
pub(crate) fn check_those(profile: Profile, cases: Vec<Case>, good: impl Fn(&Plugged) -> bool) -> Vec<&'static str> {
    let mut names = Vec::new();
    play_in_switch(profile, |plugged, _, domain, table| {
        let to = domain.to_vport(0xffff).unwrap();
        // From a vport, where nothing but a rule leads to the wire.
        let arrives = |frame: &[u8]| comes_out(plugged, Port::Vport(0), frame) == Some(Port::Wire);
        for Case { name, besides, field, value: wanted, frame } in cases {
            println!("{name}");
            let fields = |of: u128| [&besides[..], &[(field, of)]].concat();
            let (mask, match_it) = exactly(&fields(wanted));
            let matcher = table.matcher(0, &mask).unwrap_or_else(|error| panic!("{name}: {error}"));
            if !good(plugged) {
                continue;
            }
            names.push(name);
            let rule =
                |match_it: &Match| matcher.rule(match_it, &[&to]).unwrap_or_else(|error| panic!("{name}: {error}"));
            {
                let _rule = rule(&match_it);
                domain.sync().unwrap();
                assert!(arrives(&frame), "{name} of {wanted:#x} is not found");
            }
            // A vport that does not exist is refused, so that its rules cannot differ by a bit.
            for bit in [0, field.1 - 1].into_iter().filter(|_| field != f::SOURCE_PORT) {
                let _rule = rule(&value(&fields(wanted ^ 1 << bit)));
                domain.sync().unwrap();
                assert!(!arrives(&frame), "{name} of {wanted:#x} is found where bit {bit} differs");
            }
        }
    });
    names
}

#[test]
fn every_field_of_ethernet_is_matched_to_the_bit() {
    FORMATS.into_iter().for_each(|profile| check(profile, layer_2()));
}

#[test]
fn every_field_of_ip_is_matched_to_the_bit() {
    FORMATS.into_iter().for_each(|profile| check(profile, layer_3()));
}

#[test]
fn every_field_of_transport_is_matched_to_the_bit() {
    FORMATS.into_iter().for_each(|profile| check(profile, layer_4()));
}

#[test]
fn every_field_of_tunnels_and_what_they_carry_is_matched_to_the_bit() {
    FORMATS.into_iter().for_each(|profile| check(profile, tunnels()));
}

#[test]
fn a_source_vport_tells_packets_of_one_host_function_from_those_of_another() {
    play_in_switch(BLUEFIELD_2, |plugged, _, domain, table| {
        let (from_wire, to_wire) = (domain.to_vport(2).unwrap(), domain.to_vport(0xffff).unwrap());
        let (mask, first) = exactly(&[(f::SOURCE_PORT, 1)]);
        let matcher = table.matcher(0, &mask).unwrap();
        let _first = matcher.rule(&first, &[&to_wire]).unwrap();
        let _wire = matcher.rule(&value(&[(f::SOURCE_PORT, 0xffff)]), &[&from_wire]).unwrap();
        domain.sync().unwrap();
        let frame = Packet::v4(UDP).frame();
        let default = Some(Port::Vport(BLUEFIELD_2.own_vport()));
        assert_eq!(comes_out(plugged, Port::Vport(1), &frame), Some(Port::Wire));
        assert_eq!(comes_out(plugged, Port::Vport(2), &frame), default);
        assert_eq!(comes_out(plugged, Port::Wire, &frame), Some(Port::Vport(2)));
    });
}
