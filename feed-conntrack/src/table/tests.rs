//! Comparisons, and what becomes of flows by what they count.

use std::time::{Duration, Instant};

use sluice_ctnetlink::wire::{TCP, UDP, status};
use sluice_flow::Ufid;
use sluice_flow::connection::Direction;
use sluice_flow::source::Standing;
use sluice_flow::table::FlowState;

use super::{By, PACE, REOPEN, Table};
use crate::entry::Entry;
use crate::kernel::Timeouts;

const SETTING: Duration = Duration::from_secs(432_000);
/// What a kernel is set to, and one that does not say it.
const SETTINGS: Timeouts = Timeouts {
    tcp: Some(SETTING),
    of_data: [Some(Duration::from_secs(300)); 2],
    udp: Some(Duration::from_secs(120)),
    ending: Duration::from_secs(120),
};
const UNKNOWN: Timeouts = Timeouts { tcp: None, of_data: [None; 2], udp: None, ending: Duration::ZERO };

fn entry(port: u16, timeout: u64) -> Entry {
    let direction = |source: [u8; 4], destination: [u8; 4], ports: [u16; 2]| Direction {
        source: source.into(),
        destination: destination.into(),
        protocol: TCP,
        source_port: ports[0],
        destination_port: ports[1],
    };
    Entry {
        original: direction([10, 1, 0, 2], [10, 2, 0, 2], [port, 5000]),
        reply: direction([10, 2, 0, 2], [10, 2, 0, 1], [5000, port]),
        id: 1,
        status: status::ASSURED,
        mark: 0,
        has_helper: false,
        is_established: Some(true),
        timeout: Some(Duration::from_secs(timeout)),
    }
}

fn standing(ufid: u128, packets: u64) -> Standing {
    let (state, waits_for, bytes, idle, tcp_flags) = (FlowState::Offloaded, None, 0, None, 0);
    Standing { ufid: Ufid(ufid), state, waits_for, packets, bytes, idle, tcp_flags }
}

/// A connection with three flows in its original direction, 1 to 3, and one in the other, 4.
fn table(now: Instant) -> (Table, Direction) {
    let mut table = Table::default();
    let entry = entry(40_000, 5);
    let original = entry.original;
    assert!(table.put(entry, By::Packet, &UNKNOWN, now));
    for (variant, ufid) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(table.own(original, 0, variant, Some(Ufid(ufid))), None);
    }
    assert_eq!(table.own(original, 1, 0, Some(Ufid(4))), None);
    (table, original)
}

fn look(table: &mut Table, counted: &[(u128, u64)], now: Instant) -> Vec<Direction> {
    table.begin_look();
    for (ufid, packets) in counted {
        assert!(table.count(&standing(*ufid, *packets), now), "{ufid}");
    }
    let mut unsettled = table.missing();
    unsettled.extend(table.narrow(now));
    unsettled
}

#[test]
fn after_a_comparison_there_is_what_was_put_again_and_nothing_else() {
    let (mut table, now) = (Table::default(), Instant::now());
    for port in 1..=4 {
        assert!(table.put(entry(port, 100), By::Dump, &SETTINGS, now));
    }
    table.begin_comparison();
    assert!(!table.put(entry(2, 90), By::Dump, &SETTINGS, now), "it is as it was");
    let mut closing = entry(3, 90);
    closing.is_established = Some(false);
    assert!(table.put(closing, By::Dump, &SETTINGS, now));
    assert!(table.put(entry(5, 90), By::Dump, &SETTINGS, now), "it is new");
    let mut gone: Vec<_> = table.gone().iter().map(|original| original.source_port).collect();
    gone.sort_unstable();
    assert_eq!(gone, [1, 4]);
}

/// How long a connection is taken to live.
fn life(table: &Table, port: u16) -> Duration {
    table.connections[&entry(port, 0).original].life
}

#[test]
fn a_connection_lives_as_long_as_the_kernel_says_of_it_or_is_set_to() {
    let (mut table, now) = (Table::default(), Instant::now());
    // An event comes with the whole time, cut off to seconds.
    table.put(entry(1, 5), By::Packet, &UNKNOWN, now);
    assert_eq!(life(&table, 1), Duration::from_secs(6));
    // Of TCP, that of data which is not acknowledged may be shorter.
    table.put(entry(3, 299), By::Packet, &SETTINGS, now);
    assert_eq!(life(&table, 3), SETTING);
    // A dump comes at any time of its life.
    table.put(entry(2, 70), By::Dump, &SETTINGS, now);
    assert_eq!(life(&table, 2), SETTING);
    table.put(entry(2, 60), By::Request, &SETTINGS, now);
    assert_eq!(life(&table, 2), SETTING, "somebody has changed something else");
    assert!(table.connections[&entry(2, 0).original].is_told);
}

#[test]
fn a_connection_that_a_policy_of_timeouts_is_for_lives_as_long_as_that_says() {
    let (mut table, now) = (Table::default(), Instant::now());
    for (port, seconds) in [(1, 59), (2, 60), (3, 3_599), (4, 999_999)] {
        table.put(entry(port, seconds), By::Packet, &SETTINGS, now);
        assert_eq!(life(&table, port), Duration::from_secs(seconds + 1));
    }
    // Data that is not acknowledged, and a change that somebody else asks for, say nothing of it.
    table.put(entry(3, 299), By::Packet, &SETTINGS, now);
    table.put(entry(3, 17), By::Packet, &SETTINGS, now);
    table.put(entry(3, 3_700), By::Request, &SETTINGS, now);
    table.put(entry(3, 20), By::Dump, &SETTINGS, now);
    assert_eq!(life(&table, 3), Duration::from_secs(3_600));
    // One that was first heard of in the middle is known once a packet is told of.
    table.put(entry(5, 17), By::Dump, &SETTINGS, now);
    assert_eq!(life(&table, 5), SETTING);
    table.put(entry(5, 59), By::Packet, &SETTINGS, now);
    assert_eq!(life(&table, 5), Duration::from_secs(60));
    // TCP that ends has timeouts for each of its states.
    let ending = Entry { is_established: Some(false), ..entry(6, 119) };
    table.put(ending, By::Packet, &SETTINGS, now);
    assert_eq!(life(&table, 6), SETTING);
    // A later one of the same name has another policy, or none.
    table.put(Entry { id: 2, ..entry(1, 299) }, By::Packet, &SETTINGS, now);
    assert_eq!(life(&table, 1), SETTING);

    let datagrams = |port, seconds| {
        let mut entry = Entry { is_established: None, ..entry(port, seconds) };
        (entry.original.protocol, entry.reply.protocol) = (UDP, UDP);
        entry
    };
    let mut life = |by, seconds| {
        table.put(datagrams(7, seconds), by, &SETTINGS, now);
        table.connections[&datagrams(7, 0).original].life
    };
    assert_eq!(life(By::Request, 5), Duration::from_secs(120), "it may be late in its life");
    assert_eq!(life(By::Packet, 29), Duration::from_secs(30));
    assert_eq!(life(By::Request, 5), Duration::from_secs(30));
}

#[test]
fn a_timeout_is_worth_setting_once_packets_are_counted_and_then_at_a_pace() {
    let now = Instant::now();
    let (mut table, original) = table(now);
    assert!(table.connections[&original].due <= now, "the kernel may have another one by now, for data in software");
    look(&mut table, &[(1, 5), (2, 0), (3, 0), (4, 0)], now);
    let connection = table.connections.get_mut(&original).unwrap();
    assert!(connection.has_moved);
    assert_eq!(connection.refresh(now), Duration::from_secs(6));
    assert_eq!((connection.has_moved, connection.due), (false, now + Duration::from_millis(1500)));
    connection.life = SETTING;
    connection.refresh(now);
    assert_eq!(connection.due, now + PACE);
}

#[test]
fn an_event_that_does_not_tell_the_state_leaves_it_as_it_was() {
    let (mut table, now) = (Table::default(), Instant::now());
    table.put(entry(1, 5), By::Packet, &UNKNOWN, now);
    let untold = Entry { is_established: None, ..entry(1, 5) };
    assert!(!table.put(untold, By::Packet, &UNKNOWN, now));
    assert_eq!(table.connections[&entry(1, 0).original].entry.is_established, Some(true));
}

/// Which variants of the original direction are not wanted.
fn closed(table: &Table, original: &Direction) -> [bool; 3] {
    table.connections[original].sides[0].variants.map(|variant| variant.is_closed)
}

#[test]
fn of_flows_for_different_ttls_those_stay_that_count_until_none_does_and_packets_go_on() {
    let now = Instant::now();
    let (mut table, original) = table(now);
    assert_eq!(look(&mut table, &[(1, 0), (2, 0), (3, 0), (4, 0)], now), []);
    assert!(!table.connections[&original].has_moved);
    assert_eq!(look(&mut table, &[(1, 0), (2, 7), (3, 0), (4, 0)], now), [original]);
    assert_eq!(closed(&table, &original), [true, false, true]);
    assert!(table.connections[&original].has_moved);
    for variant in [0, 2] {
        assert!(table.own(original, 0, variant, None).is_some());
    }
    let later = now + REOPEN;
    assert_eq!(look(&mut table, &[(2, 8), (4, 0)], later), []);
    // A connection that rests needs no more flows.
    let later = later + REOPEN;
    assert_eq!(look(&mut table, &[(2, 8), (4, 0)], later), []);
    // What it is answered with goes on, and it counts nothing: packets may have another TTL now.
    assert_eq!(look(&mut table, &[(2, 8), (4, 1)], later), [original]);
    assert_eq!(closed(&table, &original), [false; 3]);
    table.own(original, 0, 0, Some(Ufid(1)));
    assert_eq!(look(&mut table, &[(1, 0), (2, 8), (4, 1)], later), [], "what was counted before says nothing");
    assert_eq!(look(&mut table, &[(1, 3), (2, 8), (4, 1)], later), [original]);
    assert_eq!(closed(&table, &original), [false, true, true]);
}

#[test]
fn a_connection_begins_with_the_flows_that_have_counted_what_its_sender_sends() {
    let now = Instant::now();
    let (mut table, original) = table(now);
    look(&mut table, &[(1, 0), (2, 7), (3, 0), (4, 0)], now);
    table.put(entry(7, 5), By::Packet, &UNKNOWN, now);
    let next = entry(7, 0).original;
    assert_eq!(closed(&table, &next), [true, false, true]);
    let answers = table.connections[&next].sides[1].variants.map(|variant| variant.is_closed);
    assert_eq!(answers, [false; 3], "of who answers nothing is known");
    assert_eq!(table.own(next, 0, 1, Some(Ufid(9))), None);

    // Its packets have another TTL, and pass by in software, where the kernel sees them.
    let refreshed = now + Duration::from_secs(40);
    table.put(entry(7, 4), By::Dump, &UNKNOWN, refreshed);
    let others = [(1, 0), (2, 7), (3, 0), (4, 0), (9, 0)];
    assert_eq!(look(&mut table, &others, refreshed), [next]);
    assert_eq!(closed(&table, &next), [false; 3]);
    assert_eq!(table.own(next, 0, 0, Some(Ufid(10))), None);
    look(&mut table, &[(1, 0), (2, 7), (3, 0), (4, 0), (9, 0), (10, 1)], refreshed);
    assert_eq!(closed(&table, &next), [false, true, true]);
    // From then on its sender is known to have both.
    table.put(entry(8, 5), By::Packet, &UNKNOWN, now);
    assert_eq!(closed(&table, &entry(8, 0).original), [false, false, true]);
    assert_eq!(closed(&table, &original), [true, false, true]);
}

#[test]
fn a_connection_that_begins_has_flows_once_it_is_old_enough_and_one_that_was_there_at_once() {
    let (after, now) = (Duration::from_secs(2), Instant::now());
    let mut table = Table::new(after);
    let is_ripe = |table: &Table, port, at| table.connections[&entry(port, 0).original].is_ripe(at);
    table.put(entry(1, 5), By::Packet, &UNKNOWN, now);
    table.put(entry(2, 5), By::Dump, &SETTINGS, now);
    table.put(entry(3, 5), By::Packet, &UNKNOWN, now);
    assert!(!is_ripe(&table, 1, now) && is_ripe(&table, 2, now));
    assert_eq!(table.ripened(now), []);
    // One ends, and begins anew.
    table.remove(&entry(3, 0).original);
    let later = now + after;
    table.put(entry(3, 5), By::Packet, &UNKNOWN, later);
    assert_eq!(table.ripened(later), [entry(1, 0).original]);
    assert!(is_ripe(&table, 1, later) && !is_ripe(&table, 3, later));
    assert_eq!(table.ripened(later + after), [entry(3, 0).original]);
    assert_eq!(table.ripened(later + after), [], "each is said once");
}

#[test]
fn it_is_known_whether_there_are_flows_of_whose_changes_the_kernel_tells_nothing() {
    let now = Instant::now();
    let (mut table, told) = table(now);
    assert!(!table.has_silent());
    for port in [1, 2] {
        table.put(entry(port, 100), By::Dump, &SETTINGS, now);
        assert_eq!(table.own(entry(port, 0).original, 0, 0, Some(Ufid(100 + u128::from(port)))), None);
        assert!(table.has_silent());
    }
    table.put(entry(1, 100), By::Packet, &SETTINGS, now);
    assert!(table.has_silent());
    table.own(entry(2, 0).original, 0, 0, None);
    assert!(!table.has_silent());
    table.own(entry(2, 0).original, 0, 0, Some(Ufid(102)));
    assert!(table.has_silent());
    table.remove(&entry(2, 0).original);
    table.remove(&told);
    assert!(!table.has_silent());
}

#[test]
fn flows_that_somebody_has_taken_away_are_missed_and_those_of_nobody_found() {
    let now = Instant::now();
    let (mut table, original) = table(now);
    assert_eq!(look(&mut table, &[(1, 0), (2, 0), (3, 0)], now), [original]);
    table.begin_look();
    assert!(!table.count(&standing(99, 1), now));
    assert_eq!(table.placed(), 1);
    let removed = table.remove(&original).unwrap();
    assert_eq!(table.placed(), 0);
    assert_eq!(removed.ufids().count(), 4);
    table.begin_look();
    assert!(!table.count(&standing(1, 1), now));
}

#[test]
fn a_connection_that_has_ended_does_not_keep_the_timeout_that_was_set_while_it_was_taken_for_established() {
    let ending = Duration::from_secs(120);
    let now = Instant::now();
    let (mut table, original) = table(now);
    let later = now + Duration::from_secs(100);
    let connection = table.connections.get_mut(&original).unwrap();
    connection.life = SETTING;
    let left = SETTING - Duration::from_secs(101);
    assert_eq!(connection.correction(left, ending, later), None, "it was not set here");
    connection.refresh(now);
    assert_eq!(connection.correction(left, ending, later), Some(ending));
    assert_eq!(connection.correction(Duration::from_secs(600), ending, later), None, "the kernel has set it since");
    connection.life = Duration::from_secs(60);
    connection.refresh(now);
    assert_eq!(connection.correction(Duration::from_secs(59), ending, now), None, "nothing lives longer by it");
}

#[test]
fn a_connection_that_the_kernel_refuses_to_change_is_asked_about_again_once_it_is_another_way() {
    let now = Instant::now();
    let (mut table, original) = table(now);
    table.refuse(&[entry(40_000, 5).name()]);
    table.put(entry(40_000, 5), By::Packet, &UNKNOWN, now);
    assert!(table.connections[&original].is_refused);
    let fixed = Entry { status: status::ASSURED | status::FIXED_TIMEOUT, ..entry(40_000, 5) };
    table.put(fixed, By::Packet, &UNKNOWN, now);
    assert!(!table.connections[&original].is_refused);
}

#[test]
fn one_that_has_begun_anew_without_a_word_of_the_kernel_is_told_to_be_liberal_again() {
    let now = Instant::now();
    let (mut table, original) = table(now);
    let connection = table.connections.get_mut(&original).unwrap();
    connection.is_liberal = true;
    connection.refresh(now);
    assert!(!table.put(entry(40_000, 5), By::Dump, &UNKNOWN, now));
    assert!(table.connections[&original].is_liberal);
    let later = Entry { id: 2, is_established: None, ..entry(40_000, 5) };
    assert!(table.put(later, By::Packet, &UNKNOWN, now), "its flows are looked at again");
    let connection = &table.connections[&original];
    assert!(!connection.is_liberal && connection.refreshed.is_none());
    assert_eq!(connection.entry.is_established, None);
    assert_eq!(connection.ufids().count(), 4, "and stay as long");
}

#[test]
fn a_flow_that_a_later_connection_has_does_not_end_with_the_one_before() {
    let now = Instant::now();
    let (mut table, before) = table(now);
    // Other packets, with the same answers.
    table.put(entry(40_001, 5), By::Packet, &UNKNOWN, now);
    let later = entry(40_001, 0).original;
    assert_eq!(table.own(later, 1, 0, Some(Ufid(4))), None);
    assert_eq!(table.placed(), 2);
    assert_eq!(table.remove(&before).unwrap().ufids().collect::<Vec<_>>(), [Ufid(1), Ufid(2), Ufid(3)]);
    assert_eq!((table.placed(), table.owned()), (1, 1));
    table.begin_look();
    assert!(table.count(&standing(4, 1), now));
    assert!(table.connections[&later].has_moved);
}
