//! Connection tracking and address translation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::action::{Action, Commit, Conntrack, Nat, NatSide, PortPick, Translation};
use sluice_flow::field::Field;
use sluice_tests::scenario::Scenario;

use crate::flows::{Matching, at, output, recirc, tells_state};
use crate::packets::{Ipv4, Ipv6, SOURCE_V6, TARGET_V6, icmp, tcp_at, udp};

pub(crate) fn scenarios() -> Vec<Scenario> {
    [states(), zones(), marks(), tuples(), translations(), clears(), odds()].concat()
}

const NEW: u8 = 0x01;
const ESTABLISHED: u8 = 0x02;
const REPLY: u8 = 0x08;
pub(crate) const INVALID: u8 = 0x10;
pub(crate) const TRACKED: u8 = 0x20;

pub(crate) fn track(conntrack: Conntrack) -> Action {
    Action::Conntrack(Box::new(conntrack))
}

pub(crate) fn look_up(zone: u16) -> Action {
    track(Conntrack { zone, ..Conntrack::default() })
}

fn commit(zone: u16) -> Action {
    track(Conntrack { commit: Commit::Yes, zone, ..Conntrack::default() })
}

/// The client is at port 1, the server at port 2.
pub(crate) const CLIENT: [u8; 4] = [10, 0, 0, 1];
pub(crate) const SERVER: [u8; 4] = [10, 0, 0, 2];

/// A packet from one end to the other.
fn segment(from: ([u8; 4], u16), to: ([u8; 4], u16), flags: u16, numbers: (u32, u32), data: &[u8]) -> Vec<u8> {
    Ipv4 { source: from.0, target: to.0, ..Ipv4::default() }.frame(6, &tcp_at(from.1, to.1, flags, numbers, data))
}

/// A TCP connection from handshake to its end; the server answers from wherever it was reached.
pub(crate) fn conversation(client: ([u8; 4], u16), server: ([u8; 4], u16)) -> Vec<(u32, Vec<u8>)> {
    const SYN: u16 = 0x02;
    const ACK: u16 = 0x10;
    const FIN: u16 = 0x01;
    const PSH: u16 = 0x08;
    let out = |flags, numbers, data: &[u8]| (1, segment(client, server, flags, numbers, data));
    let back = |flags, numbers, data: &[u8]| (2, segment(server, client, flags, numbers, data));
    vec![
        out(SYN, (1000, 0), b""),
        back(SYN | ACK, (5000, 1001), b""),
        out(ACK, (1001, 5001), b""),
        out(PSH | ACK, (1001, 5001), b"question"),
        back(PSH | ACK, (5001, 1009), b"answer"),
        out(FIN | ACK, (1009, 5007), b""),
        back(FIN | ACK, (5007, 1010), b""),
        out(ACK, (1010, 5008), b""),
    ]
}

fn play(scenario: Scenario, packets: Vec<(u32, Vec<u8>)>) -> Scenario {
    packets.into_iter().fold(scenario, |scenario, (port, frame)| scenario.packet(port, frame))
}

/// A flow for each state in which a packet may be, each to a port of its own.
fn by_state(scenario: Scenario, chain: u32, protocol: u8) -> Scenario {
    let states =
        [(TRACKED | NEW, 3), (TRACKED | ESTABLISHED, 4), (TRACKED | ESTABLISHED | REPLY, 5), (TRACKED | INVALID, 6)];
    let ends = [1, 2];
    ends.iter().flat_map(|end| states.map(|(state, port)| (*end, state, port))).fold(
        scenario,
        |scenario, (end, state, port)| {
            let matching = at(end).chain(chain).ipv4(protocol).is(Field::CtState, state);
            let actions = if state == TRACKED | NEW { vec![commit(7), output(port)] } else { vec![output(port)] };
            scenario.flow(matching.done(), actions)
        },
    )
}

fn both_ends(scenario: Scenario, protocol: u8, action: &Action, chain: u32) -> Scenario {
    [1, 2]
        .iter()
        .fold(scenario, |scenario, end| scenario.flow(at(*end).ipv4(protocol).done(), [action.clone(), recirc(chain)]))
}

fn states() -> Vec<Scenario> {
    let client = (CLIENT, 40000);
    let server = (SERVER, 80);
    let tcp = |name: &str, packets| {
        play(by_state(both_ends(Scenario::new(format!("ct: {name}")), 6, &look_up(7), 1), 1, 6), packets)
    };
    let udp_frame = |from: [u8; 4], to: [u8; 4], ports: (u16, u16)| {
        Ipv4 { source: from, target: to, ..Ipv4::default() }.frame(17, &udp(ports.0, ports.1, b"data"))
    };
    let echo = |from: [u8; 4], to: [u8; 4], kind| {
        Ipv4 { source: from, target: to, ..Ipv4::default() }.frame(1, &icmp(kind, 0, &[0, 7, 0, 1, 1, 2, 3, 4]))
    };
    // Destination unreachable with the client's packet in it.
    let inner = Ipv4::default().packet(17, &udp(40000, 53, b"data"));
    let unreachable = Ipv4 { source: SERVER, target: CLIENT, ..Ipv4::default() }
        .frame(1, &icmp(3, 3, &[&[0; 4], &inner[..]].concat()));
    let mut reset = conversation(client, server);
    reset.truncate(4);
    reset.push((2, segment(server, client, 0x14, (5001, 1009), b"")));
    reset.push((1, segment(client, server, 0x10, (1009, 5001), b"")));
    let mut wrong = conversation(client, server);
    for (_, frame) in &mut wrong {
        let last = frame.len() - 5;
        frame[last] ^= 0x40;
    }
    let mut midway = conversation(client, server);
    midway.drain(..3);
    let mut outside = conversation(client, server);
    outside.truncate(3);
    outside.push((1, segment(client, server, 0x18, (900_000_000, 5001), b"far out")));
    outside.push((1, segment(client, server, 0x18, (1001, 5001), b"inside")));
    vec![
        tcp("tcp from handshake to end", conversation(client, server)),
        tcp("tcp with a reset", reset),
        tcp("tcp with wrong checksums", wrong),
        tcp("tcp picked up midway", midway),
        tcp("tcp outside of the window", outside),
        tcp(
            "tcp with wrong flags",
            vec![(1, segment(client, server, 0x03, (1, 0), b"")), (1, segment(client, server, 0, (1, 0), b""))],
        ),
        play(
            by_state(both_ends(Scenario::new("ct: udp both ways"), 17, &look_up(7), 1), 1, 17),
            vec![
                (1, udp_frame(CLIENT, SERVER, (40000, 53))),
                (1, udp_frame(CLIENT, SERVER, (40000, 53))),
                (2, udp_frame(SERVER, CLIENT, (53, 40000))),
                (1, udp_frame(CLIENT, SERVER, (40000, 53))),
                (2, udp_frame(SERVER, CLIENT, (54, 40000))),
            ],
        ),
        play(
            by_state(both_ends(Scenario::new("ct: icmp echo"), 1, &look_up(7), 1), 1, 1),
            vec![
                (1, echo(CLIENT, SERVER, 8)),
                (2, echo(SERVER, CLIENT, 0)),
                (2, echo(SERVER, CLIENT, 0)),
                (2, echo([9; 4], CLIENT, 0)),
            ],
        ),
        play(
            Scenario::new("ct: an icmp error belongs to its connection")
                .flow(at(1).ipv4(17).done(), [commit(7), output(2)])
                .flow(at(2).ipv4(1).done(), [look_up(7), recirc(1)])
                .flow(at(2).chain(1).ipv4(1).masked(Field::CtState, 0x24u8, 0x24u8).done(), [output(5)])
                .flow(at(2).chain(1).ipv4(1).masked(Field::CtState, 0x20u8, 0x24u8).done(), [output(6)]),
            vec![(2, unreachable.clone()), (1, udp_frame(CLIENT, SERVER, (40000, 53))), (2, unreachable)],
        ),
        over_ipv6(),
        fragments(),
    ]
}

fn over_ipv6() -> Scenario {
    let out = |flags, numbers| Ipv6::default().frame(6, &tcp_at(40000, 80, flags, numbers, b""));
    let back = |flags, numbers| {
        Ipv6 { source: TARGET_V6, target: SOURCE_V6, ..Ipv6::default() }
            .frame(6, &tcp_at(80, 40000, flags, numbers, b""))
    };
    let chain = |port: u32, state: u8| at(port).chain(1).ipv6(6).is(Field::CtState, state).done();
    Scenario::new("ct: tcp over ipv6")
        .flow(at(1).ipv6(6).done(), [look_up(7), recirc(1)])
        .flow(at(2).ipv6(6).done(), [look_up(7), recirc(1)])
        .flow(chain(1, TRACKED | NEW), [commit(7), output(2)])
        .flow(chain(1, TRACKED | ESTABLISHED), [output(2)])
        .flow(chain(2, TRACKED | ESTABLISHED | REPLY), [output(1)])
        .packet(2, back(0x12, (5000, 1001)))
        .packet(1, out(0x02, (1000, 0)))
        .packet(2, back(0x12, (5000, 1001)))
        .packet(1, out(0x10, (1001, 5001)))
}

/// Fragments are put together for the table and sent on as they came.
fn fragments() -> Scenario {
    let ip = Ipv4::default();
    let whole = ip.packet(17, &udp(40000, 53, &[7; 200]));
    let first = Ipv4 { fragment: 0x2000, ..ip.clone() };
    let (head, tail) = whole[20..].split_at(104);
    let later = Ipv4 { fragment: 13, ..ip };
    let head = {
        // The checksum is over all of it, and is there already.
        let mut frame = first.frame(99, head);
        frame[23] = 17;
        let sum = u16::from_be_bytes([frame[24], frame[25]]);
        let (sum, carry) = sum.overflowing_add(99 - 17);
        frame[24..26].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        frame
    };
    let tail = later.frame(17, tail);
    Scenario::new("ct: fragments")
        .flow(at(1).ipv4(17).done(), [commit(7), recirc(1)])
        .flow(at(1).chain(1).ipv4(17).masked(Field::CtState, TRACKED, TRACKED).done(), [output(2)])
        .packets(1, [head, tail])
}

fn zones() -> Vec<Scenario> {
    let udp_frame = Ipv4::default().frame(17, &udp(40000, 53, b"data"));
    let in_zone = |zone: u16| at(1).chain(u32::from(zone)).ipv4(17);
    vec![
        Scenario::new("ct: zones do not know each other")
            .flow(at(1).ipv4(17).done(), [commit(1), recirc(1), look_up(2), recirc(2)])
            .flow(in_zone(1).is(Field::CtZone, 1u8).is(Field::CtState, TRACKED | NEW).done(), [output(3)])
            .flow(in_zone(1).is(Field::CtZone, 1u8).is(Field::CtState, TRACKED | ESTABLISHED).done(), [output(4)])
            .flow(in_zone(2).is(Field::CtZone, 2u8).is(Field::CtState, TRACKED | NEW).done(), [output(5)])
            .flow(in_zone(2).is(Field::CtZone, 2u8).is(Field::CtState, TRACKED | ESTABLISHED).done(), [output(6)])
            .packets(1, vec![udp_frame; 3]),
    ]
}

fn marks() -> Vec<Scenario> {
    let frame = || Ipv4::default().frame(17, &udp(40000, 53, b"data"));
    let back = Ipv4 { source: SERVER, target: CLIENT, ..Ipv4::default() }.frame(17, &udp(53, 40000, b"data"));
    let label = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeffu128;
    let marked = |mark, label| track(Conntrack { commit: Commit::Yes, zone: 7, mark, label, ..Conntrack::default() });
    let next = |port: u32| at(port).chain(1).ipv4(17);
    vec![
        Scenario::new("ct: mark")
            .flow(at(1).ipv4(17).done(), [marked(Some((0x1234, 0xffff_ffff)), None), recirc(1)])
            .flow(at(2).ipv4(17).done(), [look_up(7), recirc(1)])
            .flow(next(1).is(Field::CtMark, 0x1234u16).done(), [output(2)])
            .flow(next(2).is(Field::CtMark, 0x1234u16).done(), [output(1)])
            .packets(1, [frame(), frame()])
            .packet(2, back.clone()),
        Scenario::new("ct: some bits of the mark, set twice")
            .flow(
                at(1).ipv4(17).done(),
                [marked(Some((0x1200, 0xff00)), None), marked(Some((0x34, 0xff)), None), recirc(1)],
            )
            .flow(next(1).is(Field::CtMark, 0x1234u16).done(), [output(2)])
            .packets(1, [frame(), frame()]),
        Scenario::new("ct: label")
            .flow(at(1).ipv4(17).done(), [marked(None, Some((label, u128::MAX))), recirc(1)])
            .flow(at(2).ipv4(17).done(), [look_up(7), recirc(1)])
            .flow(next(1).is(Field::CtLabel, label).done(), [output(2)])
            .flow(next(2).masked(Field::CtLabel, label & 0xff00, 0xff00u16).done(), [output(1)])
            .packets(1, [frame(), frame()])
            .packet(2, back),
    ]
}

fn tuples() -> Vec<Scenario> {
    let frame = Ipv4::default().frame(17, &udp(40000, 53, b"data"));
    let back = Ipv4 { source: SERVER, target: CLIENT, ..Ipv4::default() }.frame(17, &udp(53, 40000, b"data"));
    let original = |matching: Matching| {
        matching
            .masked(Field::CtState, TRACKED, TRACKED)
            .is(Field::CtTuple4Src, 0x0a00_0001u32)
            .is(Field::CtTuple4Dst, 0x0a00_0002u32)
            .is(Field::CtTuple4Proto, 17u8)
            .is(Field::CtTuple4TpSrc, 40000u16)
            .is(Field::CtTuple4TpDst, 53u16)
            .done()
    };
    vec![
        Scenario::new("ct: the first direction's tuple, both ways")
            .flow(at(1).ipv4(17).done(), [commit(7), recirc(1)])
            .flow(at(2).ipv4(17).done(), [look_up(7), recirc(1)])
            .flow(original(at(1).chain(1).ipv4(17)), [output(2)])
            .flow(original(at(2).chain(1).ipv4(17)), [output(1)])
            .packet(1, frame)
            .packet(2, back),
    ]
}

pub(crate) fn translation(side: NatSide, first: IpAddr, last: IpAddr) -> Translation {
    Translation { side, addresses: Some((first, last)), ports: None, persistent: false, pick: PortPick::Default }
}

pub(crate) fn nat(translation: Translation) -> Action {
    track(Conntrack { commit: Commit::Yes, zone: 7, nat: Some(Nat::New(translation)), ..Conntrack::default() })
}

/// Translations in which there is nothing to choose, so that both sides must come to the same.
fn translations() -> Vec<Scenario> {
    let existing = || track(Conntrack { zone: 7, nat: Some(Nat::Existing), ..Conntrack::default() });
    let v4 = |bytes: [u8; 4]| IpAddr::V4(Ipv4Addr::from(bytes));
    let v6 = |bits: u128| IpAddr::V6(Ipv6Addr::from(bits));
    let outside = [192, 0, 2, 1];
    let source = translation(NatSide::Source, v4(outside), v4(outside));
    let target = translation(NatSide::Destination, v4(SERVER), v4(SERVER));
    let scenario = |name: &str, protocol: u8, translation: Translation| {
        Scenario::new(format!("nat: {name}"))
            .flow(at(1).ipv4(protocol).done(), [nat(translation), recirc(1)])
            .flow(at(1).chain(1).ipv4(protocol).masked(Field::CtState, TRACKED, TRACKED | INVALID).done(), [output(2)])
            .flow(at(2).ipv4(protocol).done(), [existing(), recirc(1)])
            .flow(
                at(2)
                    .chain(1)
                    .ipv4(protocol)
                    .masked(Field::CtState, TRACKED | ESTABLISHED, TRACKED | ESTABLISHED)
                    .done(),
                [output(1)],
            )
            .flow(
                at(2).chain(1).ipv4(protocol).masked(Field::CtState, TRACKED, TRACKED | ESTABLISHED).done(),
                [output(6)],
            )
    };
    // What the client says, and what the server answers to what it heard.
    let mixed = |client_sees: [u8; 4], server_sees: [u8; 4], port: u16| {
        let said = conversation((CLIENT, 40000), (client_sees, 80));
        let heard = conversation((server_sees, port), (SERVER, 80));
        said.into_iter().zip(heard).map(|(said, heard)| if said.0 == 1 { said } else { heard }).collect::<Vec<_>>()
    };
    let inner = Ipv4 { source: outside, ..Ipv4::default() }.packet(17, &udp(40000, 53, b"data"));
    let unreachable = Ipv4 { source: SERVER, target: outside, ..Ipv4::default() }
        .frame(1, &icmp(3, 3, &[&[0; 4], &inner[..]].concat()));
    // Version 0 and less and less of it; PPTP with calls; what has its version or another one.
    let whole = [0, 0, 8, 0, 1, 2, 3, 4];
    let generic = [8, 7, 4, 3, 1, 0].map(|length| whole[..length].to_vec());
    let call = |number: u8| vec![0x30, 1, 0x88, 0x0b, 0, 0, 0x12, number];
    let odd = [vec![0x30, 1, 8, 0, 0, 0, 0, 0], vec![0, 2, 8, 0, 0, 0, 0, 0]];
    let gre: Vec<_> =
        generic.into_iter().chain([call(1), call(2)]).chain(odd).map(|gre| Ipv4::default().frame(47, &gre)).collect();
    vec![
        scenario("source of gre", 47, source.clone()).packets(1, gre.clone()),
        scenario("destination of gre", 47, translation(NatSide::Destination, v4([10, 0, 0, 9]), v4([10, 0, 0, 9])))
            .packets(1, gre),
        play(scenario("source", 6, source.clone()), mixed(SERVER, outside, 40000)),
        play(scenario("destination", 6, target), mixed([10, 0, 0, 99], CLIENT, 40000)),
        play(
            scenario("source to one port", 6, Translation { ports: Some((5555, 5555)), ..source.clone() }),
            mixed(SERVER, outside, 5555),
        ),
        scenario("udp", 17, source.clone())
            .packet(1, Ipv4::default().frame(17, &udp(40000, 53, b"data")))
            .packet(2, Ipv4 { source: SERVER, target: outside, ..Ipv4::default() }.frame(17, &udp(53, 40000, b"data"))),
        scenario("an icmp error is translated inside", 17, source.clone())
            .flow(at(2).ipv4(1).done(), [existing(), output(1)])
            .packet(1, Ipv4::default().frame(17, &udp(40000, 53, b"data")))
            .packet(2, unreachable),
        scenario("echo", 1, source).packet(1, Ipv4::default().frame(1, &icmp(8, 0, &[0, 7, 0, 1, 1, 2]))).packet(
            2,
            Ipv4 { source: SERVER, target: outside, ..Ipv4::default() }.frame(1, &icmp(0, 0, &[0, 7, 0, 1, 1, 2])),
        ),
        Scenario::new("nat: source over ipv6")
            .flow(
                at(1).ipv6(17).done(),
                [nat(translation(NatSide::Source, v6(0xfd99 << 112 | 1), v6(0xfd99 << 112 | 1))), output(2)],
            )
            .flow(at(2).ipv6(17).done(), [existing(), output(1)])
            .packet(1, Ipv6::default().frame(17, &udp(40000, 53, b"data")))
            .packet(
                2,
                Ipv6 { source: TARGET_V6, target: 0xfd99 << 112 | 1, ..Ipv6::default() }
                    .frame(17, &udp(53, 40000, b"data")),
            ),
    ]
}

fn clears() -> Vec<Scenario> {
    vec![
        Scenario::new("ct_clear: nothing is known any more")
            .flow(at(1).ipv4(17).done(), [commit(7), Action::ConntrackClear, recirc(1)])
            .flow(at(1).chain(1).ipv4(17).is(Field::CtState, 0u8).is(Field::CtZone, 0u8).done(), [output(2)])
            .flow(at(1).chain(1).ipv4(17).masked(Field::CtState, TRACKED, TRACKED).done(), [output(3)])
            .packets(1, vec![Ipv4::default().frame(17, &udp(40000, 53, b"data")); 2]),
    ]
}

fn odds() -> Vec<Scenario> {
    let frame = || Ipv4::default().frame(17, &udp(40000, 53, b"data"));
    let back = || Ipv4 { source: SERVER, target: CLIENT, ..Ipv4::default() }.frame(17, &udp(53, 40000, b"data"));
    let force = track(Conntrack { commit: Commit::Force, zone: 7, ..Conntrack::default() });
    let next = |port: u32, state: u8| at(port).chain(1).ipv4(17).is(Field::CtState, state).done();
    let helper = track(Conntrack { commit: Commit::Yes, zone: 7, helper: Some("ftp".into()), ..Conntrack::default() });
    let timeout =
        track(Conntrack { commit: Commit::Yes, zone: 7, timeout: Some("none".into()), ..Conntrack::default() });
    let label = track(Conntrack { zone: 7, mark: Some((1, 1)), ..Conntrack::default() });
    vec![
        Scenario::new("ct: force_commit turns the connection around")
            .flow(at(1).ipv4(17).done(), [commit(7), recirc(1)])
            .flow(at(2).ipv4(17).done(), [force, recirc(1)])
            .flow(next(1, TRACKED | NEW), [output(3)])
            .flow(next(1, TRACKED | ESTABLISHED), [output(4)])
            .flow(next(1, TRACKED | ESTABLISHED | REPLY), [output(5)])
            .flow(next(2, TRACKED | NEW), [output(6)])
            .packets(1, [frame(), frame()])
            .packet(2, back())
            .packet(1, frame()),
        Scenario::new("ct: helper").flow(at(1).ipv4(6).done(), [helper, output(2)]).packets(
            1,
            conversation((CLIENT, 40000), (SERVER, 21))
                .into_iter()
                .filter(|(port, _)| *port == 1)
                .map(|(_, frame)| frame),
        ),
        Scenario::new("ct: a timeout policy that is not there")
            .flow(at(1).ipv4(17).done(), [timeout, output(2)])
            .packet(1, frame()),
        Scenario::new("ct: a mark without a commit").flow(at(1).ipv4(17).done(), [label, output(2)]).packet(1, frame()),
        tells_state(Scenario::new("udp-lite: checksums"), 1, 0x0800)
            .flow(at(1).ipv4(136).done(), [commit(7), recirc(1)])
            .packet(1, Ipv4::default().frame(136, &udp(40000, 53, b"data"))),
        Scenario::new("ct: what is not tracked has no state")
            .flow(at(1).ipv4(17).is(Field::CtState, 0u8).done(), [output(2)])
            .packet(1, frame()),
    ]
}
