//! Headers that come and go in front: Ethernet, MPLS, NSH. Each on real bytes, as the kernel has them.

use std::sync::atomic::Ordering;

use sluice_flow::action::{Action, EthernetAddresses, MplsEntry, NshHeader, NshMetadata, VlanTag};
use sluice_flow::backend::{Backend, Verdict};
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;

use crate::frames::{Ip4, eth, tagged, udp, verify};
use crate::harness::{Device, flow, is_ipv4, output, recirc, set, set_masked, v4};

const FRAME_TYPE: u16 = 0x6558;

fn frame() -> Vec<u8> {
    Ip4::default().frame(17, &udp(5, 6, b"payload"))
}

fn entry(label: u32) -> MplsEntry {
    MplsEntry { label, tc: 3, ttl: 60, bos: true, eth_type: 0x8847 }
}

/// The entry on the wire.
fn word(label: u32, tc: u32, bottom: u32, ttl: u32) -> [u8; 4] {
    (label << 12 | tc << 9 | bottom << 8 | ttl).to_be_bytes()
}

fn is_mpls(full: &mut Match) {
    full.set_exact(Field::EthType, 0x8847);
}

fn addresses() -> EthernetAddresses {
    EthernetAddresses { source: 0x0200_0000_00aa, destination: 0x0200_0000_00bb }
}

fn nsh(metadata: NshMetadata) -> Action {
    let header = NshHeader { flags: 2, ttl: 63, next_protocol: 0, path: 0x12_3456, index: 0xfe, metadata };
    Action::PushNsh(Box::new(header))
}

/// A flow of chain 5 that takes packets of a type, whatever they begin with.
fn in_chain_5(ethernet_type: u16) -> impl FnOnce(&mut Match) {
    in_chain(5, ethernet_type)
}

fn in_chain(chain: u128, ethernet_type: u16) -> impl FnOnce(&mut Match) {
    move |full| {
        full.set_exact(Field::RecircId, chain);
        full.set_exact(Field::EthType, ethernet_type.into());
    }
}

fn with_chains() -> Device {
    let mut device = Device::new();
    (5..8).for_each(|chain| device.open_chain(ChainId(chain)));
    device
}

fn only(verdict: &Verdict) -> &[u8] {
    assert_eq!(verdict.sent.len(), 1, "{verdict:?}");
    &verdict.sent[0].1
}

fn lost(device: &Device) -> [u64; 3] {
    let drops = device.nic.drops();
    [&drops.missing_header, &drops.without_ethernet, &drops.malformed].map(|count| count.load(Ordering::Relaxed))
}

#[test]
fn an_entry_is_pushed_behind_the_ethernet_header() {
    let sent = Device::rewrite(is_ipv4, vec![Action::PushMpls(entry(16))], &frame());
    assert_eq!(sent, [&frame()[..12], &[0x88, 0x47], &word(16, 3, 1, 60), &frame()[14..]].concat());
    let second = MplsEntry { label: 17, bos: false, eth_type: 0x8848, ..entry(0) };
    let sent = Device::rewrite(is_ipv4, vec![Action::PushMpls(entry(16)), Action::PushMpls(second)], &frame());
    assert_eq!(sent[12..22], [&[0x88, 0x48][..], &word(17, 3, 0, 60), &word(16, 3, 1, 60)].concat());
}

#[test]
fn an_entry_goes_behind_a_tag_that_the_match_does_not_speak_of() {
    let sent = Device::rewrite(is_ipv4, vec![Action::PushMpls(entry(16))], &tagged(0x8100, 7, &frame()));
    let wanted = [&frame()[..12], &[0x81, 0, 0, 7, 0x88, 0x47], &word(16, 3, 1, 60), &frame()[14..]].concat();
    assert_eq!(sent, wanted);
    // The kernel writes the type where it is behind one tag, so that the second tag is lost.
    let both = tagged(0x88a8, 1, &tagged(0x8100, 2, &frame()));
    let sent = Device::rewrite(is_ipv4, vec![Action::PushMpls(entry(16))], &both);
    assert_eq!(sent[12..26], [&[0x88, 0xa8, 0, 1, 0x88, 0x47, 0, 2, 8, 0][..], &word(16, 3, 1, 60)].concat());
}

#[test]
fn an_entry_is_popped_and_the_type_is_what_the_action_says() {
    let labelled = eth(0x8847, &[&word(16, 3, 1, 60)[..], &frame()[14..]].concat());
    assert_eq!(Device::rewrite(is_mpls, vec![Action::PopMpls(0x0800)], &labelled), frame());
    // Behind a tag, too.
    let sent = Device::rewrite(is_mpls, vec![Action::PopMpls(0x0800)], &tagged(0x8100, 9, &labelled));
    assert_eq!(sent, tagged(0x8100, 9, &frame()));
    // Behind two tags the kernel does not see the entry.
    let both = tagged(0x88a8, 1, &tagged(0x8100, 2, &labelled));
    assert_eq!(Device::rewrite(is_mpls, vec![Action::PopMpls(0x0800)], &both), both);
    let two = eth(0x8847, &[&word(17, 0, 0, 9)[..], &word(16, 3, 1, 60), &frame()[14..]].concat());
    let has_two = |full: &mut Match| {
        is_mpls(full);
        full.set(Field::MplsLabel, 0, 1 << 19);
        full.set_exact(Field::MplsPresent, 1);
        full.set_exact(Field::Mpls2Present, 1);
    };
    let pops = vec![Action::PopMpls(0x8847), Action::PopMpls(0x0800)];
    assert_eq!(Device::rewrite(has_two, pops, &two), frame());
}

#[test]
fn a_packet_is_parsed_anew_behind_the_last_entry() {
    let mut device = with_chains();
    device.add(flow(is_mpls, vec![Action::PopMpls(0x0800), recirc(5)])).unwrap();
    let is_udp = |full: &mut Match| {
        v4(17)(full);
        full.set_exact(Field::RecircId, 5);
        full.set_exact(Field::UdpDst, 6);
    };
    device.add(flow(is_udp, vec![set(&[(Field::UdpDst, 99)]), output(2)])).unwrap();
    let labelled = eth(0x8847, &[&word(16, 3, 1, 60)[..], &frame()[14..]].concat());
    let verdict = device.inject(1, &labelled);
    verify(only(&verdict));
    assert_eq!(only(&verdict)[36..38], [0, 99]);
}

#[test]
fn an_entry_is_set_under_a_mask() {
    let labelled = eth(0x8847, &[&word(0xabcde, 3, 0, 60)[..], &word(1, 0, 1, 2), &[1; 20]].concat());
    let sent = Device::rewrite(is_mpls, vec![set(&[(Field::MplsLabel, 0x12345), (Field::MplsTtl, 59)])], &labelled);
    assert_eq!(sent[14..22], [word(0x12345, 3, 0, 59), word(1, 0, 1, 2)].concat());
    let masked =
        Action::Set(set_masked(&[(Field::MplsLabel, 0x00100, 0x00f00), (Field::MplsTc, 4, 4), (Field::MplsBos, 1, 1)]));
    let sent = Device::rewrite(is_mpls, vec![masked], &labelled);
    assert_eq!(sent[14..18], word(0xab1de, 7, 1, 60));
    // Behind two tags the kernel fails.
    let mut device = Device::new();
    device.add(flow(is_mpls, vec![set(&[(Field::MplsTtl, 1)]), output(2)])).unwrap();
    assert_eq!(device.inject(1, &tagged(0x88a8, 1, &tagged(0x8100, 2, &labelled))).sent, []);
    assert_eq!(device.inject(1, &eth(0x8847, &[1, 2, 3])).sent, [], "cut off");
    assert_eq!(lost(&device), [2, 0, 0]);
}

#[test]
fn a_whole_frame_goes_under_a_label_and_comes_out_again() {
    let mut device = with_chains();
    let under = Action::AddMpls(entry(99));
    device.add(flow(is_ipv4, vec![under, Action::PushEth(addresses()), output(2), Action::PopEth, recirc(5)])).unwrap();
    let labelled = |full: &mut Match| {
        in_chain_5(0x8847)(full);
        full.set_exact(Field::PacketTypeNs, 1);
        full.set_exact(Field::PacketTypeId, 0x8847);
        full.set_exact(Field::MplsLabel, 99);
    };
    device.add(flow(labelled, vec![Action::PopMpls(FRAME_TYPE), recirc(6)])).unwrap();
    device.add(flow(in_chain(6, 0x0800), vec![output(3)])).unwrap();
    let verdict = device.inject(1, &frame());
    let head = [2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 0x88, 0x47];
    let wanted = vec![(PortNumber(2), [&head[..], &word(99, 3, 1, 60), &frame()].concat()), (PortNumber(3), frame())];
    assert_eq!(verdict.sent, wanted);
}

#[test]
fn a_packet_without_an_ethernet_header_leaves_by_no_port_until_it_has_one() {
    let mut device = Device::new();
    let actions = vec![Action::PopEth, output(2), Action::PushEth(addresses()), output(3)];
    device.add(flow(is_ipv4, actions)).unwrap();
    let verdict = device.inject(1, &frame());
    let head = [2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 8, 0];
    assert_eq!(verdict.sent, [(PortNumber(3), [&head[..], &frame()[14..]].concat())]);
    assert_eq!(lost(&device), [0, 1, 0]);
}

#[test]
fn headers_are_rewritten_wherever_the_ethernet_header_went() {
    let ttl = |ttl| set(&[(Field::Ipv4Ttl, ttl)]);
    let actions = vec![Action::PopEth, ttl(9), Action::PushEth(addresses()), set(&[(Field::Ipv4Dst, 7)])];
    let sent = Device::rewrite(is_ipv4, actions, &frame());
    verify(&sent);
    assert_eq!((sent[22], &sent[30..34]), (9, &[0, 0, 0, 7][..]));
}

#[test]
fn a_tag_that_the_kernel_keeps_beside_the_packet_keeps_an_ethernet_header_off() {
    // `pop_eth` of a tagged packet is refused where the match knows of the tag. Where it does not, the kernel takes the
    // header off and keeps the tag, with which no header can be put on (`skb_eth_push`).
    let mut device = Device::new();
    device.add(flow(is_ipv4, vec![Action::PopEth, Action::PushEth(addresses()), output(2)])).unwrap();
    assert_eq!(device.inject(1, &tagged(0x8100, 5, &frame())).sent, []);
    assert_eq!(lost(&device), [1, 0, 0]);
}

#[test]
fn a_frame_goes_into_nsh_and_comes_out_again_with_its_tag() {
    let mut device = with_chains();
    let contexts = NshMetadata::Contexts([1, 2, 3, 0xffff_ffff]);
    device.add(flow(is_ipv4, vec![nsh(contexts), recirc(5)])).unwrap();
    let behind = |full: &mut Match| {
        in_chain_5(0x894f)(full);
        full.set_exact(Field::NshPathId, 0x12_3456);
        full.set_exact(Field::NshNextProto, 3);
        full.set_exact(Field::NshContext4, 0xffff_ffff);
    };
    let sample = |group| Action::Psample { group, cookie: Box::from([]) };
    device.add(flow(behind, vec![sample(1), Action::PopNsh, recirc(6)])).unwrap();
    device.add(flow(in_chain(6, 0x0800), vec![output(2)])).unwrap();
    let verdict = device.inject(1, &frame());
    assert_eq!(only(&verdict), frame());
    let head = [0x2f, 0xc6, 1, 3, 0x12, 0x34, 0x56, 0xfe, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(verdict.samples[0].bytes, [&head[..], &frame()].concat());
    let with_tag = tagged(0x8100, 0x2007, &frame());
    assert_eq!(only(&device.inject(1, &with_tag)), with_tag);
}

#[test]
fn nsh_says_what_comes_behind_it() {
    let cases: [(u16, &[u8], u8); 3] =
        [(0x0800, &frame()[14..], 1), (0x8847, &word(1, 0, 1, 2), 5), (0x88cc, &[1, 2, 3], 0)];
    for (ethernet_type, payload, next) in cases {
        let mut device = with_chains();
        device.add(flow(|_| {}, vec![Action::PopEth, recirc(5)])).unwrap();
        let tlvs = NshMetadata::Tlvs(Box::from([9; 8]));
        let actions = vec![nsh(tlvs), Action::PushEth(addresses()), output(2)];
        device.add(flow(in_chain_5(ethernet_type), actions)).unwrap();
        let verdict = device.inject(1, &eth(ethernet_type, payload));
        if next == 0 {
            assert_eq!((verdict.sent.len(), lost(&device)), (0, [1, 0, 0]), "NSH has no number for it");
            continue;
        }
        let head = [0x2f, 0xc4, 2, next, 0x12, 0x34, 0x56, 0xfe, 9, 9, 9, 9, 9, 9, 9, 9];
        assert_eq!(only(&verdict)[12..], [&[0x89, 0x4f][..], &head, payload].concat());
    }
}

#[test]
fn nsh_is_popped_down_to_what_it_names() {
    let head = [0x0f, 0xc6, 1, 1, 0, 0, 1, 255].into_iter().chain([0; 16]).collect::<Vec<_>>();
    let mut device = with_chains();
    device.add(flow(|full| full.set_exact(Field::EthType, 0x894f), vec![Action::PopEth, recirc(5)])).unwrap();
    device.add(flow(in_chain_5(0x894f), vec![Action::PopNsh, recirc(6)])).unwrap();
    let plain = |full: &mut Match| {
        in_chain(6, 0x0800)(full);
        full.set_exact(Field::PacketTypeNs, 1);
        full.set_exact(Field::PacketTypeId, 0x0800);
    };
    device.add(flow(plain, vec![Action::PushEth(addresses()), output(2)])).unwrap();
    let verdict = device.inject(1, &eth(0x894f, &[&head[..], &frame()[14..]].concat()));
    assert_eq!(only(&verdict)[12..], frame()[12..]);
    let mut unknown = head.clone();
    unknown[3] = 77;
    assert_eq!(device.inject(1, &eth(0x894f, &unknown)).sent, [], "nothing that NSH has a number for");
    assert_eq!(device.inject(1, &eth(0x894f, &head[..20])).hits.len(), 0, "cut off");
    assert_eq!(lost(&device), [1, 0, 1]);
    assert_eq!(device.nic.lookup_counters().unwrap().lost, Some(1), "no rule had taken the one that is cut off");
}

#[test]
fn a_packet_of_which_no_key_can_be_made_ends_the_list_that_sends_it_round() {
    let mut device = with_chains();
    let is_mpls = |full: &mut Match| full.set_exact(Field::EthType, 0x8847);
    device.add(flow(is_mpls, vec![Action::PopMpls(0x894f), output(2), recirc(5), output(3)])).unwrap();
    device.add(flow(in_chain_5(0x894f), vec![output(4)])).unwrap();
    let labelled = |nsh: &[u8]| eth(0x8847, &[&word(16, 3, 1, 60)[..], nsh].concat());
    let ports = |verdict: Verdict| verdict.sent.iter().map(|(port, _)| port.0).collect::<Vec<_>>();
    assert_eq!(ports(device.inject(1, &labelled(&[0x0f, 0xc3, 2, 1, 0, 0, 1, 255, 0, 0, 0, 0]))), [2, 4, 3]);
    assert_eq!(ports(device.inject(1, &labelled(&[0x4f, 0xc3, 2, 1, 0, 0, 1, 255, 0, 0, 0, 0]))), [2]);
    assert_eq!(lost(&device), [1, 0, 0]);
}

#[test]
fn nsh_fields_are_set_under_masks() {
    let is_nsh = |full: &mut Match| full.set_exact(Field::EthType, 0x894f);
    let header = [0x0f, 0xc6, 1, 3, 0xaa, 0xbb, 0xcc, 255, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
    let fields = [
        (Field::NshFlags, 2),
        (Field::NshTtl, 5),
        (Field::NshPathId, 0x01_0203),
        (Field::NshServiceIndex, 254),
        (Field::NshContext1, 0xdead_beef),
        (Field::NshContext4, 9),
    ];
    let sent = Device::rewrite(is_nsh, vec![set(&fields)], &eth(0x894f, &[&header[..], &frame()].concat()));
    let wanted = [0x21, 0x46, 1, 3, 1, 2, 3, 254, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 9];
    assert_eq!(sent[14..], [&wanted[..], &frame()].concat());
    let masked = Action::Set(set_masked(&[(Field::NshPathId, 0x00_ff00, 0x00_ff00), (Field::NshContext2, 0, 2)]));
    let sent = Device::rewrite(is_nsh, vec![masked.clone()], &eth(0x894f, &header));
    assert_eq!((&sent[18..22], &sent[26..30]), (&[0xaa, 0xff, 0xcc, 255][..], &[0; 4][..]));
    // Metadata of type 2 has no contexts, so that only the base header is set.
    let second = [0x0f, 0xc3, 2, 3, 0xaa, 0xbb, 0xcc, 255, 1, 1, 1, 1];
    let sent = Device::rewrite(is_nsh, vec![masked], &eth(0x894f, &second));
    assert_eq!(sent[14..], [0x0f, 0xc3, 2, 3, 0xaa, 0xff, 0xcc, 255, 1, 1, 1, 1]);
}

#[test]
fn a_tag_is_popped_where_there_is_one_and_nothing_where_there_is_none() {
    let mut device = Device::new();
    let pop_twice = vec![Action::PopVlan, output(2), Action::PopVlan, output(3)];
    device.add(flow(|_| {}, pop_twice)).unwrap();
    let sent = device.inject(1, &tagged(0x8100, 1, &frame())).sent;
    assert_eq!(sent, [(PortNumber(2), frame()), (PortNumber(3), frame())]);
    let sent = device.inject(1, &tagged(0x88a8, 1, &tagged(0x8100, 2, &frame()))).sent;
    assert_eq!(sent, [(PortNumber(2), tagged(0x8100, 2, &frame())), (PortNumber(3), frame())]);
}

#[test]
fn a_label_is_pushed_when_the_tag_is_gone() {
    let tag = Action::PushVlan(VlanTag { tpid: 0x8100, vid: 5, pcp: 0, cfi: true });
    let actions = vec![tag, Action::PopVlan, Action::PushMpls(entry(1))];
    let sent = Device::rewrite(is_ipv4, actions, &frame());
    assert_eq!(sent[12..18], [&[0x88, 0x47][..], &word(1, 3, 1, 60)].concat());
}
