//! Every field and every action that OVS's userspace datapath executes, one at a time.

use sluice_flow::Match;
use sluice_flow::action::{Action, ActionList};
use sluice_flow::field::{Attribute, Field, Form};
use sluice_flow::text::{parse_actions, parse_key};
use sluice_tests::scenario::Scenario;

use crate::flows::{Matching, at, output, set};
use crate::judge::{Judge, Outcome};
use crate::packets::{Ipv4, Ipv6, TARGET_V6, arp, ethernet, icmp, labelled, neighbour, sctp, tagged, tcp, udp};
use crate::text::as_ovs_wants;

pub(crate) fn key(text: &str) -> Match {
    let read = parse_key(text, &()).unwrap_or_else(|error| panic!("{}", error.caret(text)));
    as_ovs_wants(&read.matching)
}

pub(crate) fn actions(text: &str) -> ActionList {
    parse_actions(text, &()).unwrap_or_else(|error| panic!("{}", error.caret(text)))
}

/// Plays scenarios of which both sides must do the same, with some frames of each.
pub(crate) fn play_all(judge: &mut Judge, scenarios: &[Scenario]) {
    let (mut packets, mut frames) = (0, 0);
    let mut wrong = Vec::new();
    for scenario in scenarios {
        match judge.play(scenario) {
            Outcome::Equal { frames: 0, .. } => wrong.push(format!("nothing came out: {scenario}")),
            Outcome::Equal { packets: went_in, frames: came_out } => {
                packets += went_in;
                frames += came_out;
            }
            Outcome::Differs(difference) => wrong.push(format!("{scenario}{difference}")),
            Outcome::RefusedByOvs(reason, ours) => wrong.push(format!("{scenario}OVS: {reason}, ours: {ours:?}")),
            Outcome::RefusedByOurs(refusal) => wrong.push(format!("{scenario}ours: {refusal}")),
            Outcome::EndOfOvs { packet } => wrong.push(format!("{scenario}packet {packet} ends OVS")),
        }
    }
    println!("{} scenarios, {packets} packets in, {frames} frames out", scenarios.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), scenarios.len(), wrong.join("\n"));
}

/// Frames of one kind and what matches them.
struct Kind {
    name: &'static str,
    matching: Matching,
    attributes: &'static [Attribute],
    frames: Vec<Vec<u8>>,
}

fn kinds() -> Vec<Kind> {
    use Attribute as Has;
    let kind = |name, matching, attributes, frames| Kind { name, matching, attributes, frames };
    let reverse: &[u8] = &[0, 1, 8, 0, 6, 4, 0, 3];
    let icmp_kind = |kind: u8| at(1).ipv6(58).is(Field::Icmpv6Type, kind).is(Field::Icmpv6Code, 0u8);
    let nd = |kind| icmp_kind(kind).is(Field::NdTarget, TARGET_V6);
    vec![
        kind("arp", at(1).eth_type(0x0806), &[Has::Ethernet, Has::Arp], vec![arp(0x0806, 1), arp(0x0806, 2)]),
        kind("rarp", at(1).eth_type(0x8035), &[Has::Arp], vec![ethernet(0x8035, &[reverse, &[7; 20]].concat())]),
        kind("icmp", at(1).ipv4(1), &[Has::Ethernet, Has::Ipv4, Has::Icmp], ipv4(1, &icmp(8, 0, b"odd data!"), 36)),
        kind("tcp", at(1).ipv4(6), &[Has::Ipv4, Has::Tcp], ipv4(6, &tcp(1000, 2000, 2, b"odd data!"), 50)),
        kind("udp", at(1).ipv4(17), &[Has::Ipv4, Has::Udp], ipv4(17, &udp(1000, 2000, b"odd data!"), 40)),
        kind("sctp", at(1).ipv4(132), &[Has::Ipv4, Has::Sctp], ipv4(132, &sctp(1000, 2000, b"odd data!"), 42)),
        kind("tcp over ipv6", at(1).ipv6(6), &[Has::Ipv6, Has::Tcp], ipv6(6, &tcp(1, 2, 2, b"odd data!"), 70)),
        kind("udp over ipv6", at(1).ipv6(17), &[Has::Ipv6, Has::Udp], ipv6(17, &udp(1, 2, b"odd data!"), 60)),
        kind("sctp over ipv6", at(1).ipv6(132), &[Has::Ipv6, Has::Sctp], ipv6(132, &sctp(1, 2, b"odd data!"), 62)),
        kind("icmpv6", at(1).ipv6(58), &[Has::Ipv6, Has::Icmpv6], ipv6(58, &icmp(128, 0, b"odd data!"), 56)),
        kind("solicitation", nd(135), &[Has::Ipv6, Has::Nd, Has::NdExt, Has::Icmpv6], neighbours(135)),
        kind("advertisement", nd(136), &[Has::Nd, Has::NdExt, Has::Icmpv6], neighbours(136)),
        kind(
            "mpls",
            at(1).eth_type(0x8847).is(Field::MplsBos, 1u8),
            &[Has::Ethernet, Has::Mpls],
            vec![labelled(&[(7, 1, 9)])],
        ),
    ]
}

/// Whole, padded, with options, with a wrong checksum and with none.
fn ipv4(protocol: u8, payload: &[u8], checksum: usize) -> Vec<Vec<u8>> {
    let plain = Ipv4::default().frame(protocol, payload);
    let padded = [&plain[..], &[0; 9]].concat();
    let with_options = Ipv4 { options: vec![1; 12], ..Ipv4::default() }.frame(protocol, payload);
    let mut wrong_header = plain.clone();
    wrong_header[24] ^= 0x55;
    let [wrong, none] = wrong_checksums(&plain, checksum);
    vec![plain, padded, with_options, wrong_header, wrong, none]
}

fn ipv6(protocol: u8, payload: &[u8], checksum: usize) -> Vec<Vec<u8>> {
    let plain = Ipv6::default().frame(protocol, payload);
    let padded = [&plain[..], &[0; 9]].concat();
    let extensions = Some((0, vec![protocol, 0, 1, 4, 0, 0, 0, 0]));
    let with_extensions = Ipv6 { extensions, ..Ipv6::default() }.frame(protocol, payload);
    let [wrong, none] = wrong_checksums(&plain, checksum);
    vec![plain, padded, with_extensions, wrong, none]
}

fn wrong_checksums(plain: &[u8], at: usize) -> [Vec<u8>; 2] {
    [[0xbe, 0xef], [0, 0]].map(|checksum| {
        let mut frame = plain.to_vec();
        frame[at..at + 2].copy_from_slice(&checksum);
        frame
    })
}

/// With the option that it has as a rule, with the other one, with one in front that has no address, without any.
fn neighbours(kind: u8) -> Vec<Vec<u8>> {
    let message = neighbour(kind);
    let (head, option) = message.split_at(24);
    let mut other = option.to_vec();
    other[0] = 3 - other[0];
    let mtu = [5, 1, 0, 0, 0, 0, 5, 220];
    let options = [option.to_vec(), other, [&mtu[..], option].concat(), vec![]];
    let mut frames = ipv6(58, &message, 56);
    frames.extend(options.map(|option| Ipv6::default().frame(58, &[head, &option].concat())));
    frames
}

/// Fields that are there to be matched only, and bits that a match has no room for.
fn is_settable(field: Field) -> bool {
    let matched_only = ["frag", "proto", "flags"];
    let spec = field.spec();
    let is_first = spec.form != Form::Presence && !spec.name.contains('[');
    is_first && !matched_only.iter().any(|word| spec.name.starts_with(word)) && spec.name != "bos"
}

/// All settable fields of each header: whole, one half of the bits, the other half.
fn sets() -> Vec<Scenario> {
    const PATTERN: u128 = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
    let mut scenarios = Vec::new();
    for Kind { name, matching, attributes, frames } in kinds() {
        for attribute in attributes {
            let fields: Vec<_> = attribute.fields().map(|spec| spec.field).filter(|f| is_settable(*f)).collect();
            // Behind extension headers OVS computes another checksum: see `differences.rs`.
            let is_compared = |frame: &&Vec<u8>| *attribute != Attribute::NdExt || frame[20] == 58;
            let frames: Vec<_> = frames.iter().filter(is_compared).cloned().collect();
            let mut add = |what: String, set: Action| {
                let scenario = Scenario::new(format!("set {name}: {what}"));
                scenarios
                    .push(scenario.flow(as_ovs_wants(&matching.done()), [set, output(2)]).packets(1, frames.clone()));
            };
            let all: Vec<_> = fields.iter().map(|field| (*field, PATTERN, field.full_mask())).collect();
            add(format!("all of {}", attribute.name()), set(&all));
            // OVS 3.1 knows no masks of ICMP, and takes no notice of those of nd_ext(): see `differences.rs`.
            if matches!(attribute, Attribute::Icmp | Attribute::Icmpv6) {
                continue;
            }
            for field in fields {
                let full = field.full_mask();
                add(format!("{field}"), set(&[(field, PATTERN, full)]));
                if *attribute != Attribute::NdExt {
                    let half = 0x5555_5555_5555_5555_5555_5555_5555_5555 & full;
                    add(format!("half of {field}"), set(&[(field, PATTERN, half)]));
                    add(format!("other half of {field}"), set(&[(field, !PATTERN, full & !half)]));
                }
            }
        }
    }
    scenarios
}

#[test]
fn every_field_is_set_as_ovs_sets_it() {
    play_all(&mut Judge::new(), &sets());
}

/// What is done to every IPv4 frame.
fn listed(list: &str) -> Scenario {
    let long = Ipv4::default().frame(17, &udp(1000, 2000, &[7; 200]));
    let short = Ipv4::default().frame(17, &udp(1000, 2000, b"short"));
    Scenario::new(list).flow(key("in_port(1),eth_type(0x0800)"), actions(list)).packets(1, [long, short])
}

#[test]
fn lists_within_lists_do_what_they_do_in_ovs() {
    let change = "set(eth(dst=02:00:00:00:00:99))";
    let lists = [
        "1,2,3,4".into(),
        format!("clone({change},2),3"),
        format!("2,clone({change},clone(set(ipv4(ttl=9)),3),4),1"),
        format!("sample(sample=100.0%,actions({change},2)),3"),
        format!("sample(sample=0.0%,actions({change},2)),3"),
        format!("check_pkt_len(size=100,gt({change},2),le(3)),4"),
        format!("check_pkt_len(size=47,gt({change},2),le(3)),4"),
        "check_pkt_len(size=46,gt(2),le(drop)),4".into(),
        "check_pkt_len(size=242,gt(check_pkt_len(size=300,gt(1),le(2))),le(3)),4".into(),
        "trunc(100),2,3".into(),
        "trunc(60),2,trunc(14),3,4".into(),
        "clone(trunc(50),2),3".into(),
        "push_vlan(vid=7,pcp=3),2,push_vlan(tpid=0x88a8,vid=8,pcp=0),3,pop_vlan,4,pop_vlan,1".into(),
        "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x1234,si=255,c1=0x1,c2=0x2,c3=0x3,c4=0x4),pop_nsh,2".into(),
        "push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x1234,si=255,md2=0x1000000400000001),pop_nsh,2".into(),
    ];
    let mut scenarios: Vec<_> = lists.iter().map(|list: &String| listed(list)).collect();
    let plain = Ipv4::default().frame(17, &udp(1000, 2000, b"tagged"));
    let twice = tagged(0x88a8, 0x1003, &tagged(0x8100, 0x3005, &plain));
    let two_tags =
        "in_port(1),eth_type(0x88a8),vlan(vid=3),encap(eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0800)))";
    scenarios.push(Scenario::new("two tags").flow(key(two_tags), actions("2,pop_vlan,3,pop_vlan,4")).packet(1, twice));
    play_all(&mut Judge::new(), &scenarios);
}

#[test]
fn chains_are_gone_through_as_in_ovs() {
    let first = key("in_port(1),eth_type(0x0800)");
    let next = |more: &str| key(&format!("recirc_id(0x1),in_port(1),{more}eth_type(0x0800),ipv4(ttl=9)"));
    let frames = || vec![Ipv4::default().frame(17, &udp(1000, 2000, b"round and round"))];
    let scenarios = [
        Scenario::new("what is changed is matched")
            .flow(first, actions("set(ipv4(ttl=9)),recirc(1)"))
            .flow(next(""), actions("2"))
            .packets(1, frames()),
        Scenario::new("a mark and a priority are matched")
            .flow(first, actions("set(skb_mark(0x5)),set(skb_priority(0x6)),set(ipv4(ttl=9)),recirc(1)"))
            .flow(next("skb_mark(0x5),skb_priority(0x6),"), actions("2"))
            .packets(1, frames()),
        Scenario::new("the list goes on behind a jump")
            .flow(first, actions("set(ipv4(ttl=9)),recirc(1),set(ipv4(ttl=8)),3"))
            .flow(next(""), actions("set(ipv4(tos=0x4)),2"))
            .packets(1, frames()),
    ];
    play_all(&mut Judge::new(), &scenarios);
}
