//! Lists within lists, and what decides which of them runs.

use std::sync::atomic::Ordering;

use sluice_flow::action::{Action, HashAlgorithm, VlanTag};
use sluice_flow::backend::{Meters, Sample, Verdict};
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::port::PortNumber;

use crate::frames::{Ip4, eth, icmp, tagged, tcp, udp, v6_frame, verify};
use crate::harness::{Device, flow, is_ipv4, is_ipv6, output, recirc, set, set_masked, v4};

fn anything(_: &mut Match) {}

fn in_chain(chain: u128) -> impl FnOnce(&mut Match) {
    move |full| full.set_exact(Field::RecircId, chain)
}

fn with_chains() -> Device {
    let mut device = Device::new();
    (5..10).for_each(|chain| device.open_chain(ChainId(chain)));
    device
}

fn clone(actions: Vec<Action>) -> Action {
    Action::Clone(actions.into())
}

fn tag(vid: u16) -> Action {
    Action::PushVlan(VlanTag { tpid: 0x8100, vid, pcp: 0, cfi: true })
}

fn ports(verdict: &Verdict) -> Vec<u32> {
    verdict.sent.iter().map(|(port, _)| port.0).collect()
}

#[test]
fn what_a_clone_does_is_not_seen_behind_it() {
    let frame = Ip4::default().frame(17, &udp(5, 6, b"x"));
    let mut device = Device::new();
    let inner = vec![tag(7), Action::Trunc(40), set(&[(Field::Ipv4Ttl, 1)]), output(2)];
    device.add(flow(is_ipv4, vec![clone(inner), output(3)])).unwrap();
    let sent = device.inject(1, &frame).sent;
    assert_eq!(sent[1], (PortNumber(3), frame));
    assert_eq!((sent[0].0, sent[0].1.len(), sent[0].1[26]), (PortNumber(2), 44, 1));
}

#[test]
fn a_cut_around_a_clone_is_seen_in_it_and_one_in_it_not_around_it() {
    let frame = eth(0x88cc, &[9; 86]);
    let lengths = |actions| {
        let mut device = Device::new();
        device.add(flow(anything, actions)).unwrap();
        device.inject(1, &frame).sent.iter().map(|(_, sent)| sent.len()).collect::<Vec<_>>()
    };
    assert_eq!(lengths(vec![Action::Trunc(60), clone(vec![output(2), output(3)]), output(4)]), [60, 100, 60]);
    assert_eq!(lengths(vec![clone(vec![Action::Trunc(60)]), output(4)]), [100]);
    assert_eq!(lengths(vec![Action::Trunc(60), Action::Trunc(200), output(4)]), [100], "the last one counts");
    assert_eq!(lengths(vec![Action::Trunc(60), Action::Trunc(50), output(4)]), [50]);
}

#[test]
fn a_cut_goes_along_with_a_jump() {
    let mut device = with_chains();
    device.add(flow(anything, vec![Action::Trunc(60), clone(vec![recirc(5)]), output(4)])).unwrap();
    device.add(flow(in_chain(5), vec![output(2), output(3)])).unwrap();
    let lengths: Vec<_> = device.inject(1, &eth(0x88cc, &[9; 86])).sent.iter().map(|(_, sent)| sent.len()).collect();
    assert_eq!(lengths, [60, 100, 60]);
}

#[test]
fn an_outer_header_goes_along_with_copies_and_jumps() {
    let mut device = Device::with_tunnels();
    device.open_chain(ChainId(5));
    let outer = [(Field::TunnelId, 7), (Field::TunnelIpv4Dst, 0x0a00_0009)];
    let fields = outer.map(|(field, value)| (field, value, field.full_mask()));
    let outer = Action::SetTunnel(set_masked(&fields));
    device.add(flow(anything, vec![outer, clone(vec![output(10)]), recirc(5), output(3)])).unwrap();
    device.add(flow(in_chain(5), vec![output(10)])).unwrap();
    let frame = eth(0x88cc, &[1, 2, 3]);
    let sent = device.inject(2, &frame).sent;
    assert_eq!(sent[0], sent[1]);
    assert_eq!(
        (sent[0].0, &sent[0].1[30..34], &sent[0].1[46..49]),
        (PortNumber(1), &[10, 0, 0, 9][..], &[0, 0, 7][..])
    );
    assert_eq!(sent[2], (PortNumber(3), frame), "an outer header is for tunnel ports");
}

#[test]
fn a_cut_and_a_length_do_not_count_the_outermost_tag() {
    // The kernel keeps it beside the packet (`skb->len`).
    let frame = tagged(0x8100, 7, &eth(0x88cc, &[9; 86]));
    let sent = Device::rewrite(anything, vec![Action::Trunc(60)], &frame);
    assert_eq!(sent.len(), 64);
    assert_eq!(Device::rewrite(anything, vec![Action::Trunc(14)], &frame).len(), 18);
    let mut device = Device::new();
    device.nic.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 9, 9)).unwrap();
    device.add(flow(anything, vec![Action::Meter(MeterId(1))])).unwrap();
    device.inject(1, &frame);
    assert_eq!(device.nic.meter_counters(MeterId(1)).unwrap().bytes, 100);
    assert_eq!(device.readings()[0].counters.bytes, 104, "a rule counts it");
    let check =
        Action::CheckPacketLength { length: 100, greater: [output(2)].into(), less_or_equal: [output(3)].into() };
    let mut device = Device::new();
    device.add(flow(anything, vec![check])).unwrap();
    assert_eq!(ports(&device.inject(1, &frame)), [3]);
    assert_eq!(ports(&device.inject(1, &tagged(0x8100, 7, &frame))), [2]);
}

#[test]
fn the_length_decides_which_list_runs() {
    let mut device = Device::new();
    let check = Action::CheckPacketLength {
        length: 100,
        greater: [tag(1), output(2)].into(),
        less_or_equal: [tag(2), output(3)].into(),
    };
    device.add(flow(anything, vec![check, output(4)])).unwrap();
    for (bytes, to) in [(85, 3), (86, 3), (87, 2)] {
        let frame = eth(0x88cc, &vec![9; bytes]);
        let sent = device.inject(1, &frame).sent;
        assert_eq!(
            sent,
            [(PortNumber(to), tagged(0x8100, if to == 2 { 1 } else { 2 }, &frame)), (PortNumber(4), frame)]
        );
    }
}

#[test]
fn the_time_to_live_goes_down_until_it_would_be_zero() {
    let mut device = Device::new();
    device.add(flow(anything, vec![Action::DecTtl([output(3)].into()), output(2)])).unwrap();
    let of_ttl = |ttl| Ip4 { ttl, ..Ip4::default() }.frame(6, &tcp(1, 2, 0x10, b"x"));
    let mut v6 = v6_frame(17, &udp(1, 2, b"x"));
    for ttl in [255, 64, 2] {
        let sent = device.inject(1, &of_ttl(ttl)).sent;
        assert_eq!(sent, [(PortNumber(2), of_ttl(ttl - 1))]);
        verify(&sent[0].1);
    }
    for ttl in [0, 1] {
        assert_eq!(device.inject(1, &of_ttl(ttl)).sent, [(PortNumber(3), of_ttl(ttl))], "as it was");
    }
    for (before, after, to) in [(9, 8, 2), (1, 1, 3)] {
        v6[21] = before;
        let sent = device.inject(1, &v6).sent;
        v6[21] = after;
        assert_eq!(sent, [(PortNumber(to), v6.clone())]);
    }
    let other = eth(0x88cc, &[1]);
    assert_eq!(device.inject(1, &other).sent, [(PortNumber(2), other)], "no IP, no time to live");
    // Behind two tags the kernel does not see that it is IP.
    let both = tagged(0x88a8, 1, &tagged(0x8100, 2, &of_ttl(9)));
    assert_eq!(device.inject(1, &both).sent, [(PortNumber(2), both)]);
}

#[test]
fn a_time_to_live_that_is_used_up_ends_only_the_list_that_it_is_in() {
    let mut device = Device::new();
    let inner = clone(vec![Action::DecTtl([].into()), output(2)]);
    device.add(flow(is_ipv4, vec![inner, output(3)])).unwrap();
    let frame = Ip4 { ttl: 1, ..Ip4::default() }.frame(1, &icmp(8, 0, &[1; 4]));
    assert_eq!(ports(&device.inject(1, &frame)), [3]);
}

#[test]
fn a_meter_in_a_list_holds_back_only_what_is_in_the_list() {
    let mut device = Device::new();
    device.nic.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 1, 1)).unwrap();
    let handle =
        device.add(flow(anything, vec![clone(vec![Action::Meter(MeterId(1)), output(2)]), output(3)])).unwrap();
    assert_eq!(ports(&device.inject(1, &eth(0x88cc, &[]))), [2, 3]);
    assert_eq!(ports(&device.inject(1, &eth(0x88cc, &[]))), [3]);
    assert!(device.nic.remove_meter(MeterId(1)).is_err(), "a rule uses it, if in a list");
    device.remove(handle);
    device.nic.remove_meter(MeterId(1)).unwrap();
}

#[test]
fn a_refused_flow_holds_no_meter_of_any_list() {
    let mut device = Device::new();
    device.nic.set_meter(&Meter::simple(MeterId(1), MeterUnit::Packets, 1, 1)).unwrap();
    let meter = || Action::Meter(MeterId(1));
    let check = Action::CheckPacketLength {
        length: 9,
        greater: [meter()].into(),
        less_or_equal: [clone(vec![meter(), recirc(9)])].into(),
    };
    let sample = Action::Sample { probability: 1, actions: [meter()].into() };
    assert_eq!(device.add(flow(anything, vec![sample, check])).unwrap_err().label(), "action");
    device.nic.remove_meter(MeterId(1)).unwrap();
}

#[test]
fn ports_and_circles_are_refused_in_lists_too() {
    let mut device = with_chains();
    let refusal = |device: &mut Device, action| device.add(flow(anything, vec![clone(vec![action])])).unwrap_err();
    assert_eq!(refusal(&mut device, output(77)).label(), "port");
    device.add(flow(in_chain(5), vec![Action::DecTtl([recirc(6)].into())])).unwrap();
    let circle = device.add(flow(in_chain(6), vec![clone(vec![recirc(5)])])).unwrap_err();
    assert_eq!(circle.to_string(), "combination: recirc(0x5) from chain 0x6 would close a circle");
    let deep = (0..40).fold(output(2), |inner, _| clone(vec![inner]));
    assert_eq!(refusal(&mut device, deep).to_string(), "limit: lists of actions within lists (at most 16)");
}

#[test]
fn an_action_that_fails_in_a_list_ends_the_lists_around_it() {
    let mut device = Device::new();
    let inner = clone(vec![set(&[(Field::TcpDst, 1)]), output(2)]);
    device.add(flow(v4(6), vec![output(4), inner, output(3)])).unwrap();
    let frame = Ip4::default().frame(6, &tcp(1, 2, 0x10, &[]));
    assert_eq!(ports(&device.inject(1, &frame)), [4, 2, 3]);
    assert_eq!(ports(&device.inject(1, &frame[..50])), [4]);
    assert_eq!(device.nic.drops().missing_header.load(Ordering::Relaxed), 1);
}

#[test]
fn samples_are_taken_as_the_dice_fall_and_the_dice_fall_alike_for_the_same_seed() {
    let mut counts = vec![];
    for (probability, seed) in [(u32::MAX, 1), (0, 1), (u32::MAX / 4, 1), (u32::MAX / 4, 1), (u32::MAX / 4, 2)] {
        let mut device = Device::with_seed(seed);
        let sample = Action::Sample { probability, actions: [tag(1), output(2)].into() };
        device.add(flow(anything, vec![sample, output(3)])).unwrap();
        let picks: Vec<_> = (0..1000).map(|_| ports(&device.inject(1, &eth(0x88cc, &[]))).len() == 2).collect();
        counts.push(picks);
    }
    let picked = |index: usize| counts[index].iter().filter(|picked| **picked).count();
    assert_eq!((picked(0), picked(1)), (1000, 0));
    assert!((200..300).contains(&picked(2)), "{}", picked(2));
    assert_eq!(counts[2], counts[3]);
    assert_ne!(counts[3], counts[4]);
}

#[test]
fn a_sampling_group_hears_of_the_packet_as_it_is_then() {
    let mut device = Device::new();
    let psample = |group: u8| Action::Psample { group: group.into(), cookie: Box::from([0xab, group]) };
    let half = u32::MAX / 2;
    let inner = Action::Sample { probability: u32::MAX, actions: [psample(2)].into() };
    let actions = vec![
        psample(1),
        Action::Trunc(15),
        psample(3),
        psample(4),
        tag(5),
        Action::Sample { probability: u32::MAX, actions: [inner, psample(5)].into() },
    ];
    device.add(flow(anything, actions)).unwrap();
    let frame = eth(0x88cc, &[1, 2, 3]);
    let verdict = device.inject(1, &frame);
    let sample = |group: u8, bytes: &[u8]| Sample {
        group: group.into(),
        cookie: Box::from([0xab, group]),
        bytes: bytes.to_vec(),
        rate: u32::MAX,
    };
    let with_tag = tagged(0x8100, 5, &frame);
    let wanted =
        [sample(1, &frame), sample(3, &frame[..15]), sample(4, &frame), sample(2, &with_tag), sample(5, &with_tag)];
    assert_eq!(verdict.samples, wanted);
    assert_eq!(verdict.sent, []);
    // The rate is the probability with which the packet got there, through all lists.
    let twice = Action::Sample { probability: half, actions: [psample(6)].into() };
    let mut device = Device::new();
    device
        .add(flow(anything, vec![Action::Sample { probability: half, actions: [twice, psample(7)].into() }]))
        .unwrap();
    let samples: Vec<_> = (0..200).flat_map(|_| device.inject(1, &frame).samples).collect();
    for (group, rate) in [(6, u32::MAX / 4), (7, half)] {
        let rates: Vec<_> = samples.iter().filter(|sample| sample.group == group).map(|sample| sample.rate).collect();
        assert!(!rates.is_empty() && rates.iter().all(|found| found.abs_diff(rate) < 2), "{group}: {rates:?}");
    }
}

#[test]
fn a_hash_is_seen_by_the_next_lookup_and_is_the_same_for_one_connection() {
    let hash_of = |frame: &[u8], algorithm, basis| {
        let mut device = with_chains();
        device.add(flow(anything, vec![Action::Hash { algorithm, basis }, recirc(5)])).unwrap();
        // Found bit by bit: which of two flows takes it.
        let bits = (0..32).map(|bit| {
            let is_set = |full: &mut Match| {
                full.set_exact(Field::RecircId, 5);
                full.set(Field::DpHash, 1 << bit, 1 << bit);
            };
            let handle = device.add(flow(is_set, vec![output(2)])).unwrap();
            let is_set = device.inject(1, frame).missed.is_none();
            device.remove(handle);
            u32::from(is_set) << bit
        });
        bits.sum::<u32>()
    };
    let one = |source: u16, payload: &[u8]| Ip4::default().frame(17, &udp(source, 6, payload));
    let back = Ip4 { source: [10, 0, 0, 2], destination: [10, 0, 0, 1], ..Ip4::default() }.frame(17, &udp(6, 5, b"z"));
    for algorithm in [HashAlgorithm::L4, HashAlgorithm::SymmetricL4] {
        let hash = hash_of(&one(5, b"x"), algorithm, 0);
        assert_ne!(hash, 0);
        assert_eq!(hash, hash_of(&one(5, b"another"), algorithm, 0));
        assert_ne!(hash, hash_of(&one(7, b"x"), algorithm, 0));
        assert_ne!(hash, hash_of(&one(5, b"x"), algorithm, 1), "the basis counts");
        assert_eq!(hash == hash_of(&back, algorithm, 0), algorithm == HashAlgorithm::SymmetricL4);
        // All fragments of a packet are alike, so that none has ports.
        let fragment = |fragment, payload: &[u8]| Ip4 { fragment, ..Ip4::default() }.frame(17, payload);
        let first = hash_of(&fragment(0x2000, &udp(5, 6, b"x")), algorithm, 0);
        assert_eq!(first, hash_of(&fragment(0x0002, b"something else"), algorithm, 0));
        let fragment = |offset, payload: &[u8]| v6_frame(44, &[&[17, 0, 0, offset, 0, 0, 0, 1], payload].concat());
        let first = hash_of(&fragment(1, &udp(5, 6, b"x")), algorithm, 0);
        assert_eq!(first, hash_of(&fragment(8, b"something else"), algorithm, 0));
    }
}

#[test]
fn a_hash_in_a_clone_stays_in_it() {
    let mut device = with_chains();
    let hash = Action::Hash { algorithm: HashAlgorithm::L4, basis: 0 };
    device.add(flow(is_ipv6, vec![clone(vec![hash, recirc(5)]), recirc(6)])).unwrap();
    let without = |chain| {
        move |full: &mut Match| {
            full.set_exact(Field::RecircId, chain);
            full.set_exact(Field::DpHash, 0);
        }
    };
    device.add(flow(without(5), vec![output(2)])).unwrap();
    device.add(flow(without(6), vec![output(3)])).unwrap();
    assert_eq!(ports(&device.inject(1, &v6_frame(17, &udp(1, 2, b"x")))), [3]);
}

#[test]
fn what_is_too_deep_waits_until_the_first_program_is_through() {
    // As in the kernel: three levels are run at once, the rest comes in order when the first list is done.
    let mut device = with_chains();
    let deep = |chain| vec![clone(vec![tag(1), recirc(chain)]), output(4)];
    device.add(flow(anything, vec![recirc(5), output(1)])).unwrap();
    device.add(flow(in_chain(5), vec![clone(deep(6)), output(2)])).unwrap();
    device.add(flow(in_chain(6), vec![output(3)])).unwrap();
    assert_eq!(ports(&device.inject(1, &eth(0x88cc, &[]))), [4, 2, 1, 3]);

    let mut device = with_chains();
    device.add(flow(anything, vec![clone(vec![tag(1), recirc(6), output(4)]), output(1)])).unwrap();
    device.add(flow(in_chain(6), vec![output(3)])).unwrap();
    assert_eq!(ports(&device.inject(1, &eth(0x88cc, &[]))), [3, 4, 1], "two levels are not deep");
}

#[test]
fn only_so_much_waits() {
    let mut device = with_chains();
    let many: Vec<_> = (0..12).map(|_| recirc(8)).collect();
    device.add(flow(anything, vec![recirc(5)])).unwrap();
    device.add(flow(in_chain(5), vec![recirc(6)])).unwrap();
    device.add(flow(in_chain(6), vec![recirc(7)])).unwrap();
    device.add(flow(in_chain(7), many)).unwrap();
    device.add(flow(in_chain(8), vec![output(2)])).unwrap();
    assert_eq!(device.inject(1, &eth(0x88cc, &[])).sent.len(), 9);
    assert_eq!(device.nic.drops().deferred.load(Ordering::Relaxed), 3);
}
