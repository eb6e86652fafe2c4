//! Every field of the key: who hits it, and who misses it by one bit.

use sluice_flow::PortNumber;
use sluice_flow::field::Field;
use sluice_flow::key::Key;
use sluice_offload_soft::packet::{Metadata, extract};
use sluice_tests::scenario::Scenario;

use crate::flows::{Matching, at, output};
use crate::packets::{
    Ipv4, Ipv6, SOURCE_MAC, SOURCE_V6, TARGET_MAC, TARGET_V6, arp, ethernet, icmp, labelled, neighbour, sctp, service,
    tagged, tcp, udp,
};

/// A frame, what must be matched before its fields may be, and its fields.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) frame: Vec<u8>,
    pub(crate) needs: Matching,
    pub(crate) fields: Vec<(Field, u128)>,
}

pub(crate) fn scenarios() -> Vec<Scenario> {
    let kinds = kinds();
    let mut all: Vec<_> = kinds.iter().flat_map(|kind| of_a_kind(kind, &kinds)).collect();
    all.extend(prefixes());
    all
}

/// Each field of a frame alone, whole and by its lowest bit, against every frame that is one bit off, and all others: those that differ in
/// the field, and in turns one in three of the rest.
pub(crate) fn of_a_kind(kind: &Kind, all: &[Kind]) -> Vec<Scenario> {
    let mut frames = vec![kind.frame.clone()];
    frames.extend(all.iter().map(|other| other.frame.clone()));
    frames.extend(one_bit_off(&kind.frame));
    frames.extend(cut_short(&kind.frame));
    let frames: Vec<_> =
        frames.into_iter().map(|frame| (extract(&frame, PortNumber(1), &Metadata::default()), frame)).collect();
    let scenario = |what: String, matching: Matching, is_due: &dyn Fn(usize, &Key) -> bool| {
        let due = frames.iter().enumerate().filter(|(place, (key, _))| is_due(*place, key));
        Scenario::new(format!("key {}: {what}", kind.name))
            .flow(matching.done(), [output(2)])
            .packets(1, due.map(|(_, (_, frame))| frame.clone()))
    };
    let mut scenarios = vec![scenario("nothing more".into(), kind.needs, &|_, _| true)];
    for (field, value) in &kind.fields {
        let turn = scenarios.len();
        let is_due =
            |place: usize, key: &Key| place == 0 || key.get(*field) != *value || (place + turn).is_multiple_of(3);
        scenarios.push(scenario(field.to_string(), kind.needs.is(*field, *value), &is_due));
        // The module knows no mask of the Ethernet type.
        if field.spec().width > 1 && *field != Field::EthType {
            let lowest = kind.needs.masked(*field, *value, 1u8);
            scenarios.push(scenario(format!("the lowest bit of {field}"), lowest, &is_due));
        }
    }
    scenarios
}

/// The frame with each of its first bits turned. The addresses of Ethernet have one turned each.
pub(crate) fn one_bit_off(frame: &[u8]) -> Vec<Vec<u8>> {
    let bits = (12 * 8..frame.len().min(90) * 8).chain([5, 47, 48, 95]);
    bits.map(|bit| {
        let mut frame = frame.to_vec();
        frame[bit / 8] ^= 0x80 >> (bit % 8);
        frame
    })
    .collect()
}

/// The frame at every length from an Ethernet header on. With a tag the host's stack wants six bytes more than that,
/// or the frame does not get as far as the module (`skb_vlan_untag` in `net/core/skbuff.c`).
pub(crate) fn cut_short(frame: &[u8]) -> Vec<Vec<u8>> {
    let shortest = if matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xa8]) { 20 } else { 14 };
    (shortest..frame.len()).map(|length| frame[..length].to_vec()).collect()
}

fn mac(bytes: [u8; 6]) -> u128 {
    bytes.iter().fold(0, |all, byte| all << 8 | u128::from(*byte))
}

fn kinds() -> Vec<Kind> {
    let kind = |name, frame, needs, fields: &[(Field, u128)]| Kind { name, frame, needs, fields: fields.to_vec() };
    let (ip4, ip6) = (Ipv4::default(), Ipv6::default());
    let ipv4_fields = [
        (Field::Ipv4Src, 0x0a00_0001),
        (Field::Ipv4Dst, 0x0a00_0002),
        (Field::Ipv4Tos, 0x28),
        (Field::Ipv4Ttl, 64),
        (Field::Ipv4Frag, 0),
    ];
    let ipv6_fields = [
        (Field::Ipv6Src, SOURCE_V6),
        (Field::Ipv6Dst, TARGET_V6),
        (Field::Ipv6Label, 0x12345),
        (Field::Ipv6Tclass, 0x28),
        (Field::Ipv6Hlimit, 64),
        (Field::Ipv6Frag, 0),
    ];
    let inner = ip4.frame(17, &udp(1000, 2000, b"inner"));
    vec![
        kind(
            "ethernet",
            ethernet(0x88b5, b"local experiment"),
            at(1),
            &[(Field::EthSrc, mac(SOURCE_MAC)), (Field::EthDst, mac(TARGET_MAC)), (Field::EthType, 0x88b5)],
        ),
        kind("802.2", ethernet(16, &[0x42, 0x42, 3, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), at(1), &[]),
        kind(
            "SNAP",
            ethernet(16, &[0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0xb5, 1, 2, 3, 4, 5, 6, 7, 8]),
            at(1),
            &[(Field::EthType, 0x88b5)],
        ),
        kind(
            "vlan",
            tagged(0x8100, 0x6123, &inner),
            at(1).tag(0x8100).eth_type(0x0800),
            &[(Field::VlanVid, 0x123), (Field::VlanPcp, 3)],
        ),
        kind(
            "vlan of 802.1ad",
            tagged(0x88a8, 0x6123, &inner),
            at(1).tag(0x88a8).eth_type(0x0800),
            &[(Field::VlanVid, 0x123)],
        ),
        kind(
            "two tags",
            tagged(0x88a8, 0x6123, &tagged(0x8100, 0xa456, &inner)),
            at(1).tag(0x88a8).inner_tag(0x8100).eth_type(0x0800),
            &[(Field::VlanVid, 0x123), (Field::CvlanVid, 0x456), (Field::CvlanPcp, 5)],
        ),
        kind("ipv4", ip4.frame(99, b"no protocol"), at(1).eth_type(0x0800), &[(Field::Ipv4Proto, 99)]),
        kind(
            "ipv4 options",
            Ipv4 { options: vec![1; 8], ..ip4.clone() }.frame(17, &udp(1000, 2000, b"")),
            at(1).ipv4(17),
            &[(Field::UdpDst, 2000)],
        ),
        kind(
            "first fragment",
            Ipv4 { fragment: 0x2000, ..ip4.clone() }.frame(17, &udp(1000, 2000, b"fragment")),
            at(1).ipv4(17),
            &[(Field::Ipv4Frag, 1), (Field::UdpDst, 2000)],
        ),
        kind(
            "later fragment",
            Ipv4 { fragment: 0x0010, ..ip4.clone() }.frame(17, &udp(1000, 2000, b"fragment")),
            at(1).ipv4(17),
            &[(Field::Ipv4Frag, 2)],
        ),
        kind(
            "tcp",
            ip4.frame(6, &tcp(1000, 2000, 0x012, b"tcp")),
            at(1).ipv4(6),
            &[&ipv4_fields[..], &[(Field::TcpSrc, 1000), (Field::TcpDst, 2000), (Field::TcpFlags, 0x012)]].concat(),
        ),
        kind(
            "udp",
            ip4.frame(17, &udp(1000, 2000, b"udp")),
            at(1).ipv4(17),
            &[(Field::UdpSrc, 1000), (Field::UdpDst, 2000)],
        ),
        kind(
            "sctp",
            ip4.frame(132, &sctp(1000, 2000, b"sctp")),
            at(1).ipv4(132),
            &[(Field::SctpSrc, 1000), (Field::SctpDst, 2000)],
        ),
        kind("icmp", ip4.frame(1, &icmp(8, 0, b"echo")), at(1).ipv4(1), &[(Field::IcmpType, 8), (Field::IcmpCode, 0)]),
        kind(
            "tcp over ipv6",
            ip6.frame(6, &tcp(1000, 2000, 0x012, b"tcp")),
            at(1).ipv6(6),
            &[&ipv6_fields[..], &[(Field::TcpSrc, 1000), (Field::TcpDst, 2000), (Field::TcpFlags, 0x012)]].concat(),
        ),
        kind(
            "udp over ipv6",
            ip6.frame(17, &udp(1000, 2000, b"udp")),
            at(1).ipv6(17),
            &[(Field::UdpSrc, 1000), (Field::UdpDst, 2000)],
        ),
        kind(
            "sctp over ipv6",
            ip6.frame(132, &sctp(1000, 2000, b"sctp")),
            at(1).ipv6(132),
            &[(Field::SctpSrc, 1000), (Field::SctpDst, 2000)],
        ),
        kind(
            "icmpv6",
            ip6.frame(58, &icmp(128, 0, b"echo")),
            at(1).ipv6(58),
            &[(Field::Icmpv6Type, 128), (Field::Icmpv6Code, 0)],
        ),
        kind(
            "solicitation",
            ip6.frame(58, &neighbour(135)),
            at(1).ipv6(58).is(Field::Icmpv6Type, 135u8).is(Field::Icmpv6Code, 0u8),
            &[(Field::NdTarget, TARGET_V6), (Field::NdSll, mac(SOURCE_MAC))],
        ),
        kind(
            "advertisement",
            ip6.frame(58, &neighbour(136)),
            at(1).ipv6(58).is(Field::Icmpv6Type, 136u8).is(Field::Icmpv6Code, 0u8),
            &[(Field::NdTarget, TARGET_V6), (Field::NdTll, mac(TARGET_MAC))],
        ),
        kind(
            "ipv6 hop-by-hop",
            Ipv6 { extensions: Some((0, vec![17, 0, 1, 4, 0, 0, 0, 0])), ..ip6.clone() }
                .frame(17, &udp(1000, 2000, b"")),
            at(1).ipv6(17),
            &[(Field::UdpDst, 2000)],
        ),
        kind(
            "ipv6 three extensions",
            Ipv6 {
                extensions: Some((0, vec![43, 0, 1, 4, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0])),
                ..ip6.clone()
            }
            .frame(6, &tcp(1000, 2000, 2, b"")),
            at(1).ipv6(6),
            &[(Field::TcpDst, 2000)],
        ),
        kind(
            "ipv6 first fragment",
            Ipv6 { extensions: Some((44, vec![17, 0, 0, 1, 0, 0, 0, 7])), ..ip6.clone() }
                .frame(17, &udp(1000, 2000, b"")),
            at(1).ipv6(17),
            &[(Field::Ipv6Frag, 1), (Field::UdpDst, 2000)],
        ),
        kind(
            "ipv6 later fragment",
            Ipv6 { extensions: Some((44, vec![17, 0, 0, 8, 0, 0, 0, 7])), ..ip6 }.frame(17, &udp(1000, 2000, b"")),
            at(1).eth_type(0x86dd),
            &[(Field::Ipv6Frag, 2)],
        ),
        kind(
            "arp",
            arp(0x0806, 1),
            at(1).eth_type(0x0806),
            &[
                (Field::ArpSip, 0x0a00_0001),
                (Field::ArpTip, 0x0a00_0002),
                (Field::ArpOp, 1),
                (Field::ArpSha, mac(SOURCE_MAC)),
                (Field::ArpTha, mac(TARGET_MAC)),
            ],
        ),
        kind("rarp", arp(0x8035, 3), at(1).eth_type(0x8035), &[(Field::ArpOp, 3)]),
        kind(
            "mpls",
            labelled(&[(100, 5, 63)]),
            at(1).eth_type(0x8847),
            &[(Field::MplsLabel, 100), (Field::MplsTc, 5), (Field::MplsTtl, 63), (Field::MplsBos, 1)],
        ),
        kind(
            "three labels",
            labelled(&[(100, 5, 63), (200, 2, 62), (300, 1, 61)]),
            at(1).eth_type(0x8847).is(Field::MplsBos, 0u8).is(Field::Mpls2Present, 1u8).is(Field::Mpls3Present, 1u8),
            &[
                (Field::MplsLabel, 100),
                (Field::Mpls2Label, 200),
                (Field::Mpls2Tc, 2),
                (Field::Mpls2Ttl, 62),
                (Field::Mpls2Bos, 0),
                (Field::Mpls3Label, 300),
                (Field::Mpls3Tc, 1),
                (Field::Mpls3Ttl, 61),
                (Field::Mpls3Bos, 1),
            ],
        ),
        kind(
            "nsh",
            service(0x0001_0203, 4, [1, 2, 3, 4]),
            at(1).eth_type(0x894f),
            &[
                (Field::NshFlags, 0),
                (Field::NshTtl, 63),
                (Field::NshMdType, 1),
                (Field::NshNextProto, 3),
                (Field::NshPathId, 0x0001_0203),
                (Field::NshServiceIndex, 4),
                (Field::NshContext1, 1),
                (Field::NshContext2, 2),
                (Field::NshContext3, 3),
                (Field::NshContext4, 4),
            ],
        ),
    ]
}

/// Masks of addresses at every length.
fn prefixes() -> Vec<Scenario> {
    let frame = |target: u32| Ipv4 { target: target.to_be_bytes(), ..Ipv4::default() }.frame(17, &udp(1000, 2000, b""));
    (0..=32u32)
        .map(|length| {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            let network = 0x0a01_0203 & mask;
            let inside = frame(network | !mask & 0x5555_5555);
            let outside = frame(network ^ 1u32.checked_shl(32 - length).unwrap_or(0));
            Scenario::new(format!("key ipv4.dst/{length}"))
                .flow(at(1).eth_type(0x0800).masked(Field::Ipv4Dst, network, mask).done(), [output(2)])
                .packets(1, [inside, outside])
        })
        .collect()
}
