//! Errors of ICMP about connections of every protocol, translated or not, and cut off at every length that matters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::action::{Action, Commit, Conntrack, Nat, NatSide};
use sluice_tests::scenario::Scenario;

use crate::conntrack::{nat, track, translation};
use crate::flows::{Matching, at, recirc, tells_state};
use crate::packets::{Ipv4, Ipv6, icmp, sctp_tagged, tcp_at, udp};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![];
    for family in [Family::V4, Family::V6] {
        for translated in [None, Some(NatSide::Source), Some(NatSide::Destination)] {
            let protocols = [6, 17, 33, 47, 50, 132, family.echo()];
            all.extend(protocols.map(|protocol| about(family, protocol, translated)));
        }
    }
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// A host, by its number in the network of its family.
#[derive(Clone, Copy)]
struct Host(u8);

const CLIENT: Host = Host(1);
const SERVER: Host = Host(2);
const ROUTER: Host = Host(250);
/// What client or server is translated into.
const OTHER: Host = Host(99);

impl Family {
    fn eth_type(self) -> u16 {
        match self {
            Self::V4 => 0x0800,
            Self::V6 => 0x86dd,
        }
    }

    /// The protocol of echoes and of errors.
    fn echo(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 58,
        }
    }

    fn address(self, host: Host) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::from(v4(host)).into(),
            Self::V6 => Ipv6Addr::from(v6(host)).into(),
        }
    }

    fn packet(self, [from, to]: [Host; 2], protocol: u8, payload: &[u8]) -> Vec<u8> {
        match self {
            Self::V4 => Ipv4 { source: v4(from), target: v4(to), ..Ipv4::default() }.packet(protocol, payload),
            Self::V6 => Ipv6 { source: v6(from), target: v6(to), ..Ipv6::default() }.packet(protocol, payload),
        }
    }

    fn frame(self, ends: [Host; 2], protocol: u8, payload: &[u8]) -> Vec<u8> {
        crate::packets::ethernet(self.eth_type(), &self.packet(ends, protocol, payload))
    }

    fn from(self, port: u32, protocol: u8) -> Matching {
        match self {
            Self::V4 => at(port).ipv4(protocol),
            Self::V6 => at(port).ipv6(protocol),
        }
    }

    /// Types and codes of errors, and of what looks like one.
    fn errors(self) -> &'static [(u8, u8)] {
        match self {
            Self::V4 => &[(3, 3), (3, 4), (4, 0), (5, 1), (11, 0), (12, 0), (6, 0), (19, 0)],
            Self::V6 => &[(1, 4), (2, 0), (3, 0), (4, 1), (127, 0), (137, 0)],
        }
    }
}

fn v4(host: Host) -> [u8; 4] {
    [10, 0, 0, host.0]
}

fn v6(host: Host) -> u128 {
    0xfd00 << 112 | u128::from(host.0)
}

/// The first packet of a connection, or the answer to it.
fn said(family: Family, protocol: u8, is_answer: bool) -> Vec<u8> {
    let (from, to) = if is_answer { (80, 40000) } else { (40000, 80) };
    let init = |tag: u32| [&tag.to_be_bytes()[..], &[0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 7]].concat();
    match (protocol, is_answer) {
        (6, false) => tcp_at(from, to, 0x02, (1000, 0), b""),
        (6, true) => tcp_at(from, to, 0x12, (5000, 1001), b""),
        (17, _) => udp(from, to, b"some data"),
        (33, false) => dccp(from, to, 0, (100, 0)),
        (33, true) => dccp(from, to, 1, (500, 100)),
        (47, _) => vec![0, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        (132, false) => sctp_tagged(from, to, 0, &[&[1, 0, 0, 20], &init(0xaaaa)[..]].concat()),
        (132, true) => sctp_tagged(from, to, 0xaaaa, &[&[2, 0, 0, 20], &init(0xbbbb)[..]].concat()),
        (1 | 58, _) => {
            let [question, answer] = if family == Family::V4 { [8, 0] } else { [128, 129] };
            icmp(if is_answer { answer } else { question }, 0, &[0, 7, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8])
        }
        _ => b"anything at all".to_vec(),
    }
}

/// A connection, and errors about both of its directions: to the client at port 2 and to the server at port 1, and the latter with a
/// commit at port 3.
fn about(family: Family, protocol: u8, translated: Option<NatSide>) -> Scenario {
    let zone = 7;
    let existing = |commit| track(Conntrack { commit, zone, nat: Some(Nat::Existing), ..Conntrack::default() });
    let begin = match translated {
        None => track(Conntrack { commit: Commit::Yes, zone, ..Conntrack::default() }),
        Some(side) => nat(translation(side, family.address(OTHER), family.address(OTHER))),
    };
    let flow = |scenario: Scenario, port, protocol, action: Action| {
        scenario.flow(family.from(port, protocol).done(), [action, recirc(1)])
    };
    let name = translated.map_or("as it is".into(), |side| format!("{side:?} translated"));
    let mut scenario = Scenario::new(format!("errors over {family:?}: protocol {protocol}, {name}"));
    scenario = flow(scenario, 1, protocol, begin);
    scenario = flow(scenario, 2, protocol, existing(Commit::No));
    for (port, commit) in [(1, Commit::No), (2, Commit::No), (3, Commit::Yes)] {
        if protocol != family.echo() || port == 3 {
            scenario = flow(scenario, port, family.echo(), existing(commit));
        }
    }
    scenario = tells_state(scenario, 1, family.eth_type());

    // The client as the server sees it, and the other way round.
    let [seen_client, seen_server] = match translated {
        None => [CLIENT, SERVER],
        Some(NatSide::Source) => [OTHER, SERVER],
        Some(NatSide::Destination) => [CLIENT, OTHER],
    };
    let question = said(family, protocol, false);
    let answer = said(family, protocol, true);
    let first = family.frame([CLIENT, SERVER], protocol, &question);
    let second = family.frame([seen_server, seen_client], protocol, &answer);
    let to_client = family.packet([seen_client, seen_server], protocol, &question);
    let to_server = family.packet([SERVER, CLIENT], protocol, &answer);
    let error = |kind: (u8, u8), ends: [Host; 2], about: &[u8]| {
        family.frame(ends, family.echo(), &icmp(kind.0, kind.1, &[&[0; 4], about].concat()))
    };
    let header = to_client.len() - question.len();
    let mut wrong = error(family.errors()[0], [ROUTER, seen_client], &to_client);
    let last = wrong.len() - 1;
    wrong[last] ^= 0x11;
    scenario = scenario.packet(1, first).packet(2, error(family.errors()[0], [ROUTER, seen_client], &to_client));
    scenario = scenario.packet(2, second).packet(2, wrong);
    for kind in family.errors() {
        scenario = scenario
            .packet(2, error(*kind, [ROUTER, seen_client], &to_client))
            .packet(1, error(*kind, [ROUTER, SERVER], &to_server))
            .packet(3, error(*kind, [ROUTER, SERVER], &to_server));
    }
    for length in [0, 3, 4, 7, 8, 11, 12, 19, 20] {
        let about = &to_client[..(header + length).min(to_client.len())];
        scenario = scenario.packet(2, error(family.errors()[0], [ROUTER, seen_client], about));
    }
    let to_another = error(family.errors()[0], [ROUTER, ROUTER], &to_client);
    let from_the_end = error(family.errors()[0], [seen_server, seen_client], &to_client);
    let half_a_header = error(family.errors()[0], [ROUTER, seen_client], &to_client[..header - 1]);
    scenario.packets(2, [to_another, from_the_end, half_a_header])
}

/// A DCCP packet of a type with 48 bits of sequence number, and acknowledgement number.
fn dccp(source: u16, target: u16, kind: u8, (sequence, acknowledged): (u32, u32)) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), target.to_be_bytes()].concat();
    bytes.extend([7, 0, 0, 0, kind << 1 | 1, 0, 0, 0]);
    bytes.extend([sequence, 0, acknowledged, 0].map(u32::to_be_bytes).concat());
    bytes
}
