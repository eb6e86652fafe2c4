//! Each action on real bytes. Checksums are verified by computing them in full.

use proptest::prelude::*;
use sluice_flow::action::{Action, VlanTag};
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;

use crate::frames::{DST_V6, Ip4, SRC_V6, arp, eth, fill, icmp, ipv6, sctp, tagged, tcp, udp, v6_frame, verify};
use crate::harness::{Device, flow, is_ipv4, is_ipv6, output, recirc, set, set_masked, v4, v6};

fn anything(_: &mut Match) {}

fn vlan(vid: u16, pcp: u8) -> Action {
    Action::PushVlan(VlanTag { tpid: 0x8100, vid, pcp, cfi: true })
}

/// The only bytes that differ are in these ranges.
fn differs_only(before: &[u8], after: &[u8], ranges: &[std::ops::Range<usize>]) {
    assert_eq!(before.len(), after.len());
    for (at, (old, new)) in before.iter().zip(after).enumerate() {
        assert!(old == new || ranges.iter().any(|range| range.contains(&at)), "byte {at} changed");
    }
}

#[test]
fn output_sends_the_packet_as_it_is_at_that_point() {
    let frame = Ip4::default().frame(17, &udp(5, 6, b"x"));
    let mut device = Device::new();
    let actions = vec![output(2), vlan(7, 1), output(3), Action::PopVlan, output(1)];
    device.add(flow(anything, actions)).unwrap();
    let verdict = device.inject(1, &frame);
    let sent = vec![
        (PortNumber(2), frame.clone()),
        (PortNumber(3), tagged(0x8100, 0x2007, &frame)),
        // Back where it came from: the datapath sends it.
        (PortNumber(1), frame),
    ];
    assert_eq!(verdict.sent, sent);
}

#[test]
fn a_rule_without_actions_drops() {
    let mut device = Device::new();
    device.add(flow(anything, vec![])).unwrap();
    let verdict = device.inject(1, &eth(0x88cc, &[]));
    assert_eq!((verdict.hits.len(), verdict.sent.len(), verdict.missed), (1, 0, None));
}

#[test]
fn a_cut_is_for_the_next_output_only() {
    let frame = eth(0x88cc, &[9; 86]);
    let mut device = Device::new();
    let actions =
        vec![Action::Trunc(60), output(2), output(3), Action::Trunc(14), output(4), Action::Trunc(500), output(2)];
    device.add(flow(anything, actions)).unwrap();
    let lengths: Vec<_> = device.inject(1, &frame).sent.iter().map(|(_, sent)| sent.len()).collect();
    assert_eq!(lengths, [60, 100, 14, 100]);
}

#[test]
fn a_cut_is_of_what_leaves_without_its_outermost_tag() {
    for actions in [vec![Action::Trunc(60), vlan(7, 0)], vec![vlan(7, 0), Action::Trunc(60), vlan(8, 0)]] {
        assert_eq!(Device::rewrite(anything, actions, &eth(0x88cc, &[9; 86])).len(), 64);
    }
}

#[test]
fn tags_are_pushed_outside_and_popped_from_outside() {
    let frame = Ip4::default().frame(6, &tcp(1, 2, 0x10, b"x"));
    let outer = Action::PushVlan(VlanTag { tpid: 0x88a8, vid: 0xfff, pcp: 7, cfi: true });
    let sent = Device::rewrite(anything, vec![vlan(5, 0), outer.clone()], &frame);
    assert_eq!(sent, tagged(0x88a8, 0xefff, &tagged(0x8100, 5, &frame)));
    let sent = Device::rewrite(anything, vec![vlan(5, 0), outer, Action::PopVlan], &frame);
    assert_eq!(sent, tagged(0x8100, 5, &frame));
    let has_two = |full: &mut Match| full.set_exact(Field::CvlanPresent, 1);
    let both = tagged(0x88a8, 1, &tagged(0x8100, 2, &frame));
    assert_eq!(Device::rewrite(has_two, vec![Action::PopVlan, Action::PopVlan], &both), frame);
}

#[test]
fn headers_are_found_behind_tags_that_came_and_went() {
    let inner = Ip4::default().frame(17, &udp(5, 6, b"payload"));
    let frame = tagged(0x8100, 2, &inner);
    let tagged_ip = |full: &mut Match| {
        is_ipv4(full);
        full.set_exact(Field::VlanPresent, 1);
    };
    let ttl = || set(&[(Field::Ipv4Ttl, 9)]);
    let popped = Device::rewrite(tagged_ip, vec![Action::PopVlan, ttl()], &frame);
    verify(&popped);
    assert_eq!(popped[22], 9);
    // Three tags are more than the parser reads, but the header is still known.
    let pushed = Device::rewrite(tagged_ip, vec![vlan(3, 0), vlan(4, 0), ttl()], &frame);
    verify(&pushed);
    assert_eq!(pushed[34], 9);
}

#[test]
fn ethernet_addresses_are_set_under_a_mask() {
    let frame = eth(0x88cc, &[1, 2]);
    let sent = Device::rewrite(anything, vec![set(&[(Field::EthSrc, 0x0a0b_0c0d_0e0f)])], &frame);
    assert_eq!(sent[6..12], [0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f]);
    differs_only(&frame, &sent, &[0..0, 6..12]);
    let masked = Action::Set(set_masked(&[(Field::EthDst, 0x0000_0000_ab00, 0x0000_0000_ff00)]));
    let sent = Device::rewrite(anything, vec![masked], &frame);
    assert_eq!(sent[..6], [2, 0, 0, 0, 0xab, 2]);
}

#[test]
fn ipv4_fields_are_set_and_all_checksums_follow() {
    for (protocol, payload) in [(6, tcp(1, 2, 0x18, b"odd")), (17, udp(3, 4, b"even")), (1, icmp(8, 0, &[1; 9]))] {
        let ip = Ip4 { options: vec![1; 4], ..Ip4::default() };
        let frame = ip.frame(protocol, &payload);
        let fields = [
            (Field::Ipv4Src, 0xc0a8_0101),
            (Field::Ipv4Dst, 0xc0a8_0202),
            (Field::Ipv4Tos, 0x2e),
            (Field::Ipv4Ttl, 33),
        ];
        let sent = Device::rewrite(is_ipv4, vec![set(&fields)], &frame);
        verify(&sent);
        assert_eq!(sent[15], 0x2e);
        assert_eq!(sent[22], 33);
        assert_eq!(sent[26..34], [192, 168, 1, 1, 192, 168, 2, 2]);
    }
}

#[test]
fn a_udp_checksum_that_is_not_there_stays_so() {
    let mut frame = Ip4::default().frame(17, &udp(5, 6, b"x"));
    frame[40..42].fill(0);
    let actions = vec![set(&[(Field::Ipv4Src, 1)]), set(&[(Field::UdpDst, 99)])];
    let sent = Device::rewrite(v4(17), actions, &frame);
    assert_eq!(sent[40..42], [0, 0]);
    assert_eq!(sent[36..38], [0, 99]);
    verify(&sent);
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut frame = Ip4::default().frame(6, &tcp(1, 2, 0x18, b"data"));
    frame[51] ^= 0x55;
    let there = set(&[(Field::Ipv4Src, 0xc0a8_0101), (Field::Ipv4Ttl, 1)]);
    let back = set(&[(Field::Ipv4Src, 0x0a00_0001), (Field::Ipv4Ttl, 64)]);
    assert_eq!(Device::rewrite(is_ipv4, vec![there, back], &frame), frame);
}

#[test]
fn the_first_fragment_carries_the_checksum_of_the_whole() {
    // The whole packet is rewritten by hand, cut, and compared with its rewritten fragments.
    let whole =
        |source: [u8; 4], port: u16| Ip4 { source, ..Ip4::default() }.frame(17, &udp(port, 6, b"0123456789abcdef"));
    let fragments = |source: [u8; 4], port: u16| {
        let payload = whole(source, port)[34..].to_vec();
        let cut = |fragment, part: &[u8]| fill_ip(Ip4 { source, fragment, ..Ip4::default() }.packet(17, part));
        [cut(0x2000, &payload[..16]), cut(0x0002, &payload[16..])]
    };
    let address = || set(&[(Field::Ipv4Src, 0x0b00_0001)]);
    let [first, later] = fragments([10, 0, 0, 1], 5);
    let [first_after, later_after] = fragments([11, 0, 0, 1], 77);
    assert_eq!(Device::rewrite(v4(17), vec![address(), set(&[(Field::UdpSrc, 77)])], &first), first_after);
    assert_eq!(Device::rewrite(v4(17), vec![address()], &later), later_after);
}

#[test]
fn a_later_fragment_is_rewritten_where_its_ports_would_be() {
    // The kernel does not look whether there are ports (`set_tcp` in actions.c); flows of OVS match on frag instead.
    let whole = tcp(1, 2, 0x18, b"0123456789abcdef");
    let later = fill(eth(0x0800, &Ip4 { fragment: 0x0002, ..Ip4::default() }.packet(6, &whole)));
    let sent = Device::rewrite(v4(6), vec![set(&[(Field::TcpDst, 443)])], &later);
    assert_eq!(sent[36..38], [1, 187]);
    differs_only(&later, &sent, &[36..38, 50..52]);
    // In IPv6 the protocol of a later fragment is that of the fragment header, so that no such flow takes it.
    let fragment = [&[6, 0, 0, 8, 0, 0, 0, 1][..], &whole].concat();
    let mut device = Device::new();
    device.add(flow(v6(6), vec![set(&[(Field::TcpDst, 443)]), output(2)])).unwrap();
    assert_eq!(device.inject(1, &v6_frame(44, &fragment)).missed, Some(ChainId(0)));
}

fn fill_ip(packet: Vec<u8>) -> Vec<u8> {
    fill(eth(0x0800, &packet))
}

#[test]
fn ipv6_fields_are_set_and_transport_checksums_follow() {
    for (protocol, payload) in [(6, tcp(1, 2, 0x18, b"odd")), (17, udp(3, 4, b"even")), (58, icmp(128, 0, &[1; 9]))] {
        let fields = [
            (Field::Ipv6Src, 0xfd00 << 112 | 7),
            (Field::Ipv6Dst, 0xfd00 << 112 | 8),
            (Field::Ipv6Label, 0xf_edcb),
            (Field::Ipv6Tclass, 0x5a),
            (Field::Ipv6Hlimit, 1),
        ];
        let frame = v6_frame(protocol, &payload);
        let sent = Device::rewrite(is_ipv6, vec![set(&fields)], &frame);
        verify(&sent);
        assert_eq!(sent[14..18], [0x65, 0xaf, 0xed, 0xcb]);
        assert_eq!(sent[21], 1);
        assert_eq!((sent[22], sent[37], sent[38], sent[53]), (0xfd, 7, 0xfd, 8));
    }
}

#[test]
fn the_checksum_of_a_source_routed_packet_holds_its_last_station() {
    let last = DST_V6 + 1;
    let body = fill(eth(0x86dd, &{
        let mut packet = ipv6(17, &udp(5, 6, b"x"));
        packet[24..40].copy_from_slice(&last.to_be_bytes());
        packet
    }));
    let routed = |segments_left: u8| {
        let mut routing = vec![17, 2, 2, segments_left, 0, 0, 0, 0];
        routing.extend(last.to_be_bytes());
        eth(0x86dd, &ipv6(43, &[&routing, &body[54..]].concat()))
    };
    let checksum_at = 14 + 40 + 24 + 6;
    let to_other = || vec![set(&[(Field::Ipv6Dst, DST_V6 + 9)])];
    let frame = routed(1);
    let sent = Device::rewrite(is_ipv6, to_other(), &frame);
    assert_eq!(sent[checksum_at..checksum_at + 2], frame[checksum_at..checksum_at + 2]);
    let frame = routed(0);
    let sent = Device::rewrite(is_ipv6, to_other(), &frame);
    assert_ne!(sent[checksum_at..checksum_at + 2], frame[checksum_at..checksum_at + 2]);
    let sent = Device::rewrite(is_ipv6, vec![set(&[(Field::Ipv6Src, SRC_V6 + 9)])], &routed(1));
    assert_ne!(sent[checksum_at..checksum_at + 2], frame[checksum_at..checksum_at + 2], "the source always counts");
}

#[test]
fn ports_are_set_and_checksums_follow() {
    let frame = Ip4::default().frame(6, &tcp(1, 2, 0x18, b"data"));
    let sent = Device::rewrite(v4(6), vec![set(&[(Field::TcpSrc, 0xabcd), (Field::TcpDst, 443)])], &frame);
    verify(&sent);
    assert_eq!(sent[34..38], [0xab, 0xcd, 1, 187]);
    differs_only(&frame, &sent, &[34..38, 50..52]);

    let frame = v6_frame(17, &udp(1, 2, b"data"));
    let sent = Device::rewrite(v6(17), vec![set(&[(Field::UdpSrc, 0xabcd)])], &frame);
    verify(&sent);
    differs_only(&frame, &sent, &[54..56, 60..62]);
}

#[test]
fn sctp_gets_a_new_crc_and_padding_is_no_part_of_it() {
    let mut frame = Ip4::default().frame(132, &sctp(1, 2, b"chunks.."));
    frame.extend([0; 6]);
    let whole = |full: &mut Match| {
        v4(132)(full);
        full.set_exact(Field::Ipv4Frag, 0);
    };
    let sent = Device::rewrite(whole, vec![set(&[(Field::SctpDst, 9)])], &frame);
    verify(&sent);
    differs_only(&frame, &sent, &[36..38, 42..46]);
    let mut wrong = frame.clone();
    wrong[45] ^= 1;
    let sent = Device::rewrite(whole, vec![set(&[(Field::SctpDst, 9)]), set(&[(Field::SctpDst, 2)])], &wrong);
    assert_eq!(sent, wrong, "a wrong CRC stays wrong");
}

#[test]
fn sctp_ports_are_set_under_a_mask_and_in_fragments_as_if_they_were_whole() {
    let frame = Ip4::default().frame(132, &sctp(0x1234, 0x5678, b"chunks.."));
    let masked = || Action::Set(set_masked(&[(Field::SctpSrc, 0x00ff, 0x00ff), (Field::SctpDst, 0x0900, 0x0f00)]));
    let sent = Device::rewrite(v4(132), vec![masked()], &frame);
    verify(&sent);
    assert_eq!(sent[34..38], [0x12, 0xff, 0x59, 0x78]);
    // In a fragment the kernel computes over what it has, and carries through by how much that is wrong before, so that
    // the way back leads to the same bytes.
    let first = fill(eth(0x0800, &Ip4 { fragment: 0x2000, ..Ip4::default() }.packet(132, &sctp(1, 2, b"chunks.."))));
    let there = Device::rewrite(v4(132), vec![set(&[(Field::SctpDst, 9)])], &first);
    differs_only(&first, &there, &[36..38, 42..46]);
    let back = Device::rewrite(v4(132), vec![set(&[(Field::SctpDst, 9)]), set(&[(Field::SctpDst, 2)])], &first);
    assert_eq!(back, first);
}

#[test]
fn an_ipv4_header_of_a_wrong_length_is_rewritten_as_the_kernel_does() {
    // It takes the transport header to be where the network header is: the checksum of TCP, 16 bytes behind, is then
    // the upper half of the destination address.
    let mut frame = Ip4::default().frame(6, &tcp(1, 2, 0x10, b"x"));
    frame[14] = 0x44;
    let sent = Device::rewrite(is_ipv4, vec![set(&[(Field::Ipv4Src, 0x0a00_0005)])], &frame);
    assert_eq!(sent[26..30], [10, 0, 0, 5]);
    // 0x0a00 taken as a checksum, with 4 more in what it covers.
    assert_eq!(sent[30..34], [0x09, 0xfc, 0, 2]);
    differs_only(&frame, &sent, &[24..26, 26..32]);
    let mut device = Device::new();
    device.add(flow(is_ipv4, vec![set(&[(Field::Ipv4Ttl, 5)]), output(2)])).unwrap();
    assert_eq!(device.inject(1, &frame[..33]).sent, [], "less than a header");
}

#[test]
fn icmp_types_and_codes_are_set() {
    let frame = Ip4::default().frame(1, &icmp(8, 0, &[1, 2, 3, 4, 5]));
    let sent = Device::rewrite(v4(1), vec![set(&[(Field::IcmpType, 0), (Field::IcmpCode, 4)])], &frame);
    verify(&sent);
    assert_eq!(sent[34..36], [0, 4]);
    let frame = v6_frame(58, &icmp(128, 0, &[1, 2, 3, 4, 5]));
    let sent = Device::rewrite(v6(58), vec![set(&[(Field::Icmpv6Type, 129)])], &frame);
    verify(&sent);
    assert_eq!(sent[54..56], [129, 0]);
}

#[test]
fn a_neighbour_advertisement_is_rewritten_where_it_has_an_option() {
    let mut rest = vec![0x60, 0, 0, 0];
    rest.extend(SRC_V6.to_be_bytes());
    rest.extend([14, 1, 0, 0, 0, 0, 0, 0]);
    rest.extend([2, 1, 2, 0, 0, 0, 0, 8]);
    let frame = v6_frame(58, &icmp(136, 0, &rest));
    let advertisement = |full: &mut Match| {
        v6(58)(full);
        full.set_exact(Field::Icmpv6Type, 136);
        full.set_exact(Field::Icmpv6Code, 0);
    };
    let fields = [(Field::NdTarget, DST_V6), (Field::NdSll, 1), (Field::NdTll, 0x0a0a_0a0a_0a0a)];
    let sent = Device::rewrite(advertisement, vec![set(&fields)], &frame);
    verify(&sent);
    assert_eq!(sent[62..78], DST_V6.to_be_bytes());
    assert_eq!(sent[88..94], [0x0a; 6]);
    differs_only(&frame, &sent, &[56..58, 62..78, 88..94]);
}

#[test]
fn only_the_first_address_of_a_neighbour_message_is_set() {
    // A message can have but one, as in OVS's userspace.
    let rest = [&[0; 4][..], &SRC_V6.to_be_bytes(), &[2, 1, 2, 0, 0, 0, 0, 8, 1, 1, 2, 0, 0, 0, 0, 9]].concat();
    let frame = v6_frame(58, &icmp(135, 0, &rest));
    let sent = Device::rewrite(solicitation, vec![set(&[(Field::NdSll, 1), (Field::NdTll, 2)])], &frame);
    verify(&sent);
    assert_eq!(sent[80..86], [0, 0, 0, 0, 0, 2]);
    differs_only(&frame, &sent, &[56..58, 80..86]);
}

fn solicitation(full: &mut Match) {
    v6(58)(full);
    full.set_exact(Field::Icmpv6Type, 135);
    full.set_exact(Field::Icmpv6Code, 0);
}

#[test]
fn the_reserved_bits_and_the_first_option_of_a_neighbour_message_are_set() {
    let rest = [&[0x11, 0x22, 0x33, 0x44][..], &SRC_V6.to_be_bytes(), &[1, 1, 2, 0, 0, 0, 0, 9]].concat();
    let mut frame = v6_frame(58, &icmp(135, 0, &rest));
    // The checksum is made anew, even if it was wrong.
    frame[56] ^= 0xff;
    let padded = [&frame[..], &[0; 3]].concat();
    let fields = [(Field::NdReserved, 0xa000_0000, 0xf000_0000), (Field::NdOptionsType, 2, 0xff)];
    let sent = Device::rewrite(solicitation, vec![Action::Set(set_masked(&fields))], &padded);
    verify(&sent);
    assert_eq!((&sent[58..62], sent[78]), (&[0xa1, 0x22, 0x33, 0x44][..], 2));
    differs_only(&padded, &sent, &[56..58, 58..59, 78..79]);
    // And matched under what it is now.
    let mut device = Device::new();
    let is_so = |full: &mut Match| {
        solicitation(full);
        full.set(Field::NdReserved, 0xa122_0000, 0xffff_0000);
        full.set_exact(Field::NdOptionsType, 2);
    };
    device.add(flow(is_so, vec![output(2)])).unwrap();
    assert_eq!(device.inject(1, &sent).sent.len(), 1);
    assert_eq!(device.inject(1, &padded).sent.len(), 0);
}

#[test]
fn arp_is_rewritten() {
    let is_arp = |full: &mut Match| full.set_exact(Field::EthType, 0x0806);
    let fields = [
        (Field::ArpSip, 0x0101_0101),
        (Field::ArpTip, 0x0202_0202),
        (Field::ArpOp, 2),
        (Field::ArpSha, 0x0303_0303_0303),
        (Field::ArpTha, 0x0404_0404_0404),
    ];
    let sent = Device::rewrite(is_arp, vec![set(&fields)], &arp(1));
    let body = [&[0, 2], &[3; 6][..], &[1; 4], &[4; 6], &[2; 4]].concat();
    assert_eq!(sent[20..], body);
}

#[test]
fn metadata_that_is_set_is_matched_in_the_next_chain() {
    let mut device = Device::new();
    device.open_chain(ChainId(5));
    let actions = vec![set(&[(Field::SkbMark, 0xff)]), set(&[(Field::SkbPriority, 3)]), recirc(5)];
    device.add(flow(anything, actions)).unwrap();
    let marked = |full: &mut Match| {
        full.set_exact(Field::RecircId, 5);
        full.set(Field::SkbMark, 0x0f, 0x0f);
        full.set_exact(Field::SkbPriority, 3);
    };
    device.add(flow(marked, vec![output(2)])).unwrap();
    assert_eq!(device.inject(1, &eth(0x88cc, &[])).sent.len(), 1);
}

#[test]
fn a_recirculated_packet_is_parsed_anew_and_the_rest_of_the_list_goes_on() {
    let mut device = Device::new();
    device.open_chain(ChainId(5));
    device.add(flow(anything, vec![vlan(7, 0), recirc(5), output(4)])).unwrap();
    let in_vlan = |full: &mut Match| {
        full.set_exact(Field::RecircId, 5);
        full.set_exact(Field::VlanVid, 7);
        full.set_exact(Field::VlanPresent, 1);
    };
    device.add(flow(in_vlan, vec![Action::PopVlan, output(3)])).unwrap();
    let frame = eth(0x88cc, &[1]);
    let verdict = device.inject(1, &frame);
    assert_eq!(verdict.sent, [(PortNumber(3), frame.clone()), (PortNumber(4), tagged(0x8100, 7, &frame))]);
    let bytes: Vec<_> = device.readings().iter().map(|reading| reading.counters.bytes).collect();
    assert_eq!(bytes, [15, 19], "each lookup counts the frame as it was then");
}

#[test]
fn a_packet_without_the_header_that_is_to_be_rewritten_goes_nowhere() {
    let mut device = Device::new();
    device.add(flow(v4(6), vec![output(2), set(&[(Field::TcpDst, 1)]), output(3)])).unwrap();
    let frame = Ip4::default().frame(6, &tcp(1, 2, 0x10, &[]));
    let verdict = device.inject(1, &frame[..50]);
    assert_eq!(verdict.sent.len(), 1);
    assert_eq!(device.nic.drops().missing_header.load(std::sync::atomic::Ordering::Relaxed), 1);
}

proptest! {
    /// Any addresses, ports and payload: what comes out has the checksums that a full computation gives.
    #[test]
    fn checksums_are_right_whatever_is_set(
        payload in proptest::collection::vec(any::<u8>(), 0..60),
        source: u32, mask: u32, port: u16, port_mask: u16, ttl: u8, is_tcp: bool,
    ) {
        let (protocol, body) = if is_tcp { (6, tcp(1, 2, 0x18, &payload)) } else { (17, udp(3, 4, &payload)) };
        let fields = |all: [(Field, u128, u128); 2]| {
            let touched: Vec<_> = all.into_iter().filter(|(_, _, mask)| *mask != 0).map(|(f, v, m)| (f, v & m, m)).collect();
            (!touched.is_empty()).then(|| Action::Set(set_masked(&touched)))
        };
        let port_field = if is_tcp { Field::TcpSrc } else { Field::UdpSrc };
        let address = [(Field::Ipv4Src, source.into(), mask.into()), (Field::Ipv4Ttl, ttl.into(), 0xff)];
        let actions = fields(address).into_iter().chain(fields([(port_field, port.into(), port_mask.into()), (port_field, 0, 0)]));
        let sent = Device::rewrite(v4(protocol), actions.collect(), &Ip4::default().frame(protocol, &body));
        verify(&sent);
        let old = u32::from_be_bytes([10, 0, 0, 1]);
        prop_assert_eq!(&sent[26..30], &(old & !mask | source & mask).to_be_bytes()[..]);
    }

    /// A rule that rewrites everything, and frames that have hardly anything.
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 14..120), kind in 0usize..8) {
        let mut frame = bytes;
        let heads = [
            (0x0800u16, 6, Field::TcpSrc), (0x0800, 17, Field::UdpSrc), (0x0800, 132, Field::SctpSrc), (0x0800, 1, Field::IcmpType),
            (0x86dd, 6, Field::TcpSrc), (0x86dd, 58, Field::Icmpv6Type), (0x86dd, 58, Field::NdTll), (0x0806, 0, Field::ArpOp),
        ];
        let (ethernet_type, protocol, field) = heads[kind];
        frame[12..14].copy_from_slice(&ethernet_type.to_be_bytes());
        for (at, value) in [(14, 0x45), (if ethernet_type == 0x0800 { 23 } else { 20 }, protocol), (20, 0)] {
            if let (true, Some(byte)) = (ethernet_type == 0x0800 || at == 20, frame.get_mut(at)) {
                *byte = value;
            }
        }
        if let (Field::NdTll, Some(kind)) = (field, frame.get_mut(54..56)) {
            kind.copy_from_slice(&[135, 0]);
        }
        let matching = |full: &mut Match| {
            full.set_exact(Field::EthType, ethernet_type.into());
            if ethernet_type != 0x0806 {
                full.set_exact(Field::Ipv4Proto, protocol.into());
            }
            if field == Field::SctpSrc {
                full.set_exact(Field::Ipv4Frag, 0);
            }
            if field == Field::NdTll {
                full.set_exact(Field::Icmpv6Type, 135);
                full.set_exact(Field::Icmpv6Code, 0);
            }
        };
        let mut device = Device::new();
        let mut actions = vec![set(&[(field, 1)]), vlan(1, 0), Action::PopVlan];
        match ethernet_type {
            0x0800 => actions.push(set(&[(Field::Ipv4Src, 1), (Field::Ipv4Dst, 2), (Field::Ipv4Tos, 3), (Field::Ipv4Ttl, 4)])),
            0x86dd => actions.push(set(&[(Field::Ipv6Src, 1), (Field::Ipv6Dst, 2), (Field::Ipv6Hlimit, 3)])),
            _ => {}
        }
        actions.push(output(2));
        device.add(flow(matching, actions)).unwrap();
        device.inject(1, &frame);
    }
}
