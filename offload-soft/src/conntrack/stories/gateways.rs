//! What gateways make of what is said, and what becomes of the connections that are announced.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use sluice_flow::action::{Conntrack as Action, NatSide};
use sluice_flow::timeout::{TimeoutKey, TimeoutPolicy};

use super::{CLIENT, SERVER, World, commit, commit_nat, ip, look, nat, udp};
use crate::conntrack::frames::{self, is_summed};
use crate::conntrack::state::bit::{DESTINATION_NAT, ESTABLISHED, NEW, RELATED, REPLY, SOURCE_NAT, TRACKED};
use crate::conntrack::tuple::{Family, locate};
use crate::conntrack::*;
use crate::engine::Packet;

const OUTSIDE: &str = "198.51.100.100";

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

fn with(helper: &str, action: Action) -> Action {
    Action { helper: Some(helper.into()), ..action }
}

/// A segment with its addresses, as `source:port>destination:port`.
fn segment(ends: [(&str, u16); 2], flags: u8, [seq, ack]: [u32; 2], text: &str) -> Vec<u8> {
    let [(source, from), (destination, to)] = ends;
    let segment = frames::tcp(from, to, flags, seq, ack, 5000, text.as_bytes());
    match source.parse().unwrap() {
        IpAddr::V4(_) => frames::summed(Family::V4, frames::v4(source, destination, 6, &segment)),
        IpAddr::V6(_) => frames::summed(Family::V6, frames::v6(source, destination, 6, &segment)),
    }
}

/// Sequence number, acknowledgement and text of a segment.
fn read(packet: &[u8]) -> ([u32; 2], String) {
    let family = if packet[0] >> 4 == 4 { Family::V4 } else { Family::V6 };
    assert!(is_summed(packet, family), "its checksums are right");
    let segment = &packet[locate(packet, family).unwrap().transport..];
    let number = |at: usize| u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
    let text = &segment[usize::from(segment[12] >> 4) * 4..];
    ([number(4), number(8)], String::from_utf8(text.to_vec()).unwrap())
}

/// A control connection on which both ends have said a line: the client goes on at 1016, the server at 5013.
struct Control {
    world: World,
    go: Action,
    come: Action,
    client: &'static str,
    /// The client as the server sees it.
    seen_as: &'static str,
    server: &'static str,
}

impl Control {
    fn new(go: Action, come: Action, [client, seen_as, server]: [&'static str; 3]) -> Self {
        let control = Self { world: World::new(), go, come, client, seen_as, server };
        control.client(SYN, [999, 0], "");
        control.server(SYN | ACK, [4999, 1000], "");
        control.client(ACK, [1000, 5000], "");
        control.server(ACK, [5000, 1000], "220 Welcome\r\n");
        control.client(ACK, [1000, 5013], "USER anonymous\r\n");
        control
    }

    fn plain() -> Self {
        Self::new(with("ftp", commit()), look(), [CLIENT, CLIENT, SERVER])
    }

    /// With a client that is seen under another address.
    fn translated() -> Self {
        let go = with("ftp", commit_nat(NatSide::Source, OUTSIDE, None));
        Self::new(go, nat(), [CLIENT, OUTSIDE, SERVER])
    }

    fn try_client(&self, flags: u8, numbers: [u32; 2], text: &str) -> Result<Packet, Stop> {
        self.world.send(&self.go, &segment([(self.client, 40_000), (self.server, 21)], flags, numbers, text))
    }

    fn client(&self, flags: u8, numbers: [u32; 2], text: &str) -> Packet {
        self.try_client(flags, numbers, text).unwrap()
    }

    fn server(&self, flags: u8, numbers: [u32; 2], text: &str) -> Packet {
        let packet = segment([(self.server, 21), (self.seen_as, 40_000)], flags, numbers, text);
        self.world.send(&self.come, &packet).unwrap()
    }
}

#[test]
fn an_active_transfer_is_expected_from_the_server() {
    let control = Control::plain();
    let said = control.client(ACK, [1016, 5013], "PORT 10,0,0,1,19,137\r\n");
    assert_eq!(read(ip(&said)).1, "PORT 10,0,0,1,19,137\r\n", "nothing is translated");
    let data = segment([(SERVER, 20), (CLIENT, 5001)], SYN, [1, 0], "");
    let expected = NEW | RELATED | TRACKED;
    assert_eq!(control.world.state(&look(), &data), expected);
    assert_eq!(control.world.state(&look(), &data), expected, "looking fulfils nothing");
    assert_eq!(control.world.state(&commit(), &data), expected);
    assert_eq!(control.world.state(&look(), &data), RELATED | TRACKED, "committed, and not answered");
    let answer = segment([(CLIENT, 5001), (SERVER, 20)], SYN | ACK, [1, 2], "");
    assert_eq!(control.world.state(&look(), &answer), ESTABLISHED | RELATED | REPLY | TRACKED);
    let next = segment([(SERVER, 20), (CLIENT, 5001)], ACK, [2, 2], "");
    assert_eq!(control.world.state(&look(), &next), ESTABLISHED | RELATED | TRACKED);
    let second = segment([(SERVER, 23), (CLIENT, 5001)], SYN, [1, 0], "");
    assert_eq!(control.world.state(&look(), &second), NEW | TRACKED, "only one was expected");
}

#[test]
fn a_passive_transfer_is_expected_from_the_client() {
    for answer in ["227 Entering Passive Mode (192,0,2,9,78,32).\r\n", "229 Extended (|||20000|)\r\n"] {
        let control = Control::plain();
        control.server(ACK, [5013, 1016], answer);
        let data = segment([(CLIENT, 40_001), (SERVER, 20_000)], SYN, [1, 0], "");
        assert_eq!(control.world.state(&look(), &data), NEW | RELATED | TRACKED, "{answer}");
        let elsewhere = segment([(CLIENT, 40_001), (SERVER, 20_001)], SYN, [1, 0], "");
        assert_eq!(control.world.state(&look(), &elsewhere), NEW | TRACKED);
    }
}

#[test]
fn an_expected_connection_inherits_mark_and_label_and_shows_the_tuple_of_its_master() {
    let go = Action { mark: Some((7, u32::MAX)), label: Some((9, u128::MAX)), ..with("ftp", commit()) };
    let control = Control::new(go, look(), [CLIENT, CLIENT, SERVER]);
    control.client(ACK, [1016, 5013], "EPRT |1|10.0.0.1|5001|\r\n");
    let data = segment([(SERVER, 20), (CLIENT, 5001)], SYN, [1, 0], "");
    for action in [look(), commit(), look()] {
        let key = control.world.send(&action, &data).unwrap().metadata.connection;
        assert_eq!((key.mark, key.label), (7, 9));
        assert_eq!(key.original, Some(frames::tuple(6, "10.0.0.1:40000", "192.0.2.9:21")));
    }
}

#[test]
fn nobody_opens_a_door_to_somebody_else() {
    let control = Control::plain();
    control.client(ACK, [1016, 5013], "PORT 10,0,0,2,19,137\r\n");
    let data = segment([(SERVER, 20), ("10.0.0.2", 5001)], SYN, [1, 0], "");
    assert_eq!(control.world.state(&look(), &data), NEW | TRACKED);
}

#[test]
fn a_command_counts_only_at_the_beginning_of_a_line() {
    let control = Control::plain();
    control.client(ACK, [1016, 5013], "STOR ");
    control.client(ACK, [1021, 5013], "PORT 10,0,0,1,19,137\r\n");
    let data = segment([(SERVER, 20), (CLIENT, 5001)], SYN, [1, 0], "");
    assert_eq!(control.world.state(&look(), &data), NEW | TRACKED);
    control.client(ACK, [1043, 5013], "PORT 10,0,0,1,19,137\r\n");
    assert_eq!(control.world.state(&look(), &data), NEW | RELATED | TRACKED);
}

#[test]
fn half_a_command_goes_no_further_so_that_it_is_said_again_as_a_whole() {
    let control = Control::plain();
    let half = control.try_client(ACK, [1016, 5013], "PORT 10,0,0,1,1");
    assert_eq!(half.err(), Some(Stop::Dropped));
    assert_eq!(control.world.conntrack.losses().helper.load(Ordering::Relaxed), 1);
    control.client(ACK, [1016, 5013], "PORT 10,0,0,1,19,137\r\n");
    let data = segment([(SERVER, 20), (CLIENT, 5001)], SYN, [1, 0], "");
    assert_eq!(control.world.state(&look(), &data), NEW | RELATED | TRACKED);
}

#[test]
fn an_expected_connection_takes_the_place_of_one_that_is_there() {
    let control = Control::plain();
    let data = segment([(SERVER, 20), (CLIENT, 5001)], SYN, [1, 0], "");
    control.world.send(&commit(), &data).unwrap();
    control.client(ACK, [1016, 5013], "PORT 10,0,0,1,19,137\r\n");
    assert_eq!(control.world.conntrack.len(), 2);
    assert_eq!(control.world.state(&look(), &data), NEW | RELATED | TRACKED);
    assert_eq!(control.world.conntrack.len(), 1);
}

#[test]
fn an_announcement_is_translated_with_its_connection_and_all_later_numbers_are_shifted() {
    let control = Control::translated();
    // 198,51,100,100 is longer than 10,0,0,1 by six bytes.
    let said = control.client(ACK, [1016, 5013], "PORT 10,0,0,1,19,137\r\n");
    assert_eq!(read(ip(&said)), ([1016, 5013], "PORT 198,51,100,100,19,137\r\n".into()));
    assert_eq!(ip(&said).len(), 20 + 20 + 28);
    let answer = control.server(ACK, [5013, 1044], "200 Well\r\n");
    assert_eq!(read(ip(&answer)), ([5013, 1038], "200 Well\r\n".into()));
    let next = control.client(ACK, [1038, 5023], "LIST\r\n");
    assert_eq!(read(ip(&next)), ([1044, 5023], "LIST\r\n".into()));
    let again = control.client(ACK, [1016, 5013], "PORT 10,0,0,1,19,137\r\n");
    assert_eq!(read(ip(&again)).0, [1016, 5013], "what is sent again is not shifted");

    let data = segment([(SERVER, 20), (OUTSIDE, 5001)], SYN, [1, 0], "");
    assert_eq!(control.world.state(&nat(), &data), NEW | RELATED | TRACKED, "translated when it is committed");
    let take = Action { nat: nat().nat, ..commit() };
    let taken = control.world.send(&take, &data).unwrap();
    assert_eq!(ip(&taken), segment([(SERVER, 20), (CLIENT, 5001)], SYN, [1, 0], ""));
    assert_ne!(taken.metadata.connection.state & (SOURCE_NAT | DESTINATION_NAT), 0);
    let back = control.world.send(&nat(), &segment([(CLIENT, 5001), (SERVER, 20)], SYN | ACK, [1, 2], "")).unwrap();
    assert_eq!(ip(&back), segment([(OUTSIDE, 5001), (SERVER, 20)], SYN | ACK, [1, 2], ""));
}

#[test]
fn a_server_behind_another_address_announces_that_one() {
    let go = with("ftp", commit_nat(NatSide::Destination, "10.1.0.7", None));
    let world = World::new();
    let there = |flags, numbers, text: &str| {
        world.send(&go, &segment([(CLIENT, 40_000), (SERVER, 21)], flags, numbers, text)).unwrap()
    };
    let here = |flags, numbers, text: &str| {
        world.send(&nat(), &segment([("10.1.0.7", 21), (CLIENT, 40_000)], flags, numbers, text)).unwrap()
    };
    there(SYN, [999, 0], "");
    here(SYN | ACK, [4999, 1000], "");
    here(ACK, [5000, 1000], "220 Hi\r\n");
    let said = here(ACK, [5008, 1000], "227 Passive (10,1,0,7,78,32)\r\n");
    assert_eq!(read(ip(&said)), ([5008, 1000], "227 Passive (192,0,2,9,78,32)\r\n".into()));
    // One byte more: what is acknowledged is shifted back.
    assert_eq!(read(ip(&there(ACK, [1000, 5039], "LIST\r\n"))).0, [1000, 5038]);
    let take = Action { nat: nat().nat, ..commit() };
    let data = world.send(&take, &segment([(CLIENT, 40_001), (SERVER, 20_000)], SYN, [1, 0], "")).unwrap();
    assert_eq!(ip(&data), segment([(CLIENT, 40_001), ("10.1.0.7", 20_000)], SYN, [1, 0], ""));
}

#[test]
fn ports_that_others_announced_are_not_announced_twice() {
    let world = World::new();
    let go = with("ftp", commit_nat(NatSide::Source, OUTSIDE, None));
    let mut said = Vec::new();
    for (host, port) in [("10.0.0.1", 40_000), ("10.0.0.2", 40_001)] {
        let send = |flags, numbers, text: &str| {
            world.send(&go, &segment([(host, port), (SERVER, 21)], flags, numbers, text)).unwrap()
        };
        send(SYN, [999, 0], "");
        world.send(&nat(), &segment([(SERVER, 21), (OUTSIDE, port)], SYN | ACK, [4999, 1000], "")).unwrap();
        send(ACK, [1000, 5000], "USER a\r\n");
        let command = format!("PORT {},19,137\r\n", host.replace('.', ","));
        said.push(read(ip(&send(ACK, [1008, 5000], &command))).1);
    }
    assert_eq!(said, ["PORT 198,51,100,100,19,137\r\n", "PORT 198,51,100,100,19,138\r\n"]);
}

#[test]
fn ipv6_is_announced_in_full_and_the_tracker_keeps_up_with_the_shift() {
    let go = with("ftp", commit_nat(NatSide::Source, "2001:db8::100", None));
    let control = Control::new(go, nat(), ["fd00::1", "2001:db8::100", "2001:db8::9"]);
    let said = control.client(ACK, [1016, 5013], "EPRT |2|fd00::1|5001|\r\n");
    let long = "EPRT |2|2001:0db8:0000:0000:0000:0000:0000:0100|5001|\r\n";
    assert_eq!(read(ip(&said)), ([1016, 5013], long.into()));
    let growth = 32;
    let answer = control.server(ACK, [5013, 1039 + growth], "200 Well\r\n");
    assert_eq!(answer.metadata.connection.state & (ESTABLISHED | REPLY), ESTABLISHED | REPLY);
    assert_eq!(read(ip(&answer)).0, [5013, 1039]);
    let take = Action { nat: nat().nat, ..commit() };
    let data = segment([("2001:db8::9", 20), ("2001:db8::100", 5001)], SYN, [1, 0], "");
    let taken = control.world.send(&take, &data).unwrap();
    assert_eq!(ip(&taken), segment([("2001:db8::9", 20), ("fd00::1", 5001)], SYN, [1, 0], ""));
}

#[test]
fn a_gateway_can_come_later() {
    let mut control = Control::new(commit(), look(), [CLIENT, CLIENT, SERVER]);
    control.go = with("ftp", commit());
    control.client(ACK, [1016, 5013], "NOOP\r\n");
    control.client(ACK, [1022, 5013], "PORT 10,0,0,1,19,137\r\n");
    let data = segment([(SERVER, 20), (CLIENT, 5001)], SYN, [1, 0], "");
    assert_eq!(control.world.state(&look(), &data), NEW | RELATED | TRACKED);
}

#[test]
fn what_a_gateway_has_read_leaves_in_other_pieces_than_it_came_in() {
    let lengths = |go: Action| {
        let control = Control::new(go.clone(), look(), [CLIENT, CLIENT, SERVER]);
        let ends = [(CLIENT, 40_000), (SERVER, 21)];
        let whole = segment(ends, ACK, [1016, 5013], &format!("SITE {:55}\r\n", "HELP"));
        let piece = |from: usize, to: usize, flags_and_offset: u16| {
            let mut piece = frames::v4(CLIENT, SERVER, 6, &whole[20 + from..20 + to]);
            piece[6..8].copy_from_slice(&flags_and_offset.to_be_bytes());
            piece
        };
        assert_eq!(control.world.send(&go, &piece(0, 24, 0x2000)).err(), Some(Stop::Waits));
        let packet = control.world.send(&go, &piece(24, 82, 24 / 8)).unwrap();
        assert_eq!(ip(&packet)[20..], whole[20..]);
        match cut(&packet, &packet.bytes, true) {
            Cut::Pieces(pieces) => pieces.iter().map(|piece| piece.len() - 34).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(lengths(commit()), [24, 58]);
    assert_eq!(lengths(with("ftp", commit())), [56, 26]);
}

fn request(source: &str) -> Vec<u8> {
    let datagram = frames::udp(3000, 69, b"\x00\x01file\x00byte\x00");
    frames::summed(Family::V4, frames::v4(source, SERVER, 17, &datagram))
}

#[test]
fn a_tftp_server_answers_from_another_port() {
    let world = World::new();
    world.send(&with("tftp", commit()), &request(CLIENT)).unwrap();
    let data = udp(SERVER, 50_000, CLIENT, 3000);
    assert_eq!(world.state(&look(), &data), NEW | RELATED | TRACKED);
    assert_eq!(world.state(&commit(), &data), NEW | RELATED | TRACKED);
    assert_eq!(world.state(&look(), &udp(CLIENT, 3000, SERVER, 50_000)), ESTABLISHED | RELATED | REPLY | TRACKED);
}

#[test]
fn a_tftp_server_answers_a_host_that_is_hidden() {
    let world = World::new();
    let go = with("tftp", commit_nat(NatSide::Source, OUTSIDE, Some((7000, 7000))));
    world.send(&go, &request(CLIENT)).unwrap();
    let take = Action { nat: nat().nat, ..commit() };
    let taken = world.send(&take, &udp(SERVER, 50_000, OUTSIDE, 7000)).unwrap();
    assert_eq!(ip(&taken), udp(SERVER, 50_000, CLIENT, 3000));
    let back = world.send(&nat(), &udp(CLIENT, 3000, SERVER, 50_000)).unwrap();
    assert_eq!(ip(&back), udp(OUTSIDE, 7000, SERVER, 50_000));
}

#[test]
fn a_copy_expects_what_the_connections_expected_and_fulfils_it_alone() {
    let control = Control::plain();
    control.client(ACK, [1016, 5013], "PORT 10,0,0,1,19,137\r\n");
    let data = segment([(SERVER, 20), (CLIENT, 5001)], SYN, [1, 0], "");
    let now = sluice_flow::time::Clock::now(&control.world.clock);
    let copy = World { conntrack: control.world.conntrack.fork(now), ..World::new() };
    assert_eq!(copy.state(&commit(), &data), NEW | RELATED | TRACKED);
    assert_eq!(copy.state(&look(), &data), RELATED | TRACKED);
    assert_eq!(control.world.state(&look(), &data), NEW | RELATED | TRACKED, "untouched");
}

#[test]
fn a_connection_lives_as_long_as_its_policy_says() {
    let world = World::new();
    let mut policy = TimeoutPolicy::new("short");
    policy.set(TimeoutKey::UdpSingle, 5);
    policy.set(TimeoutKey::UdpMultiple, 7);
    world.policies.set(&policy).unwrap();
    let short = Action { timeout: Some("short".into()), ..commit() };
    let (question, answer) = (udp(CLIENT, 1000, SERVER, 53), udp(SERVER, 53, CLIENT, 1000));
    let begin = || world.send(&short, &question).unwrap();
    begin();
    world.wait(4);
    assert_eq!(world.state(&look(), &answer), ESTABLISHED | REPLY | TRACKED);
    world.state(&look(), &question);
    world.wait(6);
    assert_eq!(world.state(&look(), &question), ESTABLISHED | TRACKED, "a stream has longer");
    world.wait(7);
    assert_eq!(world.state(&look(), &question), NEW | TRACKED);
    begin();
    policy.set(TimeoutKey::UdpSingle, 50);
    world.policies.set(&policy).unwrap();
    world.send(&look(), &question).unwrap();
    world.wait(49);
    assert_eq!(world.state(&look(), &answer), ESTABLISHED | REPLY | TRACKED, "it follows the change");
}

#[test]
fn a_policy_at_the_commit_takes_the_place_of_none_at_the_look() {
    let world = World::new();
    let mut policy = TimeoutPolicy::new("short");
    policy.set(TimeoutKey::UdpSingle, 5);
    world.policies.set(&policy).unwrap();
    let question = udp(CLIENT, 1000, SERVER, 53);
    let mut packet = world.send(&look(), &question).unwrap();
    let short = Action { timeout: Some("short".into()), ..commit() };
    world.again(&short, &mut packet).unwrap();
    world.wait(5);
    assert_eq!(world.state(&look(), &udp(SERVER, 53, CLIENT, 1000)), NEW | TRACKED);
}
