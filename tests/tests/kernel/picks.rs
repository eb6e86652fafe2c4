//! Address translation where there is something to choose.
//!
//! Each side may choose for itself, so neither is held against the other's choice but against the range, and what it
//! sends against the packet made by hand with that choice in it. The server then answers to whom it heard, each side's
//! to that side's choice, and the client must get the answer from whom it asked.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::action::{Action, Commit, Conntrack, Nat, NatSide, PortPick, Translation};
use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;
use sluice_tests::lab::{Judge, Outcome, Sent, Sides};
use sluice_tests::scenario::Scenario;

use crate::flows::{at, output, recirc};
use crate::packets::{Ipv4, Ipv6, icmp, tcp_at, udp};
use crate::report::Report;

const NEW: u8 = 0x01;
const ESTABLISHED: u8 = 0x02;
const REPLY: u8 = 0x08;
const INVALID: u8 = 0x10;
const TRACKED: u8 = 0x20;

/// An address and a port, or of a client the identifier of ICMP.
type End = (IpAddr, u16);

/// Connections of several clients, all translated by the same action.
struct Case {
    scenario: Scenario,
    protocol: u8,
    translation: Translation,
    /// Who speaks to whom, each a connection of its own.
    connections: Vec<[End; 2]>,
    /// How many of them there is a choice for; the others are lost.
    room: usize,
}

/// Plays all cases that are wanted, and gives their scenarios.
pub(crate) fn play(judge: &mut Judge, report: &mut Report, is_wanted: &dyn Fn(&str) -> bool) -> Vec<Scenario> {
    let mut cases = cases();
    cases.retain(|case| is_wanted(&case.scenario.name));
    for case in &cases {
        match case.play(judge) {
            Ok(outcome) => report.add(&case.scenario, &outcome),
            Err(wrong) => report.fail(format!("{}: {wrong}", case.scenario.name)),
        }
    }
    cases.into_iter().map(|case| case.scenario).collect()
}

fn cases() -> Vec<Case> {
    use NatSide::{Destination, Source};
    let one = |side, addresses, ports, pick| translation(side, addresses, ports, false, pick);
    let kept = |side, addresses| translation(side, addresses, None, true, PortPick::Default);
    let (default, hash, random) = (PortPick::Default, PortPick::Hash, PortPick::Random);
    let v4 = [
        ("source addresses", one(Source, "192.0.2.1-192.0.2.20", None, default)),
        ("source addresses across a byte", one(Source, "192.0.2.250-192.0.3.5", None, default)),
        ("source addresses and ports", one(Source, "192.0.2.1-192.0.2.4", Some((5000, 5015)), default)),
        ("source ports", one(Source, "192.0.2.1-192.0.2.1", Some((5000, 5031)), default)),
        ("source ports by hash", one(Source, "192.0.2.1-192.0.2.1", Some((5000, 5099)), hash)),
        ("source ports at random", one(Source, "192.0.2.1-192.0.2.4", Some((5000, 5099)), random)),
        ("source ports of their class by hash", one(Source, "192.0.2.1-192.0.2.1", None, hash)),
        ("source ports of their class at random", one(Source, "192.0.2.1-192.0.2.1", None, random)),
        ("persistent source addresses", kept(Source, "192.0.2.1-192.0.2.20")),
        ("destination addresses", one(Destination, "10.0.1.1-10.0.1.20", None, default)),
        ("destination addresses and ports", one(Destination, "10.0.1.1-10.0.1.4", Some((8000, 8015)), default)),
        ("destination ports by hash", one(Destination, "10.0.1.1-10.0.1.1", Some((8000, 8099)), hash)),
        ("destination ports at random", one(Destination, "10.0.1.1-10.0.1.4", Some((8000, 8099)), random)),
        ("persistent destination addresses", kept(Destination, "10.0.1.1-10.0.1.20")),
    ];
    let v6 = [
        ("source addresses", one(Source, "fd99::1-fd99::20", None, default)),
        ("source addresses of a prefix", one(Source, "fd99::-fd99::ffff:ffff:ffff:ffff", None, default)),
        ("source addresses and ports", one(Source, "fd99::1-fd99::4", Some((5000, 5015)), default)),
        ("source ports by hash", one(Source, "fd99::1-fd99::1", Some((5000, 5099)), hash)),
        ("source ports at random", one(Source, "fd99::1-fd99::4", Some((5000, 5099)), random)),
        ("persistent source addresses", kept(Source, "fd99::1-fd99::20")),
        ("destination addresses", one(Destination, "fd01::1-fd01::20", None, default)),
        ("destination addresses and ports", one(Destination, "fd01::1-fd01::4", Some((8000, 8015)), default)),
        ("destination ports at random", one(Destination, "fd01::1-fd01::4", Some((8000, 8099)), random)),
        ("persistent destination addresses", kept(Destination, "fd01::1-fd01::20")),
    ];
    let mut cases = vec![];
    for (name, translation) in &v4 {
        cases.extend([("udp", 17), ("tcp", 6)].map(|(kind, protocol)| Case::new(name, kind, protocol, translation)));
    }
    for (name, translation) in &v6 {
        let kinds = [("udp over ipv6", 17), ("tcp over ipv6", 6)];
        cases.extend(kinds.map(|(kind, protocol)| Case::new(name, kind, protocol, translation)));
    }
    let identifiers = |addresses, pick| one(Source, addresses, Some((700, 799)), pick);
    cases.push(Case::new("source identifiers", "echo", 1, &identifiers("192.0.2.1-192.0.2.4", default)));
    cases.push(Case::new("source identifiers at random", "echo", 1, &identifiers("192.0.2.1-192.0.2.1", random)));
    cases.push(Case::new("source identifiers", "echo over ipv6", 58, &identifiers("fd99::1-fd99::4", default)));
    // One more than there is a choice for.
    let few = one(Source, "192.0.2.1-192.0.2.1", Some((5000, 5003)), default);
    let full = Case::new("a range that is full", "tcp", 6, &few);
    cases.push(Case { room: 4, ..full });
    cases
}

fn translation(
    side: NatSide,
    addresses: &str,
    ports: Option<(u16, u16)>,
    persistent: bool,
    pick: PortPick,
) -> Translation {
    let (first, last) = addresses.split_once('-').expect("a range");
    let [first, last] = [first, last].map(|address| address.parse().expect("an address"));
    Translation { side, addresses: Some((first, last)), ports, persistent, pick }
}

impl Case {
    fn new(name: &str, kind: &str, protocol: u8, translation: &Translation) -> Self {
        let is_v4 = translation.addresses.is_some_and(|(first, _)| first.is_ipv4());
        let track = |nat| {
            let commit = if nat == Nat::Existing { Commit::No } else { Commit::Yes };
            Action::Conntrack(Box::new(Conntrack { commit, zone: 7, nat: Some(nat), ..Conntrack::default() }))
        };
        let from = |port: u32, chain: u32| {
            let matching = at(port).chain(chain);
            if is_v4 { matching.ipv4(protocol) } else { matching.ipv6(protocol) }
        };
        let states = NEW | ESTABLISHED | REPLY | INVALID | TRACKED;
        let in_state = |port, state| from(port, 1).masked(Field::CtState, state, states).done();
        let scenario = Scenario::new(format!("nat picks: {name}, {kind}"))
            .flow(from(1, 0).done(), [track(Nat::New(translation.clone())), recirc(1)])
            .flow(from(2, 0).done(), [track(Nat::Existing), recirc(1)])
            .flow(in_state(1, TRACKED | NEW), [output(2)])
            .flow(in_state(1, TRACKED | ESTABLISHED), [output(3)])
            .flow(in_state(2, TRACKED | ESTABLISHED | REPLY), [output(1)]);
        let address = |v4: [u8; 4], v6: u16| -> IpAddr {
            if is_v4 { Ipv4Addr::from(v4).into() } else { Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, v6).into() }
        };
        // Three hosts with two ports each, and two servers.
        let connection = |host: u8, port: u16, server: u8| {
            let client = (address([10, 0, 0, host], host.into()), 40_000 + port);
            let service = if matches!(protocol, 1 | 58) { 0 } else { 80 };
            [client, (address([10, 0, 9, server], 0x900 + u16::from(server)), service)]
        };
        let hosts = (1..=3).flat_map(|host| [(host, 0), (host, 1)]);
        let connections: Vec<_> =
            hosts.flat_map(|(host, port)| [9, 10].map(|server| connection(host, port, server))).collect();
        let room = connections.len();
        Self { scenario, protocol, translation: translation.clone(), connections, room }
    }

    fn play(&self, judge: &mut Judge) -> Result<Outcome, String> {
        let mut sides = match judge.set_up(&self.scenario) {
            Ok(sides) => sides,
            Err(outcome) => return Ok(*outcome),
        };
        let mut taken: [BTreeSet<[End; 2]>; 2] = Default::default();
        let mut hosts: [BTreeSet<[IpAddr; 2]>; 2] = Default::default();
        let mut frames = 0;
        for connection in self.to_one_server_if_full() {
            let Some(heard) = self.converse(&mut sides, connection, &taken)? else { continue };
            frames += 3;
            for (side, [from, to]) in heard.into_iter().enumerate() {
                if !taken[side].insert([from, to]) {
                    return Err(format!("{} gave {from:?} to {to:?} away twice", WHO[side]));
                }
                let chosen = if self.translation.side == NatSide::Source { from.0 } else { to.0 };
                hosts[side].insert([connection[0].0, chosen]);
            }
        }
        let let_through = taken.each_ref().map(BTreeSet::len);
        if let_through != [self.room; 2] {
            return Err(format!("room for {}, and {let_through:?} were let through", self.room));
        }
        // Each of three hosts has one address for all that it does.
        if self.translation.persistent && hosts.each_ref().map(BTreeSet::len) != [3; 2] {
            return Err(format!("persistent, and chosen {hosts:?}"));
        }
        Ok(Outcome::Equal(frames))
    }

    /// Connections to different servers may have the same choice, so that a range is full for one of them only.
    fn to_one_server_if_full(&self) -> impl Iterator<Item = [End; 2]> {
        let is_full = self.room < self.connections.len();
        let first = self.connections[0][1];
        self.connections.iter().copied().filter(move |[_, server]| !is_full || *server == first)
    }

    /// A question, an answer and another question. Comes back with the connection as each side's server sees it, or
    /// nothing if both sides drop it.
    fn converse(
        &self,
        sides: &mut Sides<'_>,
        [client, server]: [End; 2],
        taken: &[BTreeSet<[End; 2]>; 2],
    ) -> Result<Option<[[End; 2]; 2]>, String> {
        let question = self.frame(Say::Question, client, server);
        let sent = sides.inject(PortNumber(1), [&question; 2].map(Vec::as_slice));
        if sent.iter().all(Sent::is_empty) {
            return Ok(None);
        }
        let [kernel, ours] = [0, 1].map(|side| self.choice(WHO[side], &sent[side], [client, server], &taken[side]));
        let heard = [kernel?, ours?];
        let answers = heard.map(|[from, to]| self.frame(Say::Answer, to, from));
        for (who, sent) in WHO.iter().zip(sides.inject(PortNumber(2), answers.each_ref().map(Vec::as_slice))) {
            expect(who, &sent, 1, &self.frame(Say::Answer, server, client))?;
        }
        let more = self.frame(Say::More, client, server);
        let sent = sides.inject(PortNumber(1), [&more; 2].map(Vec::as_slice));
        for ((who, sent), [from, to]) in WHO.iter().zip(sent).zip(heard) {
            expect(who, &sent, 3, &self.frame(Say::More, from, to))?;
        }
        Ok(Some(heard))
    }

    /// Who asks whom behind the translation, which must be right.
    fn choice(
        &self,
        who: &str,
        sent: &Sent,
        [client, server]: [End; 2],
        taken: &BTreeSet<[End; 2]>,
    ) -> Result<[End; 2], String> {
        let frames = sent.get(&PortNumber(2)).map(Vec::as_slice).unwrap_or_default();
        let [frame] = frames else { return Err(format!("{who} sent {sent:02x?}")) };
        let [from, to] = self.ends(frame);
        expect(who, sent, 2, &self.frame(Say::Question, from, to))?;
        let (chosen, before, is_kept) = match self.translation.side {
            NatSide::Source => (from, client, to == server),
            // Where a client speaks from one port to two servers that become the same one, the port gives way.
            NatSide::Destination if taken.contains(&[client, to]) => (to, server, from.0 == client.0 && from.1 >= 1024),
            NatSide::Destination => (to, server, from == client),
        };
        let (first, last) = self.translation.addresses.expect("every case has addresses");
        let ports = match (self.translation.ports, self.translation.pick) {
            (Some((first, last)), _) => first..=last,
            // All clients have ports of the highest class, and a service is nowhere but at its port.
            (None, PortPick::Hash | PortPick::Random) if self.translation.side == NatSide::Source => 1024..=u16::MAX,
            (None, _) => before.1..=before.1,
        };
        if is_kept && (first..=last).contains(&chosen.0) && ports.contains(&chosen.1) {
            Ok([from, to])
        } else {
            Err(format!("{who} made {from:?} to {to:?} of {client:?} to {server:?}"))
        }
    }

    fn frame(&self, say: Say, from: End, to: End) -> Vec<u8> {
        let is_answer = say == Say::Answer;
        let payload = match self.protocol {
            17 => udp(from.1, to.1, if is_answer { b"an answer" } else { b"a question" }),
            6 => {
                let (flags, numbers) = match say {
                    Say::Question => (0x02, (1000, 0)),
                    Say::Answer => (0x12, (5000, 1001)),
                    Say::More => (0x10, (1001, 5001)),
                };
                tcp_at(from.1, to.1, flags, numbers, b"")
            }
            echo => {
                let kind = match (echo, is_answer) {
                    (1, false) => 8,
                    (1, true) => 0,
                    (_, false) => 128,
                    (_, true) => 129,
                };
                let [high, low] = if is_answer { to.1 } else { from.1 }.to_be_bytes();
                icmp(kind, 0, &[high, low, 0, 1, 1, 2, 3, 4])
            }
        };
        match (from.0, to.0) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                let ip = Ipv4 { source: source.octets(), target: target.octets(), ..Ipv4::default() };
                ip.frame(self.protocol, &payload)
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let ip = Ipv6 { source: source.to_bits(), target: target.to_bits(), ..Ipv6::default() };
                ip.frame(self.protocol, &payload)
            }
            _ => panic!("two versions of IP in one connection"),
        }
    }

    /// Who asks whom, as it stands in a frame without IPv4 options or extension headers.
    fn ends(&self, frame: &[u8]) -> [End; 2] {
        let word = |at: usize| u16::from_be_bytes(frame[at..at + 2].try_into().unwrap());
        let (addresses, transport): ([IpAddr; 2], usize) = if frame[12..14] == [0x08, 0x00] {
            let at = |at: usize| Ipv4Addr::from_octets(frame[at..at + 4].try_into().unwrap());
            ([at(26), at(30)].map(IpAddr::V4), 34)
        } else {
            let at = |at: usize| Ipv6Addr::from_octets(frame[at..at + 16].try_into().unwrap());
            ([at(22), at(38)].map(IpAddr::V6), 54)
        };
        let ports = match self.protocol {
            1 | 58 => [word(transport + 4), 0],
            _ => [word(transport), word(transport + 2)],
        };
        [(addresses[0], ports[0]), (addresses[1], ports[1])]
    }
}

const WHO: [&str; 2] = ["the kernel", "the software NIC"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Say {
    Question,
    Answer,
    More,
}

/// Whether a side sent this frame out of this port, and nothing else.
fn expect(who: &str, sent: &Sent, port: u32, frame: &Vec<u8>) -> Result<(), String> {
    let is_right =
        sent.len() == 1 && sent.get(&PortNumber(port)).is_some_and(|frames| frames == std::slice::from_ref(frame));
    if is_right { Ok(()) } else { Err(format!("{who} sent {sent:02x?} instead of {frame:02x?} out of {port}")) }
}
