//! What is peculiar to a protocol: which packets are valid, and how long a connection is remembered.

use sluice_flow::action::Conntrack as Action;
use sluice_flow::connection::Selection;
use sluice_flow::time::Clock as _;

use super::{CLIENT, SERVER, World, commit, echo, in_zone, ip, look, tcp, udp, unreachable};
use crate::conntrack::state::bit::{ESTABLISHED, INVALID, NEW, RELATED, REPLY, TRACKED};
use crate::conntrack::tuple::Family;
use crate::conntrack::*;

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
fn redirects_of_ipv6_are_nobodys() {
    let world = World::new();
    let mut message = vec![137, 0, 0, 0];
    message.resize(40, 0);
    let packet = frames::summed(Family::V6, frames::v6("fe80::1", "fe80::2", 58, &message));
    assert_eq!(world.state(&commit(), &packet), INVALID | TRACKED);
    assert!(world.conntrack.is_empty());
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
    world.conntrack.flush(&Selection::default(), world.clock.now());
    world.send(&commit(), &there(0)).unwrap();
    world.send(&look(), &here(7)).unwrap();
    assert!(world.conntrack.is_empty(), "refused");
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
    let expected = [first, last].map(|piece| [&packet.bytes[..14], &frames::summed(Family::V4, piece)].concat());
    assert_eq!(cut(&packet, &packet.bytes, true), Cut::Pieces(expected.to_vec()));
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
fn a_fragment_header_that_is_announced_but_not_there_makes_no_fragment() {
    let world = World::new();
    // Behind hop-by-hop options that end behind the packet.
    let packet = frames::v6("fd00::1", "fd00::2", 0, &[44, 9, 0, 0, 0, 0, 0, 0]);
    assert_eq!(world.state(&look(), &packet), INVALID | TRACKED);
}
