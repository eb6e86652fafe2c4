//! When a connection is new, established and forgotten, and what is kept of it.

use std::sync::atomic::Ordering;

use sluice_flow::action::{Commit, Conntrack as Action};

use super::{CLIENT, SERVER, World, commit, in_zone, look, tcp, udp};
use crate::conntrack::state::bit::{ESTABLISHED, NEW, REPLY, TRACKED};
use crate::conntrack::*;

#[test]
fn a_connection_is_new_until_it_is_committed_and_established_once_it_is_answered() {
    let world = World::new();
    let question = udp(CLIENT, 1000, SERVER, 53);
    let answer = udp(SERVER, 53, CLIENT, 1000);
    assert_eq!(world.state(&look(), &question), NEW | TRACKED);
    assert!(world.conntrack.is_empty(), "looking enters nothing");
    assert_eq!(world.state(&look(), &answer), NEW | TRACKED, "so this is another one");
    world.send(&commit(), &question).unwrap();
    assert_eq!(world.conntrack.len(), 1);
    assert_eq!(world.state(&look(), &question), NEW | TRACKED, "nobody answered yet");
    assert_eq!(world.state(&look(), &answer), ESTABLISHED | REPLY | TRACKED);
    assert_eq!(world.state(&look(), &question), ESTABLISHED | TRACKED);
}

#[test]
fn a_question_that_its_answer_overtakes_goes_on_and_one_of_tcp_does_not() {
    let world = World::new();
    let mut question = world.send(&look(), &udp(CLIENT, 1000, SERVER, 53)).unwrap();
    world.send(&commit(), &udp(SERVER, 53, CLIENT, 1000)).unwrap();
    assert_eq!(world.again(&commit(), &mut question), Ok(()));
    assert_eq!(world.conntrack.len(), 1);
    let mut segment = world.send(&look(), &tcp(CLIENT, 1000, SERVER, 80, 0x02, 100, 0)).unwrap();
    world.send(&commit(), &tcp(SERVER, 80, CLIENT, 1000, 0x02, 500, 0)).unwrap();
    assert_eq!(world.again(&commit(), &mut segment), Err(Stop::Dropped));
}

#[test]
fn a_udp_connection_is_forgotten_in_half_a_minute_and_a_stream_in_two() {
    let world = World::new();
    let question = udp(CLIENT, 1000, SERVER, 53);
    let answer = udp(SERVER, 53, CLIENT, 1000);
    world.send(&commit(), &question).unwrap();
    world.wait(29);
    assert_eq!(world.state(&look(), &answer), ESTABLISHED | REPLY | TRACKED);
    assert_eq!(world.state(&look(), &question), ESTABLISHED | TRACKED, "which makes it a stream");
    world.wait(119);
    assert_eq!(world.state(&look(), &question), ESTABLISHED | TRACKED);
    world.wait(120);
    assert_eq!(world.state(&look(), &question), NEW | TRACKED);
    world.send(&commit(), &question).unwrap();
    world.wait(30);
    assert_eq!(world.state(&look(), &answer), NEW | TRACKED, "never answered");
}

#[test]
fn the_original_direction_is_the_same_in_packets_of_both() {
    let world = World::new();
    let question = udp(CLIENT, 1000, SERVER, 53);
    let packet = world.send(&commit(), &question).unwrap();
    let original = packet.metadata.connection.original;
    assert_eq!(original, Some(frames::tuple(17, "10.0.0.1:1000", "192.0.2.9:53")));
    let packet = world.send(&look(), &udp(SERVER, 53, CLIENT, 1000)).unwrap();
    assert_eq!(packet.metadata.connection.original, original);
}

#[test]
fn zones_know_nothing_of_each_other() {
    let world = World::new();
    let question = udp(CLIENT, 1000, SERVER, 53);
    let answer = udp(SERVER, 53, CLIENT, 1000);
    world.send(&in_zone(5, commit()), &question).unwrap();
    let packet = world.send(&in_zone(6, look()), &answer).unwrap();
    assert_eq!((packet.metadata.connection.state, packet.metadata.connection.zone), (NEW | TRACKED, 6));
    assert_eq!(world.state(&in_zone(5, look()), &answer), ESTABLISHED | REPLY | TRACKED);
}

#[test]
fn a_packet_can_go_through_one_zone_after_another() {
    let world = World::new();
    let mut packet = world.send(&in_zone(5, commit()), &udp(CLIENT, 1000, SERVER, 53)).unwrap();
    world.again(&in_zone(6, commit()), &mut packet).unwrap();
    assert_eq!(packet.metadata.connection.zone, 6);
    assert_eq!(world.conntrack.len(), 2);
}

#[test]
fn mark_and_label_are_set_under_their_masks_and_seen_by_all_packets() {
    let world = World::new();
    let question = udp(CLIENT, 1000, SERVER, 53);
    let with = |mark, label| Action { mark: Some(mark), label: Some(label), ..commit() };
    world.send(&with((0x1234, 0xffff), (7, u128::MAX)), &question).unwrap();
    let packet = world.send(&with((0x0055, 0x00ff), (1 << 127, 1 << 127)), &question).unwrap();
    assert_eq!(packet.metadata.connection.mark, 0x1255);
    let packet = world.send(&look(), &udp(SERVER, 53, CLIENT, 1000)).unwrap();
    assert_eq!(packet.metadata.connection.mark, 0x1255);
    assert_eq!(packet.metadata.connection.label, 1 << 127 | 7);
}

#[test]
fn a_packet_is_committed_by_what_was_found_before() {
    let world = World::new();
    let mut packet = world.send(&look(), &udp(CLIENT, 1000, SERVER, 53)).unwrap();
    world.again(&commit(), &mut packet).unwrap();
    assert_eq!(packet.metadata.connection.state, NEW | TRACKED);
    assert_eq!(world.conntrack.len(), 1);
}

#[test]
fn clearing_forgets_what_was_found() {
    let world = World::new();
    let mut packet = world.send(&in_zone(5, commit()), &udp(CLIENT, 1000, SERVER, 53)).unwrap();
    clear(&mut packet);
    assert_eq!(packet.metadata.connection, ConnectionKey::default());
}

#[test]
fn force_turns_a_connection_round() {
    let world = World::new();
    let there = udp(CLIENT, 1000, SERVER, 53);
    let back = udp(SERVER, 53, CLIENT, 1000);
    let force = Action { commit: Commit::Force, ..commit() };
    world.send(&commit(), &there).unwrap();
    assert_eq!(world.state(&commit(), &back), ESTABLISHED | REPLY | TRACKED, "a commit leaves it");
    assert_eq!(world.state(&force, &back), NEW | TRACKED);
    assert_eq!(world.conntrack.len(), 1);
    assert_eq!(world.state(&look(), &there), ESTABLISHED | REPLY | TRACKED);
    let packet = world.send(&force, &back).unwrap();
    assert_eq!(packet.metadata.connection.state, ESTABLISHED | TRACKED, "in its own direction it stays");
}

#[test]
fn other_addresses_make_it_another_connection() {
    let world = World::new();
    let mut packet = world.send(&commit(), &udp(CLIENT, 1000, SERVER, 53)).unwrap();
    packet.bytes = [&packet.bytes[..14], &udp(CLIENT, 1000, "192.0.2.10", 53)].concat();
    world.again(&commit(), &mut packet).unwrap();
    assert_eq!(world.conntrack.len(), 2);
}

#[test]
fn a_full_table_drops_newcomers_while_all_are_assured() {
    let world = World { conntrack: Conntrack::with_limit(1), ..World::new() };
    world.send(&commit(), &udp(CLIENT, 1000, SERVER, 53)).unwrap();
    world.send(&commit(), &udp(CLIENT, 1001, SERVER, 53)).unwrap();
    assert_eq!((world.conntrack.len(), world.conntrack.evicted()), (1, 1));
    world.send(&look(), &udp(SERVER, 53, CLIENT, 1001)).unwrap();
    world.wait(3);
    world.send(&look(), &udp(CLIENT, 1001, SERVER, 53)).unwrap();
    let newcomer = udp(CLIENT, 1002, SERVER, 53);
    assert_eq!(world.send(&look(), &newcomer).err(), Some(Stop::Dropped));
    assert_eq!(world.conntrack.losses().full.load(Ordering::Relaxed), 1);
    world.wait(120);
    world.send(&commit(), &newcomer).unwrap();
    assert_eq!(world.conntrack.evicted(), 1, "what has expired is not evicted");
}

#[test]
fn threads_that_commit_the_same_connection_make_one() {
    let world = World::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for port in 0..200 {
                    world.send(&commit(), &udp(CLIENT, port, SERVER, 53)).unwrap();
                    world.send(&look(), &udp(SERVER, 53, CLIENT, port)).unwrap();
                }
            });
        }
    });
    assert_eq!(world.conntrack.len(), 200);
}
