//! Translated there and back.

use std::sync::atomic::Ordering;

use sluice_flow::action::{Conntrack as Action, Nat, NatSide, PortPick, Translation};

use super::{CLIENT, SERVER, World, commit, commit_nat, ip, nat, tcp, udp, unreachable};
use crate::conntrack::state::bit::{DESTINATION_NAT, ESTABLISHED, NEW, RELATED, REPLY, SOURCE_NAT, TRACKED};
use crate::conntrack::tuple::Family;
use crate::conntrack::*;

#[test]
fn source_translation_works_both_ways_and_restores_every_byte() {
    let world = World::new();
    let action = commit_nat(NatSide::Source, "198.51.100.1", None);
    let question = udp(CLIENT, 1000, SERVER, 53);
    let sent = world.send(&action, &question).unwrap();
    assert_eq!(sent.metadata.connection.state, NEW | TRACKED | SOURCE_NAT);
    assert_eq!(ip(&sent), udp("198.51.100.1", 1000, SERVER, 53));
    let received = world.send(&nat(), &udp(SERVER, 53, "198.51.100.1", 1000)).unwrap();
    assert_eq!(received.metadata.connection.state, ESTABLISHED | REPLY | TRACKED | DESTINATION_NAT);
    assert_eq!(ip(&received), udp(SERVER, 53, CLIENT, 1000));
    let sent = world.send(&nat(), &question).unwrap();
    assert_eq!(sent.metadata.connection.state, ESTABLISHED | TRACKED | SOURCE_NAT);
    assert_eq!(ip(&sent), udp("198.51.100.1", 1000, SERVER, 53));
}

#[test]
fn destination_translation_works_both_ways() {
    let world = World::new();
    let action = commit_nat(NatSide::Destination, "10.1.0.7", Some((8080, 8080)));
    let sent = world.send(&action, &tcp(CLIENT, 1000, SERVER, 80, 0x02, 100, 0)).unwrap();
    assert_eq!(ip(&sent), tcp(CLIENT, 1000, "10.1.0.7", 8080, 0x02, 100, 0));
    // The source is looked after, too, so that two can be told apart.
    assert_eq!(sent.metadata.connection.state, NEW | TRACKED | SOURCE_NAT | DESTINATION_NAT);
    let received = world.send(&nat(), &tcp("10.1.0.7", 8080, CLIENT, 1000, 0x12, 500, 101)).unwrap();
    assert_eq!(ip(&received), tcp(SERVER, 80, CLIENT, 1000, 0x12, 500, 101));
    assert_eq!(received.metadata.connection.state, ESTABLISHED | REPLY | TRACKED | SOURCE_NAT);
}

#[test]
fn ipv6_is_translated_like_ipv4() {
    let world = World::new();
    let udp = |source, from, destination, to| {
        frames::summed(Family::V6, frames::v6(source, destination, 17, &frames::udp(from, to, b"payload")))
    };
    let action = commit_nat(NatSide::Source, "2001:db8::100", Some((4000, 4010)));
    let sent = world.send(&action, &udp("fd00::1", 1000, "2001:db8::53", 53)).unwrap();
    let port = u16::from_be_bytes([ip(&sent)[40], ip(&sent)[41]]);
    assert!((4000..=4010).contains(&port));
    assert_eq!(ip(&sent), udp("2001:db8::100", port, "2001:db8::53", 53));
    let received = world.send(&nat(), &udp("2001:db8::53", 53, "2001:db8::100", port)).unwrap();
    assert_eq!(ip(&received), udp("2001:db8::53", 53, "fd00::1", 1000));
}

#[test]
fn two_hosts_with_the_same_port_get_two() {
    let world = World::new();
    let action = commit_nat(NatSide::Source, "198.51.100.1", None);
    world.send(&action, &udp("10.0.0.1", 5000, SERVER, 53)).unwrap();
    let second = world.send(&action, &udp("10.0.0.2", 5000, SERVER, 53)).unwrap();
    let port = u16::from_be_bytes([ip(&second)[20], ip(&second)[21]]);
    assert_ne!(port, 5000);
    assert!(port >= 1024);
    let received = world.send(&nat(), &udp(SERVER, 53, "198.51.100.1", port)).unwrap();
    assert_eq!(ip(&received), udp(SERVER, 53, "10.0.0.2", 5000));
    let received = world.send(&nat(), &udp(SERVER, 53, "198.51.100.1", 5000)).unwrap();
    assert_eq!(ip(&received), udp(SERVER, 53, "10.0.0.1", 5000));
}

#[test]
fn a_range_that_is_exhausted_lets_nobody_else_in() {
    let world = World::new();
    let action = commit_nat(NatSide::Source, "198.51.100.1", Some((5000, 5001)));
    for host in ["10.0.0.1", "10.0.0.2"] {
        world.send(&action, &udp(host, 1000, SERVER, 53)).unwrap();
    }
    let third = udp("10.0.0.3", 1000, SERVER, 53);
    assert_eq!(world.send(&action, &third).err(), Some(Stop::Dropped));
    assert_eq!(world.conntrack.losses().clash.load(Ordering::Relaxed), 1);
    world.wait(30);
    world.send(&action, &third).unwrap();
}

#[test]
fn an_error_finds_its_way_back_through_a_translation() {
    let world = World::new();
    let action = commit_nat(NatSide::Source, "198.51.100.1", Some((7000, 7000)));
    let question = udp(CLIENT, 1000, SERVER, 53);
    let sent = world.send(&action, &question).unwrap();
    let error = unreachable("192.0.2.1", "198.51.100.1", ip(&sent));
    let received = world.send(&nat(), &error).unwrap();
    assert_eq!(received.metadata.connection.state, RELATED | REPLY | TRACKED | DESTINATION_NAT);
    assert_eq!(ip(&received), unreachable("192.0.2.1", CLIENT, &question));
}

#[test]
fn a_connection_without_translation_stays_as_it_is() {
    let world = World::new();
    let question = udp(CLIENT, 1000, SERVER, 53);
    world.send(&commit(), &question).unwrap();
    let answer = udp(SERVER, 53, CLIENT, 1000);
    let received = world.send(&nat(), &answer).unwrap();
    assert_eq!(ip(&received), answer);
    assert_eq!(received.metadata.connection.state, ESTABLISHED | REPLY | TRACKED);
}

#[test]
fn translation_into_the_own_address_resolves_clashes_only() {
    let world = World::new();
    let question = udp(CLIENT, 1000, SERVER, 53);
    let translation =
        Translation { side: NatSide::Source, addresses: None, ports: None, persistent: false, pick: PortPick::Default };
    let action = Action { nat: Some(Nat::New(translation)), ..commit() };
    let sent = world.send(&action, &question).unwrap();
    assert_eq!(ip(&sent), question);
}
