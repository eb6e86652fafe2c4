//! The flow key of a frame, header by header.

use proptest::prelude::*;
use sluice_flow::chain::ChainId;
use sluice_flow::field::{FIELDS, Field};
use sluice_flow::key::Key;
use sluice_flow::port::PortNumber;
use sluice_offload_soft::packet::{
    ETH_TYPE_NONE, Metadata, TunnelAddresses, TunnelMetadata, TunnelOptions, extract, parse,
};

use crate::frames::{DST_V6, Ip4, SRC_V6, arp, eth, icmp, ipv6, sctp, tagged, tcp, udp, v6_frame};

const PORT: PortNumber = PortNumber(9);
/// What every frame of `frames::eth` has.
const COMMON: [(Field, u128); 3] =
    [(Field::InPort, 9), (Field::EthSrc, 0x0200_0000_0001), (Field::EthDst, 0x0200_0000_0002)];

fn key_of(frame: &[u8]) -> Key {
    extract(frame, PORT, &Metadata::default())
}

/// The key has these fields and no other. Fields that share a place are meant by any of their names.
fn expect(frame: &[u8], fields: &[(Field, u128)]) {
    let mut wanted = Key::ZERO;
    COMMON.iter().chain(fields).for_each(|(field, value)| wanted.set(*field, *value));
    assert_eq!(key_of(frame), wanted);
}

fn v4_fields(protocol: u128, fragment: u128) -> Vec<(Field, u128)> {
    vec![
        (Field::EthType, 0x0800),
        (Field::Ipv4Src, 0x0a00_0001),
        (Field::Ipv4Dst, 0x0a00_0002),
        (Field::Ipv4Proto, protocol),
        (Field::Ipv4Ttl, 64),
        (Field::Ipv4Frag, fragment),
    ]
}

fn v6_fields(protocol: u128, fragment: u128) -> Vec<(Field, u128)> {
    vec![
        (Field::EthType, 0x86dd),
        (Field::Ipv6Src, SRC_V6),
        (Field::Ipv6Dst, DST_V6),
        (Field::Ipv6Label, 0x1_2345),
        (Field::Ipv6Tclass, 0xab),
        (Field::Ipv6Hlimit, 63),
        (Field::Ipv6Proto, protocol),
        (Field::Ipv6Frag, fragment),
    ]
}

fn with(mut fields: Vec<(Field, u128)>, more: &[(Field, u128)]) -> Vec<(Field, u128)> {
    fields.extend(more);
    fields
}

#[test]
fn a_frame_of_another_type_has_only_its_ethernet_header() {
    expect(&eth(0x88cc, &[1, 2, 3]), &[(Field::EthType, 0x88cc)]);
}

#[test]
fn a_frame_too_short_for_a_header_has_only_its_metadata() {
    let mut wanted = Key::ZERO;
    wanted.set(Field::InPort, 9);
    for length in 0..14 {
        assert_eq!(key_of(&eth(0x0800, &[])[..length]), wanted);
    }
}

#[test]
fn a_length_is_no_type_unless_snap_gives_one() {
    let none = u128::from(ETH_TYPE_NONE);
    expect(&eth(3, &[0x42, 0x42, 3]), &[(Field::EthType, none)]);
    expect(&eth(8, &[0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0xcc]), &[(Field::EthType, 0x88cc)]);
    expect(&eth(8, &[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x88, 0xcc]), &[(Field::EthType, none)]);
    expect(&eth(8, &[0xaa, 0xaa, 3, 0, 0, 0, 0x05, 0xff]), &[(Field::EthType, none)]);
    expect(&eth(7, &[0xaa, 0xaa, 3, 0, 0, 0, 0x88]), &[(Field::EthType, none)]);
    let packet = Ip4::default().packet(99, &[]);
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x00][..], &packet].concat();
    expect(&eth(28, &snap), &v4_fields(99, 0));
}

#[test]
fn up_to_two_tags_are_taken_and_a_third_is_the_type() {
    let plain = eth(0x88cc, &[]);
    let inner = tagged(0x8100, 0x2003, &plain);
    let outer = [
        (Field::VlanPresent, 1),
        (Field::VlanTpid, 0x8100),
        (Field::VlanVid, 3),
        (Field::VlanPcp, 1),
        (Field::VlanCfi, 1),
    ];
    let counted = |eth_type, tags| vec![(Field::EthType, eth_type), (Field::NumOfVlans, tags)];
    expect(&inner, &with(counted(0x88cc, 1), &outer));

    let both = [
        (Field::VlanPresent, 1),
        (Field::VlanTpid, 0x88a8),
        (Field::VlanVid, 0xfff),
        (Field::VlanPcp, 7),
        (Field::VlanCfi, 1),
        (Field::CvlanPresent, 1),
        (Field::CvlanTpid, 0x8100),
        (Field::CvlanVid, 3),
        (Field::CvlanPcp, 1),
        (Field::CvlanCfi, 1),
    ];
    let double = tagged(0x88a8, 0xefff, &inner);
    expect(&double, &with(counted(0x88cc, 2), &both));

    let triple = tagged(0x88a8, 0xefff, &tagged(0x8100, 0x2003, &tagged(0x8100, 5, &plain)));
    expect(&triple, &with(counted(0x8100, 3), &both));
    expect(&triple[..25], &with(counted(0x8100, 2), &both));
    let most = (0..20).fold(double, |frame, _| tagged(0x8100, 0x2003, &frame));
    assert_eq!(key_of(&most).get(Field::NumOfVlans), 16, "as many as Linux counts");
}

#[test]
fn a_session_of_pppoe_is_known_if_version_type_code_and_protocol_are_right() {
    let header = [0x11, 0, 0x12, 0x34, 0, 4, 0xc0, 0x21, 1, 1];
    let only_type = [(Field::EthType, 0x8864)];
    let session = [(Field::PppoePresent, 1), (Field::PppoeSession, 0x1234), (Field::PppProtocol, 0xc021)];
    expect(&eth(0x8864, &header), &with(only_type.to_vec(), &session));
    expect(&eth(0x8864, &header)[..21], &only_type);
    for (byte, wrong) in [(0, 0x21), (0, 0x12), (1, 9), (6, 0xc1), (7, 0x20)] {
        let mut other = header;
        other[byte] = wrong;
        expect(&eth(0x8864, &other), &only_type);
    }
}

#[test]
fn a_message_of_cfm_has_a_level_and_an_operation_code() {
    let fields = [(Field::EthType, 0x8902), (Field::CfmLevel, 5), (Field::CfmOpcode, 1)];
    expect(&eth(0x8902, &[0xa3, 1, 4, 70]), &fields);
    expect(&eth(0x8902, &[0xa3]), &[(Field::EthType, 0x8902)]);
}

#[test]
fn sessions_of_l2tp_and_security_associations_are_told_by_their_numbers() {
    let number = [0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 1];
    let authentication = [&[6, 4, 0, 0][..], &number, &[0; 12]].concat();
    for (protocol, payload, length, field) in [
        (115, &number[..], 4, Field::L2tpv3Session),
        (50, &number, 8, Field::IpsecSpi),
        (51, &authentication, 12, Field::IpsecSpi),
    ] {
        let said = [(field, 0xcafe_babe)];
        let v4 = Ip4::default().frame(protocol, payload);
        expect(&v4, &with(v4_fields(protocol.into(), 0), &said));
        expect(&v4[..34 + length], &with(v4_fields(protocol.into(), 0), &said));
        expect(&v4[..33 + length], &v4_fields(protocol.into(), 0));
        let first = Ip4 { fragment: 0x2000, ..Ip4::default() }.frame(protocol, payload);
        expect(&first, &with(v4_fields(protocol.into(), 1), &said));
        let later = Ip4 { fragment: 0x0010, ..Ip4::default() }.frame(protocol, payload);
        expect(&later, &v4_fields(protocol.into(), 2));
        if protocol != 51 {
            expect(&eth(0x86dd, &ipv6(protocol, payload)), &with(v6_fields(protocol.into(), 0), &said));
        }
    }
}

#[test]
fn a_tag_of_zero_is_a_tag_and_a_cut_one_is_a_type() {
    let zero = [
        (Field::VlanPresent, 1),
        (Field::VlanTpid, 0x8100),
        (Field::VlanCfi, 1),
        (Field::NumOfVlans, 1),
        (Field::EthType, 0x88cc),
    ];
    expect(&tagged(0x8100, 0, &eth(0x88cc, &[])), &zero);
    expect(&tagged(0x8100, 0, &eth(0x88cc, &[]))[..17], &[(Field::EthType, 0x8100)]);
}

#[test]
fn arp_has_addresses_and_the_lower_byte_of_the_operation() {
    let addresses = [
        (Field::EthType, 0x0806),
        (Field::ArpSip, 0x0a00_0001),
        (Field::ArpTip, 0x0a00_0002),
        (Field::ArpSha, 0x0200_0000_0001),
    ];
    expect(&arp(1), &with(addresses.to_vec(), &[(Field::ArpOp, 1)]));
    expect(&arp(0x100), &addresses);
    expect(&arp(1)[..41], &[(Field::EthType, 0x0806)]);
    let mut for_token_ring = arp(1);
    for_token_ring[15] = 6;
    expect(&for_token_ring, &[(Field::EthType, 0x0806)]);
}

#[test]
fn ipv4_is_read_with_its_options() {
    let ip = Ip4 { tos: 0xb8, ttl: 1, options: vec![1; 8], ..Ip4::default() };
    let fields = [(Field::Ipv4Tos, 0xb8), (Field::Ipv4Ttl, 1), (Field::UdpSrc, 5), (Field::UdpDst, 6)];
    expect(&ip.frame(17, &udp(5, 6, b"x")), &with(v4_fields(17, 0), &fields));
}

#[test]
fn a_malformed_ipv4_header_leaves_nothing() {
    let frame = Ip4::default().frame(17, &udp(5, 6, b"x"));
    let only_type = [(Field::EthType, 0x0800)];
    expect(&frame[..33], &only_type);
    let mut short = frame.clone();
    short[14] = 0x44;
    expect(&short, &only_type);
    let mut long = frame;
    long[14] = 0x4f;
    expect(&long, &only_type);
}

#[test]
fn ipv4_fragments_are_first_or_later() {
    let first = Ip4 { fragment: 0x2000, ..Ip4::default() };
    expect(&first.frame(17, &udp(5, 6, b"x")), &with(v4_fields(17, 1), &[(Field::UdpSrc, 5), (Field::UdpDst, 6)]));
    for fragment in [0x2001, 0x0001] {
        let later = Ip4 { fragment, ..Ip4::default() };
        expect(&later.frame(17, &udp(5, 6, b"x")), &v4_fields(17, 2));
    }
    let unfragmented = Ip4 { fragment: 0x4000, ..Ip4::default() };
    expect(&unfragmented.frame(99, &[]), &v4_fields(99, 0));
}

#[test]
fn tcp_has_twelve_bits_of_flags() {
    let tcp = tcp(80, 1024, 0xfff, b"data");
    let ports = [(Field::TcpSrc, 80), (Field::TcpDst, 1024), (Field::TcpFlags, 0xfff)];
    let frame = Ip4::default().frame(6, &tcp);
    expect(&frame, &with(v4_fields(6, 0), &ports));
    expect(&v6_frame(6, &tcp), &with(v6_fields(6, 0), &ports));
    // Cut off, and with a length below and beyond what is there.
    expect(&frame[..53], &v4_fields(6, 0));
    for length in [0x40, 0xf0] {
        let mut wrong = frame.clone();
        wrong[46] = length;
        expect(&wrong, &v4_fields(6, 0));
    }
}

#[test]
fn udp_sctp_and_icmp_share_the_places_of_the_ports() {
    let ports = [(Field::UdpSrc, 5), (Field::UdpDst, 6)];
    let udp = Ip4::default().frame(17, &udp(5, 6, &[]));
    expect(&udp, &with(v4_fields(17, 0), &ports));
    expect(&udp[..41], &v4_fields(17, 0));
    let sctp = Ip4::default().frame(132, &sctp(5, 6, &[]));
    expect(&sctp, &with(v4_fields(132, 0), &ports));
    expect(&sctp[..45], &v4_fields(132, 0));
    let icmp = Ip4::default().frame(1, &icmp(8, 3, &[0; 4]));
    expect(&icmp, &with(v4_fields(1, 0), &[(Field::IcmpType, 8), (Field::IcmpCode, 3)]));
    expect(&icmp[..41], &v4_fields(1, 0));
}

#[test]
fn icmp_of_the_other_family_is_not_read() {
    expect(&Ip4::default().frame(58, &icmp(128, 0, &[0; 4])), &v4_fields(58, 0));
    expect(&v6_frame(1, &icmp(8, 1, &[0; 4])), &v6_fields(1, 0));
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let udp = udp(5, 6, b"x");
    let ports = [(Field::UdpSrc, 5), (Field::UdpDst, 6)];
    // Hop-by-hop of 8, routing of 24, destination options of 8, authentication of 16 bytes.
    let mut chain = vec![43, 0, 0, 0, 0, 0, 0, 0];
    chain.extend([60, 2]);
    chain.extend([0; 22]);
    chain.extend([51, 0, 0, 0, 0, 0, 0, 0]);
    chain.extend([17, 2]);
    chain.extend([0; 14]);
    chain.extend(&udp);
    expect(&v6_frame_unfilled(0, &chain), &with(v6_fields(17, 0), &ports));
    expect(&v6_frame_unfilled(59, &udp), &v6_fields(59, 0));
    // Cut within the chain: the kernel says that there is no next header.
    expect(&v6_frame_unfilled(0, &chain[..15]), &v6_fields(59, 0));
    // A fragment header that is announced, but not there, makes no fragment.
    expect(&v6_frame_unfilled(0, &[44, 9, 0, 0, 0, 0, 0, 0]), &v6_fields(59, 0));
    expect(&v6_frame_unfilled(0, &chain)[..53], &[(Field::EthType, 0x86dd)]);
}

#[test]
fn nothing_follows_an_ipv6_extension_header_that_ends_behind_the_packet() {
    let sixteen = [17, 1, 1, 4, 0, 0, 0, 0];
    for header in [0, 60, 43] {
        for length in 0..=8 {
            expect(&v6_frame_unfilled(header, &sixteen[..length]), &v6_fields(59, 0));
        }
    }
    expect(&v6_frame_unfilled(51, &sixteen), &v6_fields(59, 0));
    expect(&v6_frame_unfilled(44, &[17, 0, 0, 1, 0, 0, 0]), &v6_fields(59, 1));
    expect(&v6_frame_unfilled(44, &[17]), &v6_fields(59, 0));
}

fn v6_frame_unfilled(next_header: u8, payload: &[u8]) -> Vec<u8> {
    eth(0x86dd, &ipv6(next_header, payload))
}

#[test]
fn ipv6_fragments_are_first_or_later() {
    let fragment = |offset_and_more: u16| {
        let [high, low] = offset_and_more.to_be_bytes();
        v6_frame_unfilled(44, &[&[17, 0, high, low, 0, 0, 0, 1][..], &udp(5, 6, b"x")].concat())
    };
    let ports = [(Field::UdpSrc, 5), (Field::UdpDst, 6)];
    expect(&fragment(0x0001), &with(v6_fields(17, 1), &ports));
    // A packet that is one fragment is still one: the kernel says `first`.
    expect(&fragment(0x0000), &with(v6_fields(17, 1), &ports));
    expect(&fragment(0x0009), &v6_fields(44, 2));
    expect(&fragment(0x0008), &v6_fields(44, 2));
}

/// A neighbour solicitation for ff::1 with options.
fn solicitation(options: &[u8]) -> Vec<u8> {
    let mut rest = vec![0; 4];
    rest.extend((0xff_u128 << 112 | 1).to_be_bytes());
    rest.extend(options);
    v6_frame(58, &icmp(135, 0, &rest))
}

#[test]
fn neighbour_messages_have_a_target_and_link_layer_addresses() {
    let source = [1, 1, 2, 0, 0, 0, 0, 9];
    let target = [2, 1, 2, 0, 0, 0, 0, 8];
    let nonce = [14, 1, 1, 2, 3, 4, 5, 6];
    let head = with(v6_fields(58, 0), &[(Field::Icmpv6Type, 135)]);
    let asked = with(head.clone(), &[(Field::NdTarget, 0xff << 112 | 1)]);
    let sll = (Field::NdSll, 0x0200_0000_0009);
    let tll = (Field::NdTll, 0x0200_0000_0008);
    expect(&solicitation(&[]), &asked);
    expect(
        &solicitation(&[source, nonce, target].concat()),
        &with(asked.clone(), &[sll, tll, (Field::NdOptionsType, 1)]),
    );
    // The first option says of which kind the options are, as in OVS's userspace.
    expect(&solicitation(&[target, source].concat()), &with(asked.clone(), &[sll, tll, (Field::NdOptionsType, 2)]));
    // Twice the same option makes the message invalid; a malformed one ends it.
    let sll_first = (Field::NdOptionsType, 1);
    expect(&solicitation(&[source, target, source].concat()), &with(head, &[sll_first]));
    let endless = [source, [14, 0, 0, 0, 0, 0, 0, 0], target].concat();
    expect(&solicitation(&endless), &with(asked.clone(), &[sll, sll_first]));
    let too_long = [source, [14, 9, 0, 0, 0, 0, 0, 0], target].concat();
    expect(&solicitation(&too_long), &with(asked, &[sll, sll_first]));
}

#[test]
fn an_echo_request_is_no_neighbour_message() {
    let echo = v6_frame(58, &icmp(128, 0, &[7; 28]));
    expect(&echo, &with(v6_fields(58, 0), &[(Field::Icmpv6Type, 128)]));
}

#[test]
fn metadata_is_in_the_key() {
    let tunnel = TunnelMetadata {
        id: 0x1_0000_0005,
        addresses: TunnelAddresses::V4 { source: 1, destination: 2 },
        tos: 3,
        ttl: 4,
        source_port: 5,
        destination_port: 6,
        flags: 7,
        options: TunnelOptions::None,
    };
    let metadata = Metadata { chain: ChainId(8), mark: 9, priority: 10, tunnel: Some(tunnel), ..Metadata::default() };
    let key = extract(&[], PORT, &metadata);
    let fields = [
        (Field::InPort, 9),
        (Field::RecircId, 8),
        (Field::SkbMark, 9),
        (Field::SkbPriority, 10),
        (Field::TunnelPresent, 1),
        (Field::TunnelId, 0x1_0000_0005),
        (Field::TunnelIpv4Src, 1),
        (Field::TunnelIpv4Dst, 2),
        (Field::TunnelTos, 3),
        (Field::TunnelTtl, 4),
        (Field::TunnelTpSrc, 5),
        (Field::TunnelTpDst, 6),
        (Field::TunnelFlags, 7),
    ];
    for spec in FIELDS {
        let wanted = fields.iter().find(|(field, _)| *field == spec.field).map_or(0, |(_, value)| *value);
        assert_eq!(key.get(spec.field), wanted, "{}", spec.field);
    }
}

fn label(label: u32, tc: u32, bottom: bool, ttl: u32) -> [u8; 4] {
    (label << 12 | tc << 9 | u32::from(bottom) << 8 | ttl).to_be_bytes()
}

#[test]
fn the_first_three_entries_of_a_label_stack_are_known_with_their_presence() {
    let one = [(Field::MplsPresent, 1), (Field::MplsLabel, 16), (Field::MplsTc, 5), (Field::MplsTtl, 64)];
    let entry = label(16, 5, false, 64);
    let bottom = label(0xf_ffff, 7, true, 255);
    let single = with(vec![(Field::EthType, 0x8847), (Field::MplsBos, 1)], &one);
    expect(&eth(0x8847, &label(16, 5, true, 64)), &single);
    let second = [
        (Field::Mpls2Present, 1),
        (Field::Mpls2Label, 0xf_ffff),
        (Field::Mpls2Tc, 7),
        (Field::Mpls2Ttl, 255),
        (Field::Mpls2Bos, 1),
    ];
    expect(&eth(0x8848, &[entry, bottom].concat()), &[&one[..], &second, &[(Field::EthType, 0x8848)]].concat());
    let deep = eth(0x8847, &[entry, entry, entry, entry, bottom].concat());
    let again = |fields: [Field; 4]| [(fields[0], 1), (fields[1], 16), (fields[2], 5), (fields[3], 64)];
    let second = again([Field::Mpls2Present, Field::Mpls2Label, Field::Mpls2Tc, Field::Mpls2Ttl]);
    let third = again([Field::Mpls3Present, Field::Mpls3Label, Field::Mpls3Tc, Field::Mpls3Ttl]);
    expect(&deep, &[&one[..], &second, &third, &[(Field::EthType, 0x8847)]].concat());
    // A stack that breaks off has no entry that could be matched, as in the kernel.
    expect(&eth(0x8847, &[entry, entry].concat()), &[(Field::EthType, 0x8847)]);
    expect(&eth(0x8847, &entry[..3]), &[(Field::EthType, 0x8847)]);
}

#[test]
fn a_network_service_header_is_known_with_its_contexts() {
    let base = [0x2f, 0xc6, 1, 3, 0x12, 0x34, 0x56, 9];
    let contexts = [1u32, 2, 3, 0xffff_ffff].map(u32::to_be_bytes).concat();
    let fields = vec![
        (Field::EthType, 0x894f),
        (Field::NshFlags, 2),
        (Field::NshTtl, 63),
        (Field::NshMdType, 1),
        (Field::NshNextProto, 3),
        (Field::NshPathId, 0x12_3456),
        (Field::NshServiceIndex, 9),
    ];
    let context = [Field::NshContext1, Field::NshContext2, Field::NshContext3, Field::NshContext4];
    let values: Vec<_> = context.into_iter().zip([1, 2, 3, 0xffff_ffff]).collect();
    expect(&eth(0x894f, &[&base[..], &contexts, &[7; 9]].concat()), &with(fields.clone(), &values));
    // Metadata of type 2 is not in the key.
    let mut second = fields;
    second[3] = (Field::NshMdType, 2);
    expect(&eth(0x894f, &[&[0x2f, 0xc3, 2, 3, 0x12, 0x34, 0x56, 9][..], &[1; 4]].concat()), &second);
}

#[test]
fn a_packet_without_an_ethernet_header_has_a_type() {
    let metadata = Metadata { layer3: Some(0x0800), hash: 77, ..Metadata::default() };
    let packet = Ip4::default().packet(17, &udp(5, 6, b"x"));
    let key = extract(&packet, PORT, &metadata);
    let mut wanted = Key::ZERO;
    wanted.set(Field::InPort, 9);
    wanted.set(Field::DpHash, 77);
    wanted.set(Field::PacketTypeNs, 1);
    wanted.set(Field::PacketTypeId, 0x0800);
    v4_fields(17, 0).into_iter().chain([(Field::UdpSrc, 5), (Field::UdpDst, 6)]).for_each(|(f, v)| wanted.set(f, v));
    assert_eq!(key, wanted);
}

#[test]
fn what_no_key_can_be_made_of_is_malformed() {
    let malformed = |frame: &[u8], layer3| {
        let metadata = Metadata { layer3, ..Metadata::default() };
        parse(frame, PORT, &metadata).layout.is_malformed
    };
    let nsh = |length: u8, kind: u8, version: u8, bytes: usize| {
        let head = [version << 6, 0x40 | length, kind, 1, 0, 0, 0, 0];
        head.into_iter().chain([0; 64]).take(bytes).collect::<Vec<_>>()
    };
    assert!(!malformed(&nsh(6, 1, 0, 24), Some(0x894f)));
    assert!(malformed(&nsh(6, 1, 1, 24), Some(0x894f)), "another version");
    assert!(malformed(&nsh(6, 1, 0, 23), Some(0x894f)), "cut off");
    assert!(malformed(&nsh(5, 1, 0, 24), Some(0x894f)), "type 1 has one length");
    assert!(malformed(&nsh(6, 3, 0, 24), Some(0x894f)), "another type");
    assert!(malformed(&eth(0x894f, &[0; 7]), None), "less than the base header");
    assert!(malformed(&[0; 40], Some(0x8100)), "a tag without a frame");
    assert!(malformed(&[0; 13], None));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        key_of(&bytes);
    }

    #[test]
    fn mutated_frames_never_panic(
        pick in 0usize..6, at in 0usize..120, value: u8, more in 0usize..120, other: u8, length in 0usize..160,
    ) {
        let frames = [
            tagged(0x88a8, 1, &tagged(0x8100, 2, &Ip4::default().frame(6, &tcp(1, 2, 3, b"abc")))),
            solicitation(&[[1, 1, 0, 0, 0, 0, 0, 9], [2, 1, 0, 0, 0, 0, 0, 8]].concat()),
            v6_frame(0, &[&[44, 0, 0, 0, 0, 0, 0, 0][..], &[17, 0, 0, 1, 0, 0, 0, 0], &udp(1, 2, b"x")].concat()),
            arp(1),
            Ip4::default().frame(132, &sctp(1, 2, &[0; 16])),
            eth(8, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0x45]),
        ];
        let mut frame = frames[pick].clone();
        for (at, value) in [(at, value), (more, other)] {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(length);
        key_of(&frame);
    }
}
