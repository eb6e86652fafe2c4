//! Connections: states, zones, marks, labels and translation, as far as OVS's own tracker and the kernel's agree.
//!
//! Left out is where OVS's differs from the kernel's by design: it does not check TCP windows the same way, knows neither
//! SCTP nor GRE, picks ports of a range by another hash, and has timeouts of its own.

use sluice_tests::scenario::Scenario;

use crate::by_hand::{actions, key, play_all};
use crate::judge::Judge;
use crate::packets::{Ipv4, Ipv6, icmp, tcp_at, udp};

const SYN: u16 = 0x002;
const ACK: u16 = 0x010;
const FIN_ACK: u16 = 0x011;
const RST: u16 = 0x004;

/// What states are told apart, by the Ethernet address that a packet then has.
const STATES: [(&str, &str); 6] = [
    ("+new-est-rpl-inv+trk", "01"),
    ("-new+est-rpl-inv+trk", "02"),
    ("-new+est+rpl-inv+trk", "03"),
    ("-new-est-rpl+inv+trk", "04"),
    ("-new-est-rel+rpl-inv+trk", "05"),
    ("+rel-inv+trk", "06"),
];

/// Both ways between port 1 and port 2: tracked with these arguments, committed if new, told apart by state.
fn both_ways(name: &str, eth_type: &str, first: &str, commit: &str) -> Scenario {
    let mut scenario = Scenario::new(name);
    for (from, to) in [(1, 2), (2, 1)] {
        let enter = key(&format!("in_port({from}),eth_type({eth_type})"));
        scenario = scenario.flow(enter, actions(&format!("ct({first}),recirc(1)")));
        for (state, byte) in STATES {
            let then = if state.starts_with("+new") { format!("ct({commit}),") } else { String::new() };
            let told = format!("recirc_id(0x1),in_port({from}),ct_state({state}),eth_type({eth_type})");
            let list = format!("{then}set(eth(src=02:00:00:00:00:{byte})),{to}");
            scenario = scenario.flow(key(&told), actions(&list));
        }
    }
    scenario
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn between(source: [u8; 4], target: [u8; 4]) -> Ipv4 {
    Ipv4 { source, target, ..Ipv4::default() }
}

fn talk_tcp(scenario: Scenario, client: [u8; 4], server: [u8; 4], seen: ([u8; 4], u16)) -> Scenario {
    let (seen_address, seen_port) = seen;
    let there = |flags, numbers, data: &[u8]| between(client, server).frame(6, &tcp_at(4000, 80, flags, numbers, data));
    let back = |flags, numbers, data: &[u8]| {
        between(server, seen_address).frame(6, &tcp_at(80, seen_port, flags, numbers, data))
    };
    scenario
        .packet(1, there(SYN, (100, 0), b""))
        .packet(2, back(SYN | ACK, (500, 101), b""))
        .packet(1, there(ACK, (101, 501), b""))
        .packet(1, there(ACK, (101, 501), b"question"))
        .packet(2, back(ACK, (501, 109), b"answer"))
        .packet(1, there(FIN_ACK, (109, 507), b""))
        .packet(2, back(FIN_ACK, (507, 110), b""))
        .packet(1, there(ACK, (110, 508), b""))
}

fn talk_udp(scenario: Scenario, seen: ([u8; 4], u16)) -> Scenario {
    let (address, port) = seen;
    scenario
        .packet(1, between(A, B).frame(17, &udp(4000, 53, b"question")))
        .packet(2, between(B, address).frame(17, &udp(53, port, b"answer")))
        .packet(1, between(A, B).frame(17, &udp(4000, 53, b"question")))
        .packet(2, between(B, address).frame(17, &udp(53, port, b"answer")))
}

#[test]
fn connections_are_tracked_and_translated_as_in_ovs() {
    let v4 = "0x0800";
    let plain = |name: &str| both_ways(name, v4, "zone=5", "commit,zone=5");
    let translated = |name: &str, nat: &str| both_ways(name, v4, "zone=5,nat", &format!("commit,zone=5,nat({nat})"));
    let unreachable = |quoted: &[u8]| icmp(3, 3, &[&[0; 4], quoted].concat());
    let echo = |kind| icmp(kind, 0, &[0, 7, 0, 1, 1, 2, 3, 4]);
    let quoted = between(A, B).packet(17, &udp(4000, 53, b"question"));
    let v6 = |payload: &[u8]| Ipv6::default().frame(17, payload);
    let marked = Scenario::new("mark and label")
        .flow(key("in_port(1),eth_type(0x0800)"), actions("ct(commit,zone=7,mark=0x5/0xf,label=0x10/0xff),recirc(1)"))
        .flow(key("recirc_id(0x1),in_port(1),ct_zone(7),ct_mark(0x5),ct_label(0x10),eth_type(0x0800)"), actions("2"))
        .packets(1, [udp(1, 2, b"one"), udp(1, 2, b"two")].map(|datagram| Ipv4::default().frame(17, &datagram)));
    let cleared = Scenario::new("ct_clear")
        .flow(key("in_port(1),eth_type(0x0800)"), actions("ct(commit,zone=7,mark=0x5/0xf),ct_clear,recirc(1)"))
        .flow(key("recirc_id(0x1),in_port(1),ct_state(-trk),ct_zone(0),ct_mark(0),eth_type(0x0800)"), actions("2"))
        .packet(1, Ipv4::default().frame(17, &udp(1, 2, b"one")));
    let zones = Scenario::new("a connection of one zone is new in another")
        .flow(key("in_port(1),eth_type(0x0800)"), actions("ct(commit,zone=1),ct(zone=2),recirc(1)"))
        .flow(key("recirc_id(0x1),in_port(1),ct_state(+new+trk),ct_zone(2),eth_type(0x0800)"), actions("2"))
        .packets(1, [udp(1, 2, b"one"), udp(1, 2, b"two")].map(|datagram| Ipv4::default().frame(17, &datagram)));
    let scenarios = [
        talk_tcp(plain("tcp"), A, B, (A, 4000)),
        plain("tcp is reset")
            .packet(1, between(A, B).frame(6, &tcp_at(4000, 80, SYN, (100, 0), b"")))
            .packet(2, between(B, A).frame(6, &tcp_at(80, 4000, RST | ACK, (0, 101), b""))),
        talk_udp(plain("udp"), (A, 4000)),
        plain("echo")
            .packet(1, between(A, B).frame(1, &echo(8)))
            .packet(2, between(B, A).frame(1, &echo(0)))
            .packet(1, between(A, B).frame(1, &echo(8))),
        plain("an answer that nobody asked for").packet(1, between(A, B).frame(1, &echo(0))),
        talk_udp(plain("an error"), (A, 4000)).packet(2, between(B, A).frame(1, &unreachable(&quoted))),
        both_ways("udp over ipv6", "0x86dd", "zone=5", "commit,zone=5")
            .packets(1, [v6(&udp(4000, 53, b"question")), v6(&udp(4000, 53, b"another"))]),
        talk_udp(translated("source", "src=10.9.9.9"), ([10, 9, 9, 9], 4000)),
        talk_udp(translated("source and port", "src=10.9.9.9:5000"), ([10, 9, 9, 9], 5000)),
        talk_tcp(translated("source of tcp", "src=10.9.9.9:5000"), A, B, ([10, 9, 9, 9], 5000)),
        translated("destination", "dst=10.8.8.8:5300")
            .packet(1, between(A, B).frame(17, &udp(4000, 53, b"question")))
            .packet(2, between([10, 8, 8, 8], A).frame(17, &udp(5300, 4000, b"answer"))),
        marked,
        cleared,
        zones,
    ];
    play_all(&mut Judge::new(), &scenarios);
}
