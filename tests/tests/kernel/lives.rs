//! Connections from their beginning to what comes after their end, each packet with its state.

use sluice_flow::action::{Action, Commit, Conntrack, Nat, NatSide, Translation};
use sluice_tests::scenario::Scenario;

use crate::combined::{OUTSIDE, begin, copy, datagram, go_on, question, to};
use crate::conntrack::{CLIENT, SERVER, conversation, look_up, track};
use crate::flows::{at, behind, output, recirc, tells_state};
use crate::packets::{Ipv4, ethernet, sctp_tagged, tcp_at};

pub(crate) fn scenarios() -> Vec<Scenario> {
    [associations(), forced(), lifetimes()].concat()
}

/// Associations of SCTP: there and back, with tags that fit and tags that do not.
fn associations() -> Vec<Scenario> {
    let chunk = |kind: u8, flags: u8, value: &[u8]| {
        let length = u16::try_from(4 + value.len()).unwrap().to_be_bytes();
        [&[kind, flags][..], &length, value].concat()
    };
    let init = |tag: u32| [&tag.to_be_bytes()[..], &[0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 7]].concat();
    let scenario = |name: &str, translated: Option<Translation>, turns: &[(bool, u32, Vec<u8>)]| {
        let seen = if translated.is_some() { OUTSIDE } else { CLIENT };
        let mut scenario = Scenario::new(format!("combined: sctp, {name}"))
            .flow(at(1).ipv4(132).done(), [begin(7, translated), recirc(1)])
            .flow(at(2).ipv4(132).done(), [go_on(7), recirc(1)]);
        scenario = tells_state(scenario, 1, 0x0800);
        for (is_answer, tag, chunks) in turns {
            let (port, ends, ports) =
                if *is_answer { (2, [SERVER, seen], [80, 40000]) } else { (1, [CLIENT, SERVER], [40000, 80]) };
            let ip = Ipv4 { source: ends[0], target: ends[1], ..Ipv4::default() };
            scenario = scenario.packet(port, ip.frame(132, &sctp_tagged(ports[0], ports[1], *tag, chunks)));
        }
        scenario
    };
    let (a, b) = (0xaaaa, 0xbbbb);
    let handshake = || {
        vec![
            (false, 0, chunk(1, 0, &init(a))),
            (true, a, chunk(2, 0, &init(b))),
            (false, b, chunk(10, 0, &[9; 8])),
            (true, a, chunk(11, 0, &[])),
        ]
    };
    let with = |more: &[(bool, u32, Vec<u8>)]| [&handshake()[..], more].concat();
    let data = || chunk(0, 3, &[7; 16]);
    let shutdown = [(false, b, chunk(7, 0, &[0; 4])), (true, a, chunk(8, 0, &[])), (false, b, chunk(14, 0, &[]))];
    let talk = with(&[&[(false, b, data()), (true, a, data())][..], &shutdown, &[(false, b, data())]].concat());
    vec![
        scenario("from handshake to shutdown", None, &talk),
        scenario("translated from handshake to shutdown", Some(to(NatSide::Source, OUTSIDE, None)), &talk),
        scenario("translated to another port", Some(to(NatSide::Source, OUTSIDE, Some((40000, 40000)))), &talk),
        scenario(
            "wrong tags",
            None,
            &with(&[(false, 1, data()), (true, 1, data()), (true, 1, chunk(6, 0, &[])), (true, a, data())]),
        ),
        scenario("an abort, and data behind it", None, &with(&[(true, a, chunk(6, 0, &[])), (false, b, data())])),
        scenario("an abort with the other tag", None, &with(&[(true, b, chunk(6, 1, &[])), (false, b, data())])),
        scenario(
            "heartbeats",
            None,
            &with(&[
                (false, b, chunk(4, 0, &[0; 8])),
                (true, a, chunk(5, 0, &[0; 8])),
                (true, 5, chunk(4, 0, &[0; 8])),
                (false, 6, chunk(5, 0, &[0; 8])),
                (false, b, data()),
            ]),
        ),
        scenario(
            "a heartbeat begins it",
            None,
            &[(false, b, chunk(4, 0, &[0; 8])), (true, a, chunk(5, 0, &[0; 8])), (false, b, data()), (true, a, data())],
        ),
        scenario("data begins it", None, &[(false, b, data()), (true, a, data())]),
        scenario(
            "an init again",
            None,
            &with(&[
                (false, 0, chunk(1, 0, &init(0xcccc))),
                (true, 0xcccc, chunk(2, 0, &init(0xdddd))),
                (false, 0xdddd, chunk(10, 0, &[9; 8])),
                (true, 0xcccc, chunk(11, 0, &[])),
                (false, 0xdddd, data()),
            ]),
        ),
        scenario(
            "both ends begin",
            None,
            &[
                (false, 0, chunk(1, 0, &init(a))),
                (true, 0, chunk(1, 0, &init(b))),
                (false, b, chunk(2, 0, &init(a))),
                (true, a, chunk(10, 0, &[9; 8])),
                (false, b, chunk(11, 0, &[])),
                (true, a, data()),
            ],
        ),
        scenario(
            "chunks that are cut off or together in vain",
            None,
            &[
                (false, 0, chunk(1, 0, &init(a))[..10].to_vec()),
                (false, 0, [chunk(1, 0, &init(a)), data()].concat()),
                (false, 0, vec![]),
                (false, 0, vec![1, 0, 0, 0]),
                (false, 7, chunk(1, 0, &init(a))),
            ],
        ),
    ]
}

/// Commits that turn connections around, with translations and from either end.
fn forced() -> Vec<Scenario> {
    let force = |translated: Option<Translation>| {
        track(Conntrack { commit: Commit::Force, zone: 7, nat: translated.map(Nat::New), ..Conntrack::default() })
    };
    let source = || Some(to(NatSide::Source, OUTSIDE, None));
    let scenario = |name: &str, here: &[Action], there: &[Action]| {
        let scenario = Scenario::new(format!("combined: force, {name}"))
            .flow(at(1).eth_type(0x0800).done(), [here, &[recirc(1)]].concat())
            .flow(at(2).eth_type(0x0800).done(), [there, &[recirc(1)]].concat());
        let scenario = tells_state(scenario, 1, 0x0800);
        let back = |to: [u8; 4]| datagram((SERVER, 53), (to, 40000));
        let talk = conversation((CLIENT, 41000), (SERVER, 80));
        let scenario = scenario.packets(1, [question(), question()]).packets(2, [back(OUTSIDE), back(CLIENT)]);
        let scenario = scenario.packet(1, question()).packet(2, back(CLIENT)).packet(1, question());
        talk.into_iter().take(5).fold(scenario, |scenario, (port, frame)| scenario.packet(port, frame))
    };
    vec![
        scenario("at one end", &[begin(7, None)], &[force(None)]),
        scenario("at both ends", &[force(None)], &[force(None)]),
        scenario("translated, at one end", &[begin(7, source())], &[force(None)]),
        scenario("behind a look", &[begin(7, None)], &[look_up(7), force(None)]),
        scenario("behind a translating look", &[begin(7, source())], &[go_on(7), force(None)]),
        scenario("with a translation, behind a look", &[begin(7, None)], &[look_up(7), force(source())]),
        scenario("in a copy", &[begin(7, None)], &[copy(&[force(None), output(4)]), look_up(7)]),
        scenario("in the next chain", &[begin(7, None)], &[look_up(7), recirc(2)])
            .flow(behind(2).eth_type(0x0800).done(), [force(None), recirc(1)]),
        scenario("behind a clear", &[begin(7, None)], &[look_up(7), Action::ConntrackClear, force(None)]),
    ]
}

/// How connections end, and what comes next.
fn lifetimes() -> Vec<Scenario> {
    let scenario = |name: &str, packets: Vec<(u32, Vec<u8>)>| {
        let scenario = Scenario::new(format!("combined: tcp, {name}"))
            .flow(at(1).ipv4(6).done(), [begin(7, None), recirc(1)])
            .flow(at(2).ipv4(6).done(), [go_on(7), recirc(1)]);
        let scenario = tells_state(scenario, 1, 0x0800);
        packets.into_iter().fold(scenario, |scenario, (port, frame)| scenario.packet(port, frame))
    };
    let say = |is_answer: bool, flags, numbers, data: &[u8]| {
        let (port, ends, ports) =
            if is_answer { (2, [SERVER, CLIENT], [80, 40000]) } else { (1, [CLIENT, SERVER], [40000, 80]) };
        let ip = Ipv4 { source: ends[0], target: ends[1], ..Ipv4::default() };
        (port, ip.frame(6, &tcp_at(ports[0], ports[1], flags, numbers, data)))
    };
    let talk = || conversation((CLIENT, 40000), (SERVER, 80));
    let after = |more: Vec<(u32, Vec<u8>)>| [talk(), more].concat();
    let within = |count, more: Vec<(u32, Vec<u8>)>| [talk()[..count].to_vec(), more].concat();
    vec![
        scenario("twice", [talk(), talk()].concat()),
        scenario(
            "begun again by the other end",
            after(vec![say(true, 0x02, (9000, 0), b""), say(false, 0x12, (2000, 9001), b"")]),
        ),
        scenario(
            "a syn in the middle",
            within(
                5,
                vec![
                    say(false, 0x02, (700_000, 0), b""),
                    say(true, 0x10, (5007, 1009), b""),
                    say(false, 0x04, (1009, 0), b""),
                ],
            ),
        ),
        scenario(
            "a syn in the middle that is answered",
            within(
                5,
                vec![
                    say(false, 0x02, (700_000, 0), b""),
                    say(true, 0x12, (800_000, 700_001), b""),
                    say(false, 0x10, (700_001, 800_001), b""),
                ],
            ),
        ),
        scenario(
            "resets",
            within(
                3,
                vec![
                    say(false, 0x04, (900, 0), b""),
                    say(true, 0x14, (5001, 1001), b""),
                    say(false, 0x10, (1001, 5001), b"more"),
                    say(false, 0x02, (90_000, 0), b""),
                ],
            ),
        ),
        scenario(
            "a reset beyond the window",
            within(
                5,
                vec![
                    say(true, 0x04, (600_000, 0), b""),
                    say(false, 0x10, (1009, 5007), b""),
                    say(true, 0x10, (5007, 1009), b"more"),
                ],
            ),
        ),
        scenario(
            "a refusal",
            vec![say(false, 0x02, (1000, 0), b""), say(true, 0x14, (0, 1001), b""), say(false, 0x02, (1000, 0), b"")],
        ),
        scenario(
            "both ends begin",
            vec![
                say(false, 0x02, (1000, 0), b""),
                say(true, 0x02, (5000, 0), b""),
                say(false, 0x12, (1000, 5001), b""),
                say(true, 0x12, (5000, 1001), b""),
                say(false, 0x10, (1001, 5001), b"data"),
            ],
        ),
        scenario(
            "keep-alives",
            within(
                5,
                vec![
                    say(false, 0x10, (1008, 5007), b""),
                    say(true, 0x10, (5007, 1009), b""),
                    say(true, 0x10, (5006, 1009), b"x"),
                    say(false, 0x10, (1009, 5007), b""),
                ],
            ),
        ),
        scenario("said again and again", within(4, vec![say(false, 0x18, (1001, 5001), b"question"); 5])),
        scenario(
            "of another host",
            within(
                3,
                vec![(
                    2,
                    ethernet(
                        0x0800,
                        &Ipv4 { source: [10, 0, 0, 3], target: CLIENT, ..Ipv4::default() }
                            .packet(6, &tcp_at(80, 40000, 0x10, (1, 1), b"")),
                    ),
                )],
            ),
        ),
    ]
}
