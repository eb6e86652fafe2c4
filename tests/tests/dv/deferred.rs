//! Packets that are changed before they are looked up again: later flows see them changed, and a miss shows them as they came in.

use std::cell::Cell;
use std::rc::Rc;

use sluice_flow::action::jumps;
use sluice_flow::port::PortNumber;
use sluice_offload_dv::switch::RuleId;
use sluice_tests::generate::ports;
use sluice_tests::mlx5::{Ports, on_device};
use sluice_tests::scenario::{Scenario, hex};
use sluice_tests::soft::Soft;

use crate::frames::{Packet, TCP, UDP};
use crate::rig::{Rig, flow};

/// The device and the NIC in software with the same flows.
struct Both<'a> {
    rig: Rig<'a>,
    soft: Soft,
    flows: Vec<(RuleId, bool)>,
    /// Packets that each flow had in software.
    hits: Vec<u64>,
}

impl<'a> Both<'a> {
    /// Installs flows in an order.
    fn open(wires: &'a Ports, flows: &[(&str, &str)], order: &[usize]) -> Self {
        let mut rig = Rig::open(wires);
        let flows: Vec<_> = flows.iter().map(|(key, actions)| flow(key, actions)).collect();
        let scenario = flows.iter().fold(Scenario::new("chains"), |scenario, flow| {
            scenario.flow(flow.matching().expand(), flow.actions.clone())
        });
        let soft = Soft::set_up(&ports(), &scenario).unwrap();
        let mut ids = vec![None; flows.len()];
        for number in order {
            ids[*number] = Some(rig.add(&flows[*number]).unwrap());
        }
        let leads_on = flows.iter().map(|flow| !jumps(&flow.actions).is_empty());
        let flows: Vec<_> = ids.into_iter().flatten().zip(leads_on).collect();
        Self { rig, soft, hits: vec![0; flows.len()], flows }
    }

    /// Lets a frame in; both must do the same with it. Returns whether it was sent on.
    fn send(&mut self, port: u32, frame: &[u8]) -> bool {
        let (sent, hits) = self.soft.inject_and_tell(PortNumber(port), frame);
        hits.iter().for_each(|hit| self.hits[*hit as usize - 1] += 1);
        let has_missed = hits.last().is_none_or(|last| self.flows[*last as usize - 1].1);
        let of_port = |(port, frames): (PortNumber, Vec<_>)| frames.into_iter().map(move |frame| (port.0, frame));
        let wanted = if has_missed { vec![(0, frame.to_vec())] } else { sent.into_iter().flat_map(of_port).collect() };
        let found = self.rig.inject(port as usize, frame);
        let told = |frames: &[(u32, Vec<u8>)]| {
            frames.iter().map(|(port, frame)| format!("{port}: {} ", hex(frame))).collect::<String>()
        };
        assert_eq!(told(&found), told(&wanted), "of {}", hex(frame));
        !has_missed
    }

    /// Removes the flows in an order; each has counted what it had in software.
    fn end(mut self, order: &[usize]) {
        for number in order {
            let counted = self.rig.switch.remove(&[self.flows[*number].0]).unwrap();
            assert_eq!(counted[0].packets, self.hits[*number], "packets of flow {number}");
        }
    }
}

/// Each order of two.
const ORDERS: [[usize; 2]; 2] = [[0, 1], [1, 0]];

/// Plays two flows, one of which leads to the other, in each order, with packets that hit and packets that miss in the second.
fn play(wires: &Ports, flows: [(&str, &str); 2], hits: &[Packet], misses: &[Packet]) {
    for order in ORDERS {
        let mut both = Both::open(wires, &flows, &order);
        for packet in hits {
            assert!(both.send(2, &packet.frame()), "{packet:?} is to hit {flows:?}");
        }
        for packet in misses {
            assert!(!both.send(2, &packet.frame()), "{packet:?} is to miss {flows:?}");
        }
        both.end(&order);
    }
}

const V4: &str = "recirc_id(0),in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,proto=17,frag=no),udp()";

fn udp() -> Packet {
    Packet::v4(UDP)
}

#[test]
fn a_flow_matches_what_was_set_before_and_a_miss_shows_what_came_in() {
    for profile in ["bluefield-2", "bluefield-3"] {
        on_device(profile, "deferred::a_flow_matches_what_was_set_before_and_a_miss_shows_what_came_in", |wires| {
            let to = |to| Packet { to, ..udp() };
            // What it looks for is what every packet has by then.
            let set = (V4, "set(ipv4(dst=10.0.0.9)),set(eth(dst=02:00:00:00:00:09)),recirc(7)");
            let found = "recirc_id(0x7),in_port(2),eth(dst=02:00:00:00:00:09),eth_type(0x0800),\
                         ipv4(dst=10.0.0.9,proto=17,frag=no),udp(dst=2222)";
            let other = Packet { ports: [1111, 2223], ..udp() };
            play(wires, [set, (found, "1")], &[to(2), to(3)], std::slice::from_ref(&other));
            // Nobody matches what no packet has by then.
            let found = "recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(dst=10.0.0.2,frag=no)";
            play(wires, [set, (found, "1")], &[], &[to(2), to(9)]);
            // Of bits that were not set, the packet has its own.
            let masked = (V4, "set(ipv4(dst=10.0.0.0/255.255.255.254)),recirc(7)");
            let found = "recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(dst=10.0.0.1,proto=17,frag=no),udp()";
            play(wires, [masked, (found, "set(udp(dst=53)),1")], &[to(1), to(3)], &[to(2), to(4)]);
            // What came later is done later.
            let found = "recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),udp()";
            let again = "set(ipv4(dst=10.0.0.77)),set(ipv4(tos=0x20)),3";
            play(wires, [set, (found, again)], &[to(2), other], &[]);
            play(wires, [set, (found, "drop")], &[to(2)], &[]);
        });
    }
}

#[test]
fn a_time_to_live_is_matched_as_it_is_after_it_was_counted_down() {
    on_device("bluefield-3", "deferred::a_time_to_live_is_matched_as_it_is_after_it_was_counted_down", |wires| {
        let ttl = |ttl| Packet { ttl, ..udp() };
        let first = "recirc_id(0),in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,frag=no)";
        let at = |ttl| format!("recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(ttl={ttl},frag=no)");
        play(wires, [(first, "dec_ttl(le_1()),recirc(7)"), (&at(63), "dec_ttl(le_1()),1")], &[ttl(64)], &[ttl(63)]);
        play(wires, [(first, "dec_ttl(le_1()),recirc(7)"), (&at(64), "1")], &[], &[ttl(64)]);
        play(wires, [(first, "set(ipv4(ttl=9)),dec_ttl(le_1()),recirc(7)"), (&at(8), "1")], &[ttl(64)], &[]);
        play(wires, [(first, "dec_ttl(le_1()),set(ipv4(ttl=9)),recirc(7)"), (&at(9), "1")], &[ttl(64)], &[]);
    });
}

#[test]
fn tags_are_matched_where_they_are_after_others_were_put_on_and_taken_off() {
    for profile in ["bluefield-2", "bluefield-3"] {
        on_device(
            profile,
            "deferred::tags_are_matched_where_they_are_after_others_were_put_on_and_taken_off",
            |wires| {
                let tagged = |tags: &[(u16, u16)]| Packet { tags: tags.to_vec(), ..udp() };
                let push = (V4, "push_vlan(vid=5,pcp=1),recirc(7)");
                let five = "recirc_id(0x7),in_port(2),eth(),eth_type(0x8100),vlan(vid=5,pcp=1),encap(eth_type(0x0800),ipv4(frag=no))";
                play(wires, [push, (five, "1")], &[udp()], &[]);
                play(wires, [push, (five, "pop_vlan,set(ipv4(ttl=9)),1")], &[udp()], &[]);
                let six = "recirc_id(0x7),in_port(2),eth(),eth_type(0x8100),vlan(vid=6),encap(eth_type(0x0800),ipv4(frag=no))";
                play(wires, [push, (six, "1")], &[], &[udp()]);
                let none = "recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(frag=no)";
                play(wires, [push, (none, "1")], &[], &[udp()]);

                let first =
                    "recirc_id(0),in_port(2),eth(),eth_type(0x8100),vlan(vid=5),encap(eth_type(0x0800),ipv4(frag=no))";
                let (one, two) = (tagged(&[(0x8100, 5)]), tagged(&[(0x88a8, 5), (0x8100, 6)]));
                play(wires, [(first, "pop_vlan,recirc(7)"), (none, "1")], std::slice::from_ref(&one), &[udp()]);
                play(
                    wires,
                    [(first, "pop_vlan,push_vlan(vid=6,pcp=0),recirc(7)"), (six, "1")],
                    std::slice::from_ref(&one),
                    &[udp()],
                );
                play(
                    wires,
                    [(first, "set(eth(src=02:00:00:00:00:07)),pop_vlan,recirc(7)"), (none, "push_vlan(vid=9,pcp=0),1")],
                    &[one],
                    &[],
                );
                let outer = "recirc_id(0),in_port(2),eth(),eth_type(0x88a8),vlan(vid=5),\
                         encap(eth_type(0x8100),vlan(vid=6),encap(eth_type(0x0800),ipv4(frag=no)))";
                play(wires, [(outer, "pop_vlan,recirc(7)"), (six, "1")], std::slice::from_ref(&two), &[]);
                let other = "recirc_id(0x7),in_port(2),eth(),eth_type(0x8100),vlan(vid=7),encap(eth_type(0x0800),ipv4(frag=no))";
                play(wires, [(outer, "pop_vlan,recirc(7)"), (other, "1")], &[], &[two]);
            },
        );
    }
}

#[test]
fn a_tag_that_is_the_third_once_others_were_put_on_is_no_ethernet_type_that_flows_match() {
    for profile in ["bluefield-2", "bluefield-3"] {
        let name = "deferred::a_tag_that_is_the_third_once_others_were_put_on_is_no_ethernet_type_that_flows_match";
        on_device(profile, name, |wires| {
            let tagged =
                |vids: &[u16]| Packet { tags: vids.iter().map(|vid| (0x8100, *vid)).collect::<Vec<_>>(), ..udp() };
            let first = "recirc_id(0),in_port(2),eth()";
            let (one, two) = ("push_vlan(vid=5,pcp=0)", "push_vlan(vid=6,pcp=0),push_vlan(vid=5,pcp=0)");
            let [one, two] = [one, two].map(|push| format!("{push},recirc(7)"));
            let both = "recirc_id(0x7),in_port(2),eth(),eth_type(0x8100),vlan(vid=5),\
                        encap(eth_type(0x8100),vlan(vid=6),encap(eth_type(0x0800),ipv4(frag=no)))";
            play(wires, [(first, &one), (both, "1")], &[tagged(&[6])], &[tagged(&[6, 7]), tagged(&[7]), udp()]);
            play(wires, [(first, &two), (both, "1")], &[udp()], &[tagged(&[6]), tagged(&[5, 6])]);
            // It counts the tags that there are by then.
            let single = "recirc_id(0x7),in_port(2),eth(),num_of_vlans(1),eth_type(0x8100),vlan(vid=5),encap()";
            play(wires, [(first, &one), (single, "1")], &[udp()], &[tagged(&[6]), tagged(&[6, 7])]);
            play(wires, [(first, &two), (single, "1")], &[], &[udp(), tagged(&[6])]);
            let none = "recirc_id(0x7),in_port(2),eth(),num_of_vlans(0)";
            play(wires, [(first, &one), (none, "1")], &[], &[udp(), tagged(&[6])]);
            let ip = "encap(eth_type(0x0800),ipv4(frag=no))";
            let [popped, twice] = [ip.to_owned(), format!("encap(eth_type(0x8100),vlan(vid=6),{ip})")]
                .map(|inner| format!("recirc_id(0),in_port(2),eth(),eth_type(0x8100),vlan(vid=5),{inner}"));
            play(wires, [(&popped, "pop_vlan,recirc(7)"), (none, "1")], &[tagged(&[5])], &[]);
            play(wires, [(&twice, "pop_vlan,recirc(7)"), (none, "1")], &[], &[tagged(&[5, 6])]);
        });
    }
}

#[test]
fn changes_of_several_chains_are_all_done_by_the_rule_that_sends_the_packet_on() {
    on_device(
        "bluefield-3",
        "deferred::changes_of_several_chains_are_all_done_by_the_rule_that_sends_the_packet_on",
        |wires| {
            let ip = |chain: u32, to: u8| {
                format!(
                    "recirc_id({chain:#x}),in_port(2),eth(),eth_type(0x0800),ipv4(dst=10.0.0.{to},ttl=64,proto=17,frag=no),udp()"
                )
            };
            let last = "recirc_id(0x9),in_port(2),eth(src=02:00:00:00:00:07),eth_type(0x0800),ipv4(dst=10.0.0.5,proto=17,frag=no),udp(src=5)";
            let flows = [
                (ip(0, 2), "set(ipv4(dst=10.0.0.4)),recirc(3)"),
                (ip(0, 3), "set(eth(src=02:00:00:00:00:07)),recirc(3)"),
                (ip(3, 4), "set(ipv4(dst=10.0.0.5)),set(eth(src=02:00:00:00:00:07)),recirc(9)"),
                (ip(3, 3), "set(ipv4(dst=10.0.0.5)),set(udp(src=5)),recirc(9)"),
                (last.to_owned(), "set(ipv4(ttl=9)),1"),
            ];
            let flows = flows.each_ref().map(|(key, actions)| (key.as_str(), *actions));
            for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [1, 0, 4, 2, 3]] {
                for removed in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [3, 0, 4, 1, 2]] {
                    let mut both = Both::open(wires, &flows, &order);
                    let packet = |to, from| Packet { to, ports: [from, 2222], ..udp() };
                    assert!(both.send(2, &packet(2, 5).frame()));
                    // Changed twice, and matched by none in the last chain.
                    assert!(!both.send(2, &packet(2, 6).frame()));
                    assert!(both.send(2, &packet(3, 6).frame()));
                    assert!(!both.send(2, &packet(4, 6).frame()));
                    assert!(!both.send(2, &Packet { to: 2, ..Packet::v4(TCP) }.frame()));
                    both.end(&removed);
                }
            }
        },
    );
}

#[test]
fn a_flow_that_cannot_be_asked_for_after_changes_is_refused_with_that_reason() {
    on_device(
        "bluefield-3",
        "deferred::a_flow_that_cannot_be_asked_for_after_changes_is_refused_with_that_reason",
        |wires| {
            let mut rig = Rig::open(wires);
            let leading = flow(
                "recirc_id(0),in_port(2),eth(),eth_type(0x0800),ipv4(ttl=64,frag=no)",
                "dec_ttl(le_1()),recirc(7)",
            );
            let later = flow("recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(ttl=32/32,frag=no)", "1");
            let reason = "field ipv4.ttl: one was taken from it before, and not all of its bits are matched";
            let first = rig.add(&leading).unwrap();
            let refusal = rig.add(&later).unwrap_err().to_string();
            assert_eq!(
                refusal,
                format!("combination: packets come to chain 0x7 with changes that are deferred: {reason}")
            );
            // As it came in.
            assert_eq!(rig.inject(2, &udp().frame()), [(0, udp().frame())]);
            rig.switch.remove(&[first]).unwrap();
            let second = rig.add(&later).unwrap();
            let refusal = rig.add(&leading).unwrap_err().to_string();
            assert_eq!(refusal, format!("combination: a flow of chain 0x7 cannot follow these changes: {reason}"));
            rig.switch.remove(&[second]).unwrap();
            rig.add(&leading).unwrap();
        },
    );
}

#[test]
fn a_flow_that_makes_other_changes_from_now_on_leads_to_another_table() {
    on_device("bluefield-3", "deferred::a_flow_that_makes_other_changes_from_now_on_leads_to_another_table", |wires| {
        let mut rig = Rig::open(wires);
        let leading = |to: u8| flow(V4, &format!("set(ipv4(dst=10.0.0.{to})),recirc(7)"));
        let later = |to: u8, out: &str| {
            flow(
                &format!("recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(dst=10.0.0.{to},proto=17,frag=no)"),
                out,
            )
        };
        let first = rig.add(&leading(8)).unwrap();
        let eight = rig.add(&later(8, "1")).unwrap();
        let nine = rig.add(&later(9, "3")).unwrap();
        let sent = |to: u8| Packet { to, ..udp() }.frame();
        assert_eq!(rig.inject(2, &udp().frame()), [(1, sent(8))]);
        rig.replace(first, &leading(9)).unwrap();
        rig.switch.sync().unwrap();
        assert_eq!(rig.inject(2, &udp().frame()), [(3, sent(9))]);
        // A flow of several rules changes, too.
        rig.replace(nine, &later(9, "4")).unwrap();
        rig.switch.sync().unwrap();
        assert_eq!(rig.inject(2, &udp().frame()), [(4, sent(9))]);
        rig.replace(first, &flow(V4, "1")).unwrap();
        let counts = rig.switch.remove(&[first, eight, nine]).unwrap();
        assert_eq!(counts.iter().map(|count| count.packets).collect::<Vec<_>>(), [3, 1, 2]);
    });
}

#[test]
fn each_rule_of_a_table_that_is_made_or_goes_is_progress() {
    const FLOWS: usize = 20;
    on_device("bluefield-3", "deferred::each_rule_of_a_table_that_is_made_or_goes_is_progress", |wires| {
        let mut rig = Rig::open(wires);
        let told = Rc::new(Cell::new(0));
        let counted = told.clone();
        rig.switch.tell_progress(move || counted.set(counted.get() + 1));
        let later = |port: usize| {
            let key = "recirc_id(0x7),in_port(2),eth(),eth_type(0x0800),ipv4(proto=17,frag=no)";
            flow(&format!("{key},udp(src={port})"), "1")
        };
        for port in 0..FLOWS {
            rig.add(&later(port)).unwrap();
        }
        let leading = rig.add(&flow(V4, "set(ipv4(dst=10.0.0.9)),recirc(7)")).unwrap();
        assert_eq!(told.take(), FLOWS);
        rig.switch.remove(&[leading]).unwrap();
        assert_eq!(told.take(), FLOWS);
    });
}
