//! What packets become under `ct(…)`.

use std::time::Duration;

use sluice_flow::action::{Commit, Conntrack as Action, Nat, NatSide, PortPick, Translation};
use sluice_flow::port::PortNumber;
use sluice_flow::time::{Clock, ManualClock};

use super::state::bit::{DESTINATION_NAT, ESTABLISHED, INVALID, NEW, RELATED, REPLY, SOURCE_NAT, TRACKED};
use super::*;
use crate::packet::Metadata;

const CLIENT: &str = "10.0.0.1";
const SERVER: &str = "192.0.2.9";

pub(super) struct World {
    pub(super) conntrack: Conntrack,
    pub(super) policies: Policies,
    pub(super) clock: ManualClock,
}

impl World {
    pub(super) fn new() -> Self {
        Self { conntrack: Conntrack::new(), policies: Policies::default(), clock: ManualClock::default() }
    }

    pub(super) fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(super) fn again(&self, action: &Action, packet: &mut Packet) -> Result<(), Stop> {
        self.conntrack.execute(&Request::link(action, &self.policies).unwrap(), packet, self.clock.now())
    }

    pub(super) fn send(&self, action: &Action, ip: &[u8]) -> Result<Packet, Stop> {
        let ethernet_type: u16 = if ip[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let frame = [&[0xee; 12], &ethernet_type.to_be_bytes()[..], ip].concat();
        let mut packet = Packet::new(frame, PortNumber(1), Metadata::default());
        packet.layout = parse(&packet.bytes, packet.in_port, &packet.metadata).layout;
        self.again(action, &mut packet)?;
        Ok(packet)
    }

    pub(super) fn state(&self, action: &Action, ip: &[u8]) -> u8 {
        self.send(action, ip).unwrap().metadata.connection.state
    }
}

pub(super) fn look() -> Action {
    Action::default()
}

pub(super) fn commit() -> Action {
    Action { commit: Commit::Yes, ..Action::default() }
}

pub(super) fn in_zone(zone: u16, action: Action) -> Action {
    Action { zone, ..action }
}

pub(super) fn nat() -> Action {
    Action { nat: Some(Nat::Existing), ..Action::default() }
}

pub(super) fn commit_nat(side: NatSide, addresses: &str, ports: Option<(u16, u16)>) -> Action {
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let addresses = Some((first.parse().unwrap(), last.parse().unwrap()));
    let translation = Translation { side, addresses, ports, persistent: false, pick: PortPick::Default };
    Action { nat: Some(Nat::New(translation)), ..commit() }
}

pub(super) fn udp(source: &str, from: u16, destination: &str, to: u16) -> Vec<u8> {
    frames::summed(Family::V4, frames::v4(source, destination, 17, &frames::udp(from, to, b"payload")))
}

pub(super) fn tcp(source: &str, from: u16, destination: &str, to: u16, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let segment = frames::tcp(from, to, flags, seq, ack, 1000, b"");
    frames::summed(Family::V4, frames::v4(source, destination, 6, &segment))
}

fn echo(source: &str, destination: &str, kind: u8, identifier: u16) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    let message = [kind, 0, 0, 0, high, low, 0, 1, b'x'];
    frames::summed(Family::V4, frames::v4(source, destination, 1, &message))
}

fn unreachable(source: &str, destination: &str, about: &[u8]) -> Vec<u8> {
    let message = [&[3, 3, 0, 0, 0, 0, 0, 0], about].concat();
    frames::summed(Family::V4, frames::v4(source, destination, 1, &message))
}

pub(super) fn ip(packet: &Packet) -> &[u8] {
    &packet.bytes[14..]
}

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
fn a_wrong_checksum_is_invalid() {
    let world = World::new();
    for mut packet in [udp(CLIENT, 1, SERVER, 2), tcp(CLIENT, 1, SERVER, 2, 2, 0, 0), echo(CLIENT, SERVER, 8, 7)] {
        let last = packet.len() - 1;
        packet[last] ^= 1;
        assert_eq!(world.state(&commit(), &packet), INVALID | TRACKED);
    }
    assert!(world.conntrack.is_empty());
    let mut packet = udp(CLIENT, 1, SERVER, 2);
    packet[26..28].fill(0);
    assert_eq!(world.state(&look(), &packet), NEW | TRACKED, "none is not wrong");
}

#[test]
fn padding_is_no_part_of_the_packet() {
    let world = World::new();
    let mut padded = udp(CLIENT, 1, SERVER, 2);
    let length = padded.len();
    padded.extend([0xaa; 6]);
    let packet = world.send(&look(), &padded).unwrap();
    assert_eq!(packet.metadata.connection.state, NEW | TRACKED);
    assert_eq!(ip(&packet).len(), length);
}

#[test]
fn a_length_that_cuts_off_headers_makes_the_packet_invalid() {
    let world = World::new();
    for length in [0u16, 10, 20, 22, 27] {
        let mut packet = udp(CLIENT, 1, SERVER, 2);
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        let packet = world.send(&commit(), &packet).unwrap();
        assert_eq!(packet.metadata.connection.state, INVALID | TRACKED, "{length}");
        assert!(packet.layout.transport.is_none_or(|(_, at)| at < packet.bytes.len()), "{length}");
    }
}

#[test]
fn a_tcp_refusal_leaves_no_connection() {
    let world = World::new();
    world.send(&commit(), &tcp(CLIENT, 1000, SERVER, 80, 0x02, 100, 0)).unwrap();
    assert_eq!(world.conntrack.len(), 1);
    let refusal = tcp(SERVER, 80, CLIENT, 1000, 0x14, 0, 101);
    assert_eq!(world.state(&look(), &refusal), ESTABLISHED | REPLY | TRACKED);
    assert!(world.conntrack.is_empty());
}

#[test]
fn an_established_tcp_connection_takes_segments_beyond_the_window() {
    let world = World::new();
    world.send(&commit(), &tcp(CLIENT, 1000, SERVER, 80, 0x02, 100, 0)).unwrap();
    world.send(&look(), &tcp(SERVER, 80, CLIENT, 1000, 0x12, 500, 101)).unwrap();
    let far = tcp(CLIENT, 1000, SERVER, 80, 0x10, 900_000, 501);
    assert_eq!(world.state(&look(), &far), INVALID | TRACKED, "not before the handshake is over");
    world.send(&look(), &tcp(CLIENT, 1000, SERVER, 80, 0x10, 101, 501)).unwrap();
    assert_eq!(world.state(&look(), &far), ESTABLISHED | TRACKED);
    world.wait(432_000 - 1);
    assert_eq!(world.state(&look(), &tcp(CLIENT, 1000, SERVER, 80, 0x10, 101, 501)), ESTABLISHED | TRACKED);
}

#[test]
fn an_echo_is_answered_only_by_its_reply() {
    let world = World::new();
    world.send(&commit(), &echo(CLIENT, SERVER, 8, 7)).unwrap();
    assert_eq!(world.state(&look(), &echo(SERVER, CLIENT, 0, 7)), ESTABLISHED | REPLY | TRACKED);
    assert_eq!(world.state(&look(), &echo(SERVER, CLIENT, 0, 8)), INVALID | TRACKED, "nobody asked");
    world.wait(30);
    assert_eq!(world.state(&look(), &echo(SERVER, CLIENT, 0, 7)), INVALID | TRACKED);
}

#[test]
fn neighbour_discovery_is_not_tracked() {
    let world = World::new();
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend([0; 16]);
    let packet = frames::summed(Family::V6, frames::v6("fe80::1", "fe80::2", 58, &message));
    let packet = world.send(&in_zone(3, look()), &packet).unwrap();
    let expected = ConnectionKey { state: INVALID | TRACKED, zone: 3, ..ConnectionKey::default() };
    assert_eq!(packet.metadata.connection, expected);
}

#[test]
fn a_protocol_without_ports_is_tracked_by_its_addresses() {
    let world = World::new();
    let there = frames::v4(CLIENT, SERVER, 50, b"anything");
    world.send(&commit(), &there).unwrap();
    world.wait(599);
    assert_eq!(world.state(&look(), &frames::v4(SERVER, CLIENT, 50, b"")), ESTABLISHED | REPLY | TRACKED);
    world.wait(600);
    assert_eq!(world.state(&look(), &there), NEW | TRACKED);
}

#[test]
fn an_error_is_related_to_the_connection_that_it_is_about() {
    let world = World::new();
    let question = udp(CLIENT, 1000, SERVER, 53);
    let error = unreachable("192.0.2.1", CLIENT, &question);
    assert_eq!(world.state(&look(), &error), INVALID | TRACKED, "about nothing");
    world.send(&Action { mark: Some((9, u32::MAX)), ..commit() }, &question).unwrap();
    let packet = world.send(&look(), &error).unwrap();
    let key = packet.metadata.connection;
    assert_eq!((key.state, key.mark), (RELATED | REPLY | TRACKED, 9));
    assert_eq!(key.original, Some(frames::tuple(17, "10.0.0.1:1000", "192.0.2.9:53")));
    let elsewhere = unreachable("192.0.2.1", "10.0.0.77", &question);
    assert_eq!(world.state(&look(), &elsewhere), INVALID | TRACKED, "to somebody else");
}

#[test]
fn source_translation_works_both_ways_and_restores_every_octet() {
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

#[test]
fn other_addresses_make_it_another_connection() {
    let world = World::new();
    let mut packet = world.send(&commit(), &udp(CLIENT, 1000, SERVER, 53)).unwrap();
    packet.bytes = [&packet.bytes[..14], &udp(CLIENT, 1000, "192.0.2.10", 53)].concat();
    world.again(&commit(), &mut packet).unwrap();
    assert_eq!(world.conntrack.len(), 2);
}

#[test]
fn fragments_are_tracked_as_the_packet_that_they_make() {
    let world = World::new();
    let payload = frames::udp(1000, 53, &[7; 100]);
    let mut whole = frames::v4("10.0.0.1", "10.0.0.2", 17, &payload);
    whole[4..6].copy_from_slice(&9u16.to_be_bytes());
    let whole = frames::summed(Family::V4, whole);
    let payload = &whole[20..];
    let first = frames::piece_v4(payload, 0..64, 9);
    let last = frames::piece_v4(payload, 64..108, 9);
    assert_eq!(world.send(&commit(), &last).err(), Some(Stop::Waits));
    let packet = world.send(&commit(), &first).unwrap();
    assert_eq!(packet.metadata.connection.state, NEW | TRACKED);
    assert_eq!(ip(&packet), whole);
    let out = cut(&packet, &packet.bytes).unwrap();
    let expected = [first, last].map(|piece| frames::summed(Family::V4, piece));
    assert_eq!(out.iter().map(|frame| &frame[14..]).collect::<Vec<_>>(), expected.each_ref());
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

/// A packet that begins a connection, from one host to another.
fn packet_of(protocol: u8, family: Family, hosts: [u8; 2], ports: [u16; 2], body: &[u8]) -> Vec<u8> {
    let payload = match protocol {
        6 => frames::tcp(ports[0], ports[1], 0x02, 7, 0, 1000, b""),
        17 => frames::udp(ports[0], ports[1], body),
        _ => {
            let mut init = vec![1, 0, 0, 20, 0, 0, 0, 9];
            init.extend([0; 12]);
            frames::sctp(ports[0], ports[1], 0, &init)
        }
    };
    let packet = match family {
        Family::V4 => {
            let [source, destination] = hosts.map(|host| format!("10.0.0.{host}"));
            frames::v4(&source, &destination, protocol, &payload)
        }
        Family::V6 => {
            let [source, destination] = hosts.map(|host| format!("fd00::{host}"));
            frames::v6(&source, &destination, protocol, &payload)
        }
    };
    frames::summed(family, packet)
}

proptest::proptest! {
    #[test]
    fn whatever_is_translated_has_right_checksums_and_finds_back(
        protocol in proptest::sample::select(vec![6u8, 17, 132]),
        is_v4: bool,
        is_source: bool,
        hosts in [1u8..100, 100..200],
        ports: [u16; 2],
        range: Option<(u16, u16)>,
        body in proptest::collection::vec(0u8.., 0..40),
    ) {
        let family = if is_v4 { Family::V4 } else { Family::V6 };
        let addresses = if is_v4 { "198.51.100.1-198.51.100.9" } else { "2001:db8::1-2001:db8::9" };
        let side = if is_source { NatSide::Source } else { NatSide::Destination };
        let world = World::new();
        let question = packet_of(protocol, family, hosts, ports, &body);
        let sent = world.send(&commit_nat(side, addresses, range), &question).unwrap();
        assert!(frames::is_summed(ip(&sent), family));
        assert_ne!(ip(&sent), question);

        let left = Tuple::read(ip(&sent), &locate(ip(&sent), family).unwrap()).unwrap();
        let answer = packet_of(protocol, family, [hosts[1], hosts[0]], [ports[1], ports[0]], &body);
        let mut translated = answer.clone();
        let target = left.inverse().unwrap();
        for side in [NatSide::Source, NatSide::Destination] {
            rewrite::translate(&mut translated, family, &target, side).unwrap();
        }
        if protocol == 17 {
            let received = world.send(&nat(), &translated).unwrap();
            assert_eq!(ip(&received), answer);
        }
    }

    #[test]
    fn no_packet_however_broken_does_harm(
        protocol in proptest::sample::select(vec![6u8, 17, 132, 1, 58, 33, 47, 136, 50]),
        is_v4: bool,
        body in proptest::collection::vec(0u8.., 0..120),
        flips in proptest::collection::vec((0usize..60, 0u8..), 0..4),
        length in 0usize..160,
    ) {
        let world = World::new();
        let mut packet = if is_v4 {
            frames::v4(CLIENT, SERVER, protocol, &body)
        } else {
            frames::v6("fd00::1", "fd00::2", protocol, &body)
        };
        for (at, value) in flips {
            if let Some(octet) = packet.get_mut(at).filter(|_| at > 0) {
                *octet = value;
            }
        }
        packet.truncate(length.max(1));
        let action = commit_nat(NatSide::Source, if is_v4 { "198.51.100.1" } else { "2001:db8::1" }, None);
        for action in [look(), action, nat(), Action { commit: Commit::Force, ..look() }] {
            if let Ok(packet) = world.send(&action, &packet) {
                cut(&packet, &packet.bytes);
            }
        }
    }
}

#[test]
fn a_ragged_fragment_of_ipv6_passes_by_itself_and_takes_the_others_with_it() {
    let world = World::new();
    let payload = [7; 100];
    let first = frames::piece_v6(&payload, 0..64, 77);
    assert_eq!(world.send(&look(), &first).err(), Some(Stop::Waits));
    let ragged = frames::piece_v6(&payload, 64..67, 77);
    let packet = world.send(&look(), &ragged).unwrap();
    assert_eq!((ip(&packet), packet.metadata.connection.state), (&ragged[..], INVALID | TRACKED));
    assert_eq!(world.conntrack.lost_fragments(), 1);
    let last = frames::piece_v6(&payload, 64..100, 77);
    assert_eq!(world.send(&look(), &last).err(), Some(Stop::Waits), "the first one is gone");
}

#[test]
fn redirects_of_ipv6_are_nobodys() {
    let world = World::new();
    let mut message = vec![137, 0, 0, 0];
    message.resize(40, 0);
    let packet = frames::summed(Family::V6, frames::v6("fe80::1", "fe80::2", 58, &message));
    assert_eq!(world.state(&commit(), &packet), INVALID | TRACKED);
    assert!(world.conntrack.is_empty());
}

#[test]
fn dccp_is_followed_from_its_request_to_its_refusal() {
    let world = World::new();
    let segment = |[from, to]: [u16; 2], kind: u8| {
        let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
        bytes.extend([7, 0, 0, 0, kind << 1 | 1]);
        bytes.resize(28, 0);
        bytes
    };
    let packet = |source: &str, destination: &str, ports, kind| {
        let bare = frames::v4(source, destination, 33, &segment(ports, kind));
        let sum = crate::packet::checksum::pseudo_header(&bare[12..16], &bare[16..20], 33, 28);
        let sum = sum.bytes(&bare[20..]).finish();
        let mut packet = frames::summed(Family::V4, bare);
        packet[26..28].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    let there = |kind| packet(CLIENT, SERVER, [1000, 80], kind);
    let here = |kind| packet(SERVER, CLIENT, [80, 1000], kind);
    assert_eq!(world.state(&look(), &there(2)), INVALID | TRACKED, "data begins nothing");
    world.send(&commit(), &there(0)).unwrap();
    world.wait(239);
    assert_eq!(world.state(&look(), &here(1)), ESTABLISHED | REPLY | TRACKED);
    world.wait(479);
    assert_eq!(world.state(&look(), &there(3)), ESTABLISHED | TRACKED);
    assert_eq!(world.state(&look(), &there(2)), INVALID | TRACKED, "not before the server has agreed");
    let mut wrong = there(3);
    wrong[30] ^= 1;
    assert_eq!(world.state(&look(), &wrong), INVALID | TRACKED, "a wrong checksum");
    world.conntrack.flush(None);
    world.send(&commit(), &there(0)).unwrap();
    world.send(&look(), &here(7)).unwrap();
    assert!(world.conntrack.is_empty(), "refused");
}
