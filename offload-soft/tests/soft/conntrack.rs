//! `ct(…)` and what the next lookup sees of it.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::action::{Action, Commit, Conntrack, MplsEntry, Nat, NatSide, PortPick, Translation, VlanTag};
use sluice_flow::backend::{Backend as _, Connections, DeviceEvent, Verdict};
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;
use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};

use crate::frames::{Ip4, eth, fill, ipv6, tcp, udp, verify};
use crate::harness::{Device, flow, is_ipv4, is_ipv6, output, recirc, v4};

const NEW: u128 = 0x01;
const ESTABLISHED: u128 = 0x02;
const RELATED: u128 = 0x04;
const REPLY: u128 = 0x08;
const INVALID: u128 = 0x10;
const TRACKED: u128 = 0x20;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 9];
const OUTSIDE: [u8; 4] = [198, 51, 100, 1];

fn ct(conntrack: Conntrack) -> Action {
    Action::Conntrack(Box::new(conntrack))
}

fn commit() -> Conntrack {
    Conntrack { commit: Commit::Yes, ..Conntrack::default() }
}

/// A device with chains 1 and 2.
fn device() -> Device {
    let mut device = Device::new();
    device.open_chain(ChainId(1));
    device.open_chain(ChainId(2));
    device
}

/// IPv4 from a port.
fn from(port: u32) -> impl FnOnce(&mut Match) {
    move |full| {
        is_ipv4(full);
        full.set_exact(Field::InPort, port.into());
    }
}

/// IPv4 in a chain, with a state under a mask.
fn state(chain: u32, value: u128, mask: u128) -> impl FnOnce(&mut Match) {
    move |full| {
        is_ipv4(full);
        full.set_exact(Field::RecircId, chain.into());
        full.set(Field::CtState, value, mask);
    }
}

fn datagram(source: [u8; 4], from: u16, destination: [u8; 4], to: u16) -> Vec<u8> {
    Ip4 { source, destination, ..Ip4::default() }.frame(17, &udp(from, to, b"payload"))
}

fn segment(source: [u8; 4], from: u16, destination: [u8; 4], to: u16, flags: u16, [seq, ack]: [u32; 2]) -> Vec<u8> {
    let mut segment = tcp(from, to, flags, b"");
    segment[4..8].copy_from_slice(&seq.to_be_bytes());
    segment[8..12].copy_from_slice(&ack.to_be_bytes());
    Ip4 { source, destination, ..Ip4::default() }.frame(6, &segment)
}

/// Port and frame of the only packet that was sent.
fn sent(mut verdict: Verdict) -> (u32, Vec<u8>) {
    assert_eq!(verdict.missed, None);
    assert_eq!(verdict.sent.len(), 1, "{:?}", verdict.sent);
    let (PortNumber(port), frame) = verdict.sent.remove(0);
    (port, frame)
}

/// A firewall: port 1 is inside, port 2 is outside. Who is inside may begin; errors go to port 3.
fn firewall() -> Device {
    let mut device = device();
    device.add(flow(from(1), vec![ct(Conntrack::default()), recirc(1)])).unwrap();
    device.add(flow(from(2), vec![ct(Conntrack::default()), recirc(2)])).unwrap();
    device.add(flow(state(1, NEW | TRACKED, 0xff), vec![ct(commit()), output(2)])).unwrap();
    device.add(flow(state(1, ESTABLISHED | TRACKED, 0x3f), vec![output(2)])).unwrap();
    device.add(flow(state(2, ESTABLISHED | REPLY | TRACKED, 0x3f), vec![output(1)])).unwrap();
    device.add(flow(state(2, RELATED | REPLY | TRACKED, 0x3f), vec![output(3)])).unwrap();
    device.add(flow(state(2, NEW | TRACKED, 0x3f), vec![])).unwrap();
    device.add(flow(state(2, INVALID | TRACKED, 0x3f), vec![output(4)])).unwrap();
    device
}

#[test]
fn a_firewall_lets_only_answers_in() {
    let device = firewall();
    let answer = datagram(SERVER, 53, CLIENT, 1000);
    assert!(device.inject(2, &answer).sent.is_empty());
    let question = datagram(CLIENT, 1000, SERVER, 53);
    assert_eq!(sent(device.inject(1, &question)), (2, question));
    assert_eq!(device.nic.conntrack().len(), 1);
    assert_eq!(sent(device.inject(2, &answer)), (1, answer.clone()));
    device.clock.advance(Duration::from_secs(30));
    assert!(device.inject(2, &answer).sent.is_empty(), "too late");
    assert_eq!(device.nic.conntrack().len(), 0);
}

#[test]
fn a_tcp_connection_lives_from_its_handshake_to_its_end() {
    let device = firewall();
    let go = |flags, numbers| segment(CLIENT, 1000, SERVER, 80, flags, numbers);
    let come = |flags, numbers| segment(SERVER, 80, CLIENT, 1000, flags, numbers);
    for (port, frame) in [
        (1, go(0x02, [100, 0])),
        (2, come(0x12, [500, 101])),
        (1, go(0x10, [101, 501])),
        (1, go(0x11, [101, 501])),
        (2, come(0x11, [501, 102])),
        (1, go(0x10, [102, 502])),
    ] {
        assert_eq!(sent(device.inject(port, &frame)).0, 3 - port);
    }
    device.clock.advance(Duration::from_secs(120));
    assert!(device.inject(2, &come(0x10, [502, 102])).sent.is_empty(), "forgotten, so that it would begin anew");
}

#[test]
fn an_error_about_a_connection_comes_through() {
    let device = firewall();
    let question = datagram(CLIENT, 1000, SERVER, 53);
    device.inject(1, &question);
    let error = [&[3, 3, 0, 0, 0, 0, 0, 0], &question[14..]].concat();
    let frame = Ip4 { source: SERVER, destination: CLIENT, ..Ip4::default() }.frame(1, &error);
    assert_eq!(sent(device.inject(2, &frame)).0, 3);
}

#[test]
fn the_next_lookup_sees_zone_mark_label_and_the_original_tuple() {
    let mut device = device();
    let action = Conntrack { zone: 7, mark: Some((0xab, 0xff)), label: Some((5 << 64, u128::MAX)), ..commit() };
    device.add(flow(from(1), vec![ct(action), recirc(1)])).unwrap();
    device.add(flow(from(2), vec![ct(Conntrack { zone: 7, ..Conntrack::default() }), recirc(1)])).unwrap();
    let seen = |full: &mut Match| {
        is_ipv4(full);
        full.set_exact(Field::RecircId, 1);
        full.set_exact(Field::CtZone, 7);
        full.set_exact(Field::CtMark, 0xab);
        full.set_exact(Field::CtLabel, 5 << 64);
        full.set_exact(Field::CtTuple4Src, u32::from_be_bytes(CLIENT).into());
        full.set_exact(Field::CtTuple4Dst, u32::from_be_bytes(SERVER).into());
        full.set_exact(Field::CtTuple4Proto, 17);
        full.set_exact(Field::CtTuple4TpSrc, 1000);
        full.set_exact(Field::CtTuple4TpDst, 53);
    };
    device.add(flow(seen, vec![output(3)])).unwrap();
    assert_eq!(sent(device.inject(1, &datagram(CLIENT, 1000, SERVER, 53))).0, 3);
    assert_eq!(sent(device.inject(2, &datagram(SERVER, 53, CLIENT, 1000))).0, 3);
}

#[test]
fn clearing_hides_what_was_found() {
    let mut device = device();
    device.add(flow(from(1), vec![ct(commit()), Action::ConntrackClear, recirc(1)])).unwrap();
    device.add(flow(state(1, 0, 0xff), vec![output(2)])).unwrap();
    assert_eq!(sent(device.inject(1, &datagram(CLIENT, 1000, SERVER, 53))).0, 2);
}

/// A router that hides everybody at port 1 behind one address.
fn masquerade() -> Device {
    let mut device = device();
    let address = std::net::Ipv4Addr::from(OUTSIDE).into();
    let translation = Translation {
        side: NatSide::Source,
        addresses: Some((address, address)),
        ports: None,
        persistent: false,
        pick: PortPick::Default,
    };
    let out = Conntrack { nat: Some(Nat::New(translation)), ..commit() };
    let back = Conntrack { nat: Some(Nat::Existing), ..Conntrack::default() };
    device.add(flow(from(1), vec![ct(out), output(2)])).unwrap();
    device.add(flow(from(2), vec![ct(back), recirc(1)])).unwrap();
    device.add(flow(state(1, ESTABLISHED, ESTABLISHED), vec![output(1)])).unwrap();
    device.add(flow(state(1, RELATED, RELATED), vec![output(1)])).unwrap();
    device
}

#[test]
fn hosts_behind_one_address_each_get_their_answers() {
    let device = masquerade();
    for host in 1..=20 {
        let own = [10, 0, 0, host];
        let (_, out) = sent(device.inject(1, &datagram(own, 5000, SERVER, 53)));
        verify(&out);
        assert_eq!(out[26..30], OUTSIDE);
        let port = u16::from_be_bytes([out[34], out[35]]);
        let (_, back) = sent(device.inject(2, &datagram(SERVER, 53, OUTSIDE, port)));
        verify(&back);
        assert_eq!(back, datagram(SERVER, 53, own, 5000));
    }
    assert_eq!(device.nic.conntrack().len(), 20);
}

#[test]
fn an_error_comes_back_to_the_host_that_it_concerns() {
    let device = masquerade();
    let question = datagram(CLIENT, 5000, SERVER, 53);
    let (_, out) = sent(device.inject(1, &question));
    let error = |about: &[u8]| [&[3, 3, 0, 0, 0, 0, 0, 0], about].concat();
    let from_router = |destination, about: &[u8]| {
        Ip4 { source: [192, 0, 2, 1], destination, ..Ip4::default() }.frame(1, &error(about))
    };
    let (_, back) = sent(device.inject(2, &from_router(OUTSIDE, &out[14..])));
    verify(&back);
    assert_eq!(back, from_router(CLIENT, &question[14..]));
}

#[test]
fn a_destination_is_translated_to_a_server_and_back() {
    let mut device = device();
    let server = std::net::Ipv4Addr::new(10, 1, 0, 7).into();
    let translation = Translation {
        side: NatSide::Destination,
        addresses: Some((server, server)),
        ports: Some((8080, 8080)),
        persistent: false,
        pick: PortPick::Default,
    };
    let to_server = Conntrack { nat: Some(Nat::New(translation)), ..commit() };
    let back = Conntrack { nat: Some(Nat::Existing), ..Conntrack::default() };
    device.add(flow(from(1), vec![ct(to_server), output(2)])).unwrap();
    device.add(flow(from(2), vec![ct(back), output(1)])).unwrap();
    let (_, there) = sent(device.inject(1, &segment(CLIENT, 1000, SERVER, 80, 0x02, [100, 0])));
    assert_eq!(there, segment(CLIENT, 1000, [10, 1, 0, 7], 8080, 0x02, [100, 0]));
    let (_, here) = sent(device.inject(2, &segment([10, 1, 0, 7], 8080, CLIENT, 1000, 0x12, [500, 101])));
    assert_eq!(here, segment(SERVER, 80, CLIENT, 1000, 0x12, [500, 101]));
}

#[test]
fn fragments_are_tracked_as_one_and_leave_as_they_came() {
    let device = firewall();
    let whole = Ip4 { source: CLIENT, destination: SERVER, ..Ip4::default() }.frame(17, &udp(1000, 53, &[7; 100]));
    let piece = |cut: Range<usize>, more: u16| {
        let fragment = more | u16::try_from(cut.start / 8).unwrap();
        Ip4 { source: CLIENT, destination: SERVER, fragment, ..Ip4::default() }.frame(17, &whole[34..][cut])
    };
    let (first, last) = (piece(0..64, 0x2000), piece(64..108, 0));
    assert!(device.inject(1, &last).sent.is_empty(), "it waits");
    let out: Vec<_> = device.inject(1, &first).sent.into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(out, [first, last]);
    assert_eq!(sent(device.inject(2, &datagram(SERVER, 53, CLIENT, 1000))).0, 1);
    assert_eq!(device.nic.drops().conntrack.load(Ordering::Relaxed), 0, "to wait is not to be dropped");
}

#[test]
fn a_copy_of_what_came_in_pieces_leaves_in_the_largest_and_the_packet_in_its_own() {
    let mut device = Device::new();
    device.add(flow(from(1), vec![ct(commit()), output(2), output(3)])).unwrap();
    let whole = Ip4 { source: CLIENT, destination: SERVER, ..Ip4::default() }.frame(17, &udp(1000, 53, &[7; 100]));
    let out = [0..16, 16..72, 72..108].map(|cut| {
        let fragment = if cut.end == 108 { 0 } else { 0x2000 } | u16::try_from(cut.start / 8).unwrap();
        let piece =
            Ip4 { source: CLIENT, destination: SERVER, fragment, ..Ip4::default() }.frame(17, &whole[34..][cut]);
        device.inject(1, &piece).sent.into_iter().map(|(port, frame)| (port.0, frame.len() - 34)).collect::<Vec<_>>()
    });
    assert_eq!(out, [vec![], vec![], vec![(2, 56), (2, 52), (3, 16), (3, 56), (3, 36)]]);
}

#[test]
fn what_came_in_pieces_leaves_in_pieces_under_labels_unless_it_was_looked_up_with_them() {
    let label = |bos| Action::PushMpls(MplsEntry { label: 5, tc: 0, ttl: 9, bos, eth_type: 0x8847 });
    let whole = datagram(CLIENT, 1000, SERVER, 53);
    let piece = |fragment, cut: Range<usize>| {
        Ip4 { source: CLIENT, destination: SERVER, fragment, ..Ip4::default() }.frame(17, &whole[34..][cut])
    };
    let pieces = [piece(0x2000, 0..8), piece(1, 8..whole.len() - 34)];
    let under = |labels: usize| {
        let stack = [[0, 0, 0x50, 9], [0, 0, 0x51, 9]];
        let stack = stack[2 - labels..].concat();
        pieces.clone().map(|piece| [&piece[..12], &[0x88, 0x47], &stack, &piece[14..]].concat())
    };
    let sent_with = |actions: &[Action]| {
        let mut device = Device::new();
        let actions = [&[ct(Conntrack::default())][..], actions].concat();
        device.open_chain(ChainId(1));
        device.add(flow(v4(17), actions)).unwrap();
        let labelled = |full: &mut Match| {
            full.set_exact(Field::RecircId, 1);
            full.set_exact(Field::EthType, 0x8847);
        };
        device.add(flow(labelled, vec![output(2)])).unwrap();
        assert_eq!(device.inject(1, &pieces[0]).sent, []);
        device.inject(1, &pieces[1]).sent.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>()
    };
    assert_eq!(sent_with(&[label(true), output(2)]), under(1));
    assert_eq!(sent_with(&[label(true), label(false), output(2)]), under(2));
    assert_eq!(sent_with(&[label(true), Action::PopMpls(0x0800), output(2)]), pieces);
    assert_eq!(sent_with(&[label(true), recirc(1)]), Vec::<Vec<u8>>::new());
}

#[test]
fn a_packet_that_came_in_pieces_is_as_long_as_the_largest() {
    let whole = datagram(CLIENT, 1000, SERVER, 53);
    let piece = |fragment, cut: Range<usize>| {
        Ip4 { source: CLIENT, destination: SERVER, fragment, ..Ip4::default() }.frame(17, &whole[34..][cut])
    };
    let pieces = [piece(0x2000, 0..8), piece(1, 8..whole.len() - 34)];
    let largest = u16::try_from(pieces[0].len()).unwrap();
    let tag = Action::PushVlan(VlanTag { tpid: 0x8100, vid: 5, pcp: 0, cfi: true });
    for (length, port) in [(largest, 3), (largest - 1, 2)] {
        for before in [&[][..], std::slice::from_ref(&tag)] {
            let check =
                Action::CheckPacketLength { length, greater: [output(2)].into(), less_or_equal: [output(3)].into() };
            let mut device = Device::new();
            let actions = [&[ct(Conntrack::default())][..], before, &[check]].concat();
            device.add(flow(v4(17), actions)).unwrap();
            device.inject(1, &pieces[0]);
            let ports: Vec<_> = device.inject(1, &pieces[1]).sent.into_iter().map(|(port, _)| port.0).collect();
            assert_eq!(ports, [port; 2], "{length} bytes");
        }
    }
}

#[test]
fn a_packet_that_is_not_tracked_in_a_copy_goes_no_further_itself() {
    let mut device = Device::new();
    let only = Translation {
        side: NatSide::Source,
        addresses: Some((OUTSIDE.into(), OUTSIDE.into())),
        ports: Some((5000, 5000)),
        persistent: false,
        pick: PortPick::Default,
    };
    let full = ct(Conntrack { zone: 9, nat: Some(Nat::New(only)), ..commit() });
    let copies = Action::Clone([Action::Clone([full, output(3)].into()), output(4)].into());
    device.add(flow(from(4), vec![copies, output(2)])).unwrap();
    let out = [1, 2].map(|host| {
        let sent = device.inject(4, &datagram([10, 0, 0, host], 1000, SERVER, 53)).sent;
        sent.into_iter().map(|(port, _)| port.0).collect::<Vec<_>>()
    });
    assert_eq!(out, [vec![3, 4, 2], vec![]]);
    assert_eq!(device.nic.drops().conntrack.load(Ordering::Relaxed), 1, "it is one packet");
}

#[test]
fn a_fragment_that_goes_on_alone_counts_as_whole() {
    let mut device = device();
    device.add(flow(is_ipv6, vec![ct(Conntrack::default()), recirc(1)])).unwrap();
    for (fragment, port) in [(0, 2), (1, 3), (2, 3)] {
        let seen = |full: &mut Match| {
            is_ipv6(full);
            full.set_exact(Field::RecircId, 1);
            full.set_exact(Field::Ipv6Frag, fragment);
        };
        device.add(flow(seen, vec![ct(Conntrack::default()), output(port)])).unwrap();
    }
    // A first one that ends within the header of UDP, and a later one of seven bytes with more to come.
    for fragment in [&[17, 0, 0, 1, 0, 0, 0, 7, 0x10, 0, 0, 53][..], &[17, 0, 0, 9, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7]] {
        let frame = eth(0x86dd, &ipv6(44, fragment));
        assert_eq!(sent(device.inject(1, &frame)), (2, frame));
    }
}

#[test]
fn overlapping_fragments_are_dropped_and_counted() {
    let device = firewall();
    let payload = udp(1000, 53, &[7; 100]);
    let piece = |start: usize, end: usize| {
        let fragment = 0x2000 | u16::try_from(start / 8).unwrap();
        Ip4 { source: CLIENT, destination: SERVER, fragment, ..Ip4::default() }.frame(17, &payload[start..end])
    };
    device.inject(1, &piece(0, 64));
    device.inject(1, &piece(56, 96));
    assert_eq!(device.nic.drops().conntrack.load(Ordering::Relaxed), 1);
    assert_eq!(device.nic.conntrack().losses().fragment.load(Ordering::Relaxed), 1);
    assert_eq!(device.nic.lookup_counters().unwrap().lost, Some(1));
    let why = "it was a malformed, doubled or overlapping fragment, or too many waited";
    assert_eq!(device.nic.notes(), [format!("packets that went no further: 1, {why}")]);
}

#[test]
fn ipv6_is_tracked_with_its_own_tuple() {
    let mut device = device();
    device.add(flow(is_ipv6, vec![ct(commit()), recirc(1)])).unwrap();
    let seen = |full: &mut Match| {
        is_ipv6(full);
        full.set_exact(Field::RecircId, 1);
        full.set(Field::CtState, NEW | TRACKED, 0xff);
        full.set_exact(Field::CtTuple6Src, crate::frames::SRC_V6);
        full.set_exact(Field::CtTuple6Dst, crate::frames::DST_V6);
        full.set_exact(Field::CtTuple6TpDst, 53);
    };
    device.add(flow(seen, vec![output(2)])).unwrap();
    let frame = fill(eth(0x86dd, &ipv6(17, &udp(1000, 53, b"payload"))));
    assert_eq!(sent(device.inject(1, &frame)), (2, frame));
}

#[test]
fn what_the_device_does_not_have_is_refused_by_name() {
    let mut device = device();
    for (action, word) in [
        (Conntrack { timeout: Some("slow".into()), ..Conntrack::default() }, "timeout=slow"),
        (
            Conntrack { helper: Some("sip".into()), ..commit() },
            "helper=sip: there is no such application layer gateway",
        ),
        (Conntrack { helper: Some("ftp".into()), ..commit() }, "helper=ftp without a match on proto=6"),
    ] {
        let refusal = device.add(flow(is_ipv4, vec![ct(action)])).unwrap_err();
        assert!(refusal.to_string().contains(word), "{refusal}");
    }
    let refusal = device.add(flow(|_| {}, vec![ct(commit())])).unwrap_err();
    assert!(matches!(refusal, Refusal::Combination { .. }));
}

#[test]
fn a_rule_follows_the_timeout_policy_that_it_names_and_holds_it() {
    let mut device = device();
    let short = Conntrack { timeout: Some("short".into()), ..commit() };
    let rule = || flow(from(1), vec![ct(short.clone()), output(2)]);
    let refusal = device.add(rule()).unwrap_err();
    assert_eq!(refusal.cause(), Some(Cause::TimeoutPolicy));
    let mut policy = TimeoutPolicy::new("short");
    policy.set(TimeoutKey::UdpSingle, 5);
    device.nic.set_timeout_policy(&policy).unwrap();
    let changed = DeviceEvent::Changed { cause: Cause::TimeoutPolicy };
    assert!(device.nic.events().drain().contains(&changed), "what was refused may be tried again");
    let handle = device.add(rule()).unwrap();
    device.add(flow(from(2), vec![ct(Conntrack::default()), recirc(2)])).unwrap();
    device.add(flow(state(2, ESTABLISHED, ESTABLISHED), vec![output(1)])).unwrap();
    device.add(flow(state(2, NEW, NEW), vec![])).unwrap();
    for (seconds, passes) in [(4, 1), (5, 0)] {
        device.inject(1, &datagram(CLIENT, 1000, SERVER, 53));
        device.clock.advance(Duration::from_secs(seconds));
        assert_eq!(device.inject(2, &datagram(SERVER, 53, CLIENT, 1000)).sent.len(), passes);
        device.clock.advance(Duration::from_secs(100));
    }
    let refusal = device.nic.remove_timeout_policy("short").unwrap_err();
    assert!(refusal.to_string().contains("used by 1"), "{refusal}");
    device.remove(handle);
    device.nic.remove_timeout_policy("short").unwrap();
}
