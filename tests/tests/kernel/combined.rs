//! Actions that meet: tracking in several zones, copies, cuts, lengths and headers, in orders that nobody has written a rule for.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use sluice_flow::action::{
    Action, Commit, Conntrack, EthernetAddresses, MplsEntry, Nat, NatSide, NshHeader, NshMetadata, Translation, VlanTag,
};
use sluice_flow::field::Field;
use sluice_tests::scenario::Scenario;

use crate::conntrack::{CLIENT, SERVER, look_up, nat, track, translation};
use crate::flows::{at, behind, output, recirc, set, tells_state};
use crate::packets::{Ipv4, icmp, labelled, service, tagged, tcp_at, udp};

pub(crate) fn scenarios() -> Vec<Scenario> {
    [two_zones(), again(), copies(), lengths(), headers(), marks()].concat()
}

pub(crate) const OUTSIDE: [u8; 4] = [192, 0, 2, 1];
const BEYOND: [u8; 4] = [198, 51, 100, 1];

pub(crate) fn to(side: NatSide, address: [u8; 4], ports: Option<(u16, u16)>) -> Translation {
    let address = IpAddr::V4(Ipv4Addr::from(address));
    Translation { ports, ..translation(side, address, address) }
}

pub(crate) fn begin(zone: u16, translation: Option<Translation>) -> Action {
    track(Conntrack { commit: Commit::Yes, zone, nat: translation.map(Nat::New), ..Conntrack::default() })
}

pub(crate) fn go_on(zone: u16) -> Action {
    track(Conntrack { zone, nat: Some(Nat::Existing), ..Conntrack::default() })
}

fn list(actions: &[Action]) -> Arc<[Action]> {
    actions.into()
}

pub(crate) fn copy(actions: &[Action]) -> Action {
    Action::Clone(list(actions))
}

fn sample(actions: &[Action]) -> Action {
    Action::Sample { probability: u32::MAX, actions: list(actions) }
}

pub(crate) fn datagram(from: ([u8; 4], u16), target: ([u8; 4], u16)) -> Vec<u8> {
    Ipv4 { source: from.0, target: target.0, ..Ipv4::default() }.frame(17, &udp(from.1, target.1, b"some data"))
}

pub(crate) fn question() -> Vec<u8> {
    datagram((CLIENT, 40000), (SERVER, 53))
}

/// A router with a zone on each side, one way and the other, for each pair of translations.
fn two_zones() -> Vec<Scenario> {
    use NatSide::{Destination, Source};
    let inner = [SERVER[0], SERVER[1], 7, 7];
    let outside = || Some(to(Source, OUTSIDE, None));
    let beyond = || Some(to(Source, BEYOND, None));
    let inside = || Some(to(Destination, inner, None));
    let cases = [
        ("neither", None, None, CLIENT, SERVER),
        ("the source in both", outside(), beyond(), BEYOND, SERVER),
        ("destination, then source", inside(), beyond(), BEYOND, inner),
        ("source, then destination", outside(), inside(), OUTSIDE, inner),
        ("there and back", outside(), Some(to(Source, CLIENT, None)), CLIENT, SERVER),
    ];
    let scenario = |(name, first, second, client, server): (&str, _, _, [u8; 4], [u8; 4])| {
        let mut scenario = Scenario::new(format!("combined: two zones, {name}"))
            .flow(at(1).eth_type(0x0800).done(), [begin(1, first), recirc(1)])
            .flow(behind(1).eth_type(0x0800).done(), [begin(2, second), recirc(3)])
            .flow(at(2).eth_type(0x0800).done(), [go_on(2), recirc(2)])
            .flow(behind(2).eth_type(0x0800).done(), [go_on(1), recirc(3)]);
        scenario = tells_state(scenario, 3, 0x0800);
        let asks = |flags, numbers| {
            let ip = Ipv4 { source: CLIENT, target: SERVER, ..Ipv4::default() };
            ip.frame(6, &tcp_at(40000, 80, flags, numbers, b""))
        };
        let answers = |flags, numbers| {
            let ip = Ipv4 { source: server, target: client, ..Ipv4::default() };
            ip.frame(6, &tcp_at(80, 40000, flags, numbers, b""))
        };
        let about = Ipv4 { source: client, target: server, ..Ipv4::default() };
        let about = about.packet(17, &udp(40000, 53, b"some data"));
        let error = Ipv4 { source: [10, 0, 0, 250], target: client, ..Ipv4::default() };
        scenario
            .packet(1, asks(0x02, (1000, 0)))
            .packet(2, answers(0x12, (5000, 1001)))
            .packet(1, asks(0x10, (1001, 5001)))
            .packet(2, answers(0x11, (5001, 1001)))
            .packets(1, [question(), question()])
            .packet(2, datagram((server, 53), (client, 40000)))
            .packet(2, error.frame(1, &icmp(3, 3, &[&[0; 4], &about[..]].concat())))
            .packet(1, question())
    };
    cases.map(scenario).to_vec()
}

/// More than one look at the same packet.
fn again() -> Vec<Scenario> {
    let source = || Some(to(NatSide::Source, OUTSIDE, None));
    let scenario = |name: &str, actions: &[Action]| {
        let scenario = Scenario::new(format!("combined: {name}"))
            .flow(at(1).ipv4(17).done(), [actions, &[recirc(1)]].concat())
            .flow(at(2).ipv4(17).done(), [go_on(1), recirc(1)]);
        tells_state(scenario, 1, 0x0800)
            .packets(1, [question(), question()])
            .packet(2, datagram((SERVER, 53), (OUTSIDE, 40000)))
            .packet(2, datagram((SERVER, 53), (CLIENT, 40000)))
            .packets(1, [question(), datagram(([10, 0, 0, 7], 40001), (SERVER, 53))])
    };
    let address = |field, address: [u8; 4]| set(&[(field, u32::from_be_bytes(address).into(), 0xffff_ffff)]);
    vec![
        scenario("a look and a commit", &[look_up(1), begin(1, None)]),
        scenario("a look and a commit with a translation", &[look_up(1), begin(1, source())]),
        scenario("a commit and a look", &[begin(1, source()), go_on(1)]),
        scenario("two commits", &[begin(1, None), begin(1, source())]),
        scenario("a zone between two looks", &[begin(1, source()), look_up(2), go_on(1)]),
        scenario("a zone between two commits", &[begin(1, source()), begin(2, None), begin(1, None)]),
        scenario("a clear between", &[begin(1, source()), Action::ConntrackClear, look_up(1)]),
        scenario("a clear behind", &[begin(1, source()), Action::ConntrackClear]),
        scenario(
            "an address is set between",
            &[begin(1, None), address(Field::Ipv4Src, [10, 0, 0, 50]), begin(1, None)],
        ),
        scenario(
            "an address is set and set back",
            &[look_up(1), address(Field::Ipv4Src, [10, 0, 0, 50]), address(Field::Ipv4Src, CLIENT), begin(1, None)],
        ),
        scenario(
            "a port is set behind a translation",
            &[begin(1, source()), set(&[(Field::UdpSrc, 50000, 0xffff)]), look_up(1)],
        ),
        scenario(
            "the source and then the destination",
            &[begin(1, source()), begin(2, Some(to(NatSide::Destination, [10, 0, 0, 77], Some((5353, 5353)))))],
        ),
    ]
}

/// What a copy does to connections, and what befalls the packet when it fails in a copy.
fn copies() -> Vec<Scenario> {
    let full = || to(NatSide::Source, OUTSIDE, Some((5000, 5000)));
    let two = || [question(), datagram(([10, 0, 0, 7], 40001), (SERVER, 53))];
    let scenario = |name: &str, actions: &[Action]| {
        let scenario = Scenario::new(format!("combined: {name}")).flow(at(1).ipv4(17).done(), actions);
        tells_state(scenario, 1, 0x0800).packets(1, two()).packets(1, two())
    };
    let full_here = || nat(full());
    let length = |greater: &[Action], less: &[Action]| Action::CheckPacketLength {
        length: 50,
        greater: list(greater),
        less_or_equal: list(less),
    };
    vec![
        scenario("a copy begins the connection", &[copy(&[begin(1, None), output(2)]), look_up(1), recirc(1)]),
        scenario("a copy is translated", &[copy(&[nat(to(NatSide::Source, OUTSIDE, None)), recirc(1)]), output(2)]),
        scenario("a copy clears", &[begin(1, None), copy(&[Action::ConntrackClear, output(3)]), recirc(1)]),
        scenario(
            "a copy clears and looks",
            &[begin(1, None), copy(&[Action::ConntrackClear, look_up(2), recirc(1)]), recirc(1)],
        ),
        scenario("both begin it", &[look_up(1), copy(&[begin(1, None), output(2)]), begin(1, None), recirc(1)]),
        scenario(
            "the answer begins it first",
            &[
                look_up(1),
                copy(&[
                    set(&[(Field::Ipv4Src, 0x0a00_0002, 0xffff_ffff), (Field::Ipv4Dst, 0x0a00_0001, 0xffff_ffff)]),
                    set(&[(Field::UdpSrc, 53, 0xffff), (Field::UdpDst, 40000, 0xffff)]),
                    begin(1, None),
                    output(2),
                ]),
                begin(1, None),
                recirc(1),
            ],
        ),
        scenario("no room in a copy", &[copy(&[full_here(), output(3)]), output(2)]),
        scenario("no room in a copy of a copy", &[copy(&[copy(&[full_here(), output(3)]), output(4)]), output(2)]),
        scenario("no room in a sample", &[sample(&[full_here(), output(3)]), output(2)]),
        scenario("no room in a sample that is last", &[output(2), sample(&[full_here(), output(3)])]),
        scenario("no room by length", &[length(&[full_here(), output(3)], &[]), output(2)]),
        scenario("no room behind", &[output(2), full_here(), output(3)]),
        scenario("no room in the next chain", &[recirc(2), output(2)])
            .flow(behind(2).ipv4(17).done(), [full_here(), output(3)]),
        scenario(
            "a sample in a sample tracks",
            &[sample(&[sample(&[begin(1, None), recirc(1)]), output(3)]), recirc(1)],
        ),
        scenario(
            "by length, and tracked",
            &[length(&[begin(1, None), recirc(1)], &[output(2)]), look_up(1), recirc(1)],
        ),
        scenario(
            "a ttl that is spent on the way",
            &[
                begin(1, None),
                set(&[(Field::Ipv4Ttl, 1, 0xff)]),
                Action::DecTtl(list(&[look_up(1), recirc(1)])),
                output(2),
            ],
        ),
        scenario(
            "a ttl that is spent in a copy",
            &[
                copy(&[set(&[(Field::Ipv4Ttl, 1, 0xff)]), Action::DecTtl(list(&[output(3)])), output(4)]),
                Action::DecTtl(list(&[output(3)])),
                begin(1, None),
                recirc(1),
            ],
        ),
    ]
}

/// Cuts and lengths with what lies between.
fn lengths() -> Vec<Scenario> {
    let frames = || [9, 40, 100].map(|length| Ipv4::default().frame(17, &udp(40000, 53, &vec![7; length])));
    let scenario = |name: &str, actions: &[Action]| {
        let scenario = Scenario::new(format!("combined lengths: {name}"))
            .flow(at(1).ipv4(17).done(), actions)
            .flow(behind(2).eth_type(0x0800).done(), [output(6)]);
        tells_state(scenario, 1, 0x0800).packets(1, frames())
    };
    let check = |length, greater: &[Action], less: &[Action]| Action::CheckPacketLength {
        length,
        greater: list(greater),
        less_or_equal: list(less),
    };
    let tag = Action::PushVlan(VlanTag { tpid: 0x8100, vid: 5, pcp: 0, cfi: true });
    let label = Action::PushMpls(MplsEntry { label: 5, tc: 3, ttl: 99, bos: true, eth_type: 0x8847 });
    vec![
        scenario("a cut, tracked, and out", &[Action::Trunc(60), begin(1, None), output(2), recirc(1)]),
        scenario("a cut and a look at it", &[Action::Trunc(60), begin(1, None), recirc(1)]),
        scenario("a cut in front of a check", &[Action::Trunc(60), check(80, &[output(2)], &[output(3)]), output(4)]),
        scenario("a cut in a check", &[check(80, &[Action::Trunc(60), output(2)], &[output(3)]), output(4)]),
        scenario(
            "a check in a check",
            &[check(60, &[check(100, &[output(2)], &[output(3)])], &[output(4)]), output(5)],
        ),
        scenario(
            "a cut, a copy with a cut, and out",
            &[Action::Trunc(100), copy(&[Action::Trunc(60), output(2), output(3)]), output(4)],
        ),
        scenario("a cut and a sample", &[Action::Trunc(60), sample(&[output(2), output(3)]), output(4)]),
        scenario("a cut, and nothing out in a copy", &[Action::Trunc(60), copy(std::slice::from_ref(&tag)), output(4)]),
        scenario("a cut behind a tag", &[tag.clone(), Action::Trunc(60), output(2)]),
        scenario("a cut between two tags", &[tag.clone(), Action::Trunc(60), tag.clone(), output(2)]),
        scenario("a cut and a label", &[Action::Trunc(60), label.clone(), output(2)]),
        scenario("a label and a cut", &[label.clone(), Action::Trunc(60), output(2)]),
        scenario("a label and a check", &[label.clone(), check(62, &[output(2)], &[output(3)])]),
        scenario("a tag and a check", &[tag.clone(), check(58, &[output(2)], &[output(3)])]),
        scenario("two tags and a check", &[tag.clone(), tag, check(62, &[output(2)], &[output(3)])]),
        scenario("a cut and a chain that sends", &[Action::Trunc(60), recirc(2), output(2)]),
    ]
}

/// Headers that come and go in odd orders.
fn headers() -> Vec<Scenario> {
    let eth = || Action::PushEth(EthernetAddresses { source: 0x0200_0000_0001, destination: 0x0200_0000_0002 });
    let tag = |vid| Action::PushVlan(VlanTag { tpid: 0x8100, vid, pcp: 5, cfi: true });
    let label = |bos| Action::PushMpls(MplsEntry { label: 5, tc: 3, ttl: 99, bos, eth_type: 0x8847 });
    let service_header = || {
        let metadata = NshMetadata::Contexts([1, 2, 3, 4]);
        Action::PushNsh(Box::new(NshHeader {
            flags: 0,
            ttl: 63,
            next_protocol: 3,
            path: 0x0a_0b0c,
            index: 9,
            metadata,
        }))
    };
    let scenario = |name: &str, actions: &[Action]| {
        Scenario::new(format!("combined headers: {name}"))
            .flow(at(1).ipv4(17).done(), actions)
            .flow(behind(1).eth_type(0x0800).done(), [tag(1), output(2)])
            .flow(behind(1).eth_type(0x8847).done(), [tag(2), output(2)])
            .flow(behind(1).eth_type(0x894f).done(), [tag(3), output(2)])
            .packets(1, [question(), tagged(0x8100, 0x6123, &question()), labelled(&[(100, 5, 63)])])
    };
    let popped = |name: &str, actions: &[Action]| {
        Scenario::new(format!("combined headers: {name}"))
            .flow(at(1).eth_type(0x8847).is(Field::MplsBos, 1u8).done(), actions)
            .flow(behind(1).eth_type(0x0800).done(), [tag(1), output(2)])
            .flow(behind(1).eth_type(0x8847).done(), [tag(2), output(2)])
            .packets(1, [labelled(&[(100, 5, 63)]), labelled(&[(100, 5, 63), (7, 1, 2)])])
    };
    vec![
        scenario("a label, a tag", &[label(true), tag(9), output(2)]),
        scenario("a tag, a label", &[tag(9), label(true), output(2)]),
        scenario("a tag, a label, no tag", &[tag(9), label(true), Action::PopVlan, output(2)]),
        scenario("a tag, a label, a chain", &[tag(9), label(true), Action::PopVlan, recirc(1)]),
        scenario("two labels, a chain", &[label(true), label(false), recirc(1)]),
        scenario("a label and none", &[label(true), Action::PopMpls(0x0800), recirc(1)]),
        scenario("a service header, an ethernet header, a tag", &[service_header(), eth(), tag(9), output(2)]),
        scenario("a tag, a service header, an ethernet header", &[tag(9), service_header(), eth(), output(2)]),
        scenario("a service header twice", &[service_header(), eth(), service_header(), eth(), output(2)]),
        scenario("a service header on and off", &[service_header(), Action::PopNsh, output(2)]),
        scenario("a service header, looked up without ethernet", &[service_header(), recirc(1)]),
        scenario("no ethernet header, a label, one again", &[Action::PopEth, label(true), eth(), output(2)]),
        scenario("no ethernet header, a service header", &[Action::PopEth, service_header(), eth(), output(2)]),
        scenario("a copy without an ethernet header", &[copy(&[Action::PopEth, eth(), output(3)]), output(2)]),
        scenario("tracked without an ethernet header", &[Action::PopEth, begin(1, None), eth(), output(2)]),
        scenario("translated under a tag", &[tag(9), nat(to(NatSide::Source, OUTSIDE, None)), output(2)]),
        popped("no label, and a chain", &[Action::PopMpls(0x0800), recirc(1)]),
        popped("no label, a tag, and a chain", &[Action::PopMpls(0x0800), tag(7), Action::PopVlan, recirc(1)]),
        popped("no label, and one again", &[Action::PopMpls(0x0800), output(3), label(true), output(2)]),
        Scenario::new("combined headers: out of a service header into a zone")
            .flow(
                at(1).eth_type(0x894f).is(Field::NshNextProto, 3u8).done(),
                [Action::PopEth, Action::PopNsh, recirc(1)],
            )
            .flow(behind(1).ipv4(17).done(), [nat(to(NatSide::Source, OUTSIDE, None)), output(2)])
            .packet(1, service(0x01_0203, 4, [1, 2, 3, 4])),
    ]
}

/// Marks and labels bit by bit, and who sees them.
fn marks() -> Vec<Scenario> {
    let label = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeffu128;
    let high = label & !0 << 64;
    let marked =
        |zone, mark, label| track(Conntrack { commit: Commit::Yes, zone, mark, label, ..Conntrack::default() });
    let shown = |scenario: Scenario| {
        [(high, !0u128 << 64, 3), (0, !0 << 64, 4)].into_iter().fold(scenario, |scenario, (value, mask, port)| {
            let matching = behind(1).ipv4(17).masked(Field::CtLabel, value, mask);
            [(0x0fu16, 0x0fu16), (0x00, 0x0f)].into_iter().fold(scenario, |scenario, (mark, bits)| {
                let tag = Action::PushVlan(VlanTag { tpid: 0x8100, vid: 1 + mark, pcp: 0, cfi: true });
                scenario.flow(matching.masked(Field::CtMark, mark, bits).done(), [tag, output(port)])
            })
        })
    };
    let scenario = |name: &str, actions: &[Action]| {
        let scenario = Scenario::new(format!("combined marks: {name}"))
            .flow(at(1).ipv4(17).done(), [actions, &[recirc(1)]].concat())
            .flow(at(2).ipv4(17).done(), [look_up(7), recirc(1)]);
        let back = datagram((SERVER, 53), (CLIENT, 40000));
        shown(scenario)
            .packets(1, [question(), question()])
            .packet(2, back.clone())
            .packet(1, question())
            .packet(2, back)
    };
    let bits = |value: u128, mask: u128| Some((value & mask, mask));
    vec![
        scenario(
            "a mark, and another bit of it",
            &[marked(7, Some((0x01, 0x01)), None), marked(7, Some((0x0e, 0x0e)), None)],
        ),
        scenario("a mark that is taken away", &[marked(7, Some((0x0f, 0x0f)), None), marked(7, Some((0, 0x0f)), None)]),
        scenario(
            "a label in halves",
            &[marked(7, None, bits(label, !0 << 96)), marked(7, None, bits(label, !0 << 64))],
        ),
        scenario("a label that is taken away", &[marked(7, None, bits(label, !0)), marked(7, None, bits(0, !0 << 64))]),
        scenario("a mark in another zone", &[marked(7, Some((0x0f, 0x0f)), None), marked(8, Some((0x10, 0xff)), None)]),
        scenario(
            "a mark in another zone and a look back",
            &[marked(7, Some((0x0f, 0x0f)), bits(label, !0)), marked(8, Some((0x10, 0xff)), None), look_up(7)],
        ),
        scenario("a look and then a mark", &[look_up(7), marked(7, Some((0x0f, 0xff)), bits(label, !0))]),
        scenario("a clear behind a mark", &[marked(7, Some((0x0f, 0xff)), bits(label, !0)), Action::ConntrackClear]),
        scenario("a copy marks", &[copy(&[marked(7, Some((0x0f, 0xff)), bits(label, !0)), output(6)]), look_up(7)]),
        scenario(
            "a copy marks what is known",
            &[marked(7, None, None), copy(&[marked(7, Some((0x0f, 0xff)), bits(label, !0)), output(6)])],
        ),
    ]
}
