//! Flows that decrement a time to live: two rules, of which the one in front takes the packets whose time is up.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socket_with};
use sluice_flow::backend::{Adoption, DeviceEvent, InstalledRule, LostRule, Placement};
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::meter::{Meter, MeterId, MeterUnit};
use sluice_flow::port::PortNumber;
use sluice_netdev::netlink::message::flag;
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::wire::action::{Action, Control, Operation, Police};
use sluice_offload_tc::wire::shared;

use crate::device::{Device, TO_B, flow};
use crate::network::{Capture, FRAME, Network, eventually};
use crate::stories;

stories![
    a_packet_whose_time_is_up_is_dropped_and_every_other_one_goes_on_with_a_hop_less,
    a_flow_of_two_rules_is_explained_as_both_in_the_words_of_tc,
    where_the_kernel_refuses_one_of_two_rules_none_is_left,
    a_guard_comes_and_goes_with_the_actions_of_its_flow,
    no_packet_wraps_and_none_is_lost_or_counted_twice_while_two_rules_are_modified,
    a_modification_that_is_refused_leaves_two_rules_as_they_were,
    many_flows_of_two_rules_go_in_and_out_at_a_time,
    both_rules_go_on_in_the_next_run_and_half_a_pair_does_not,
    what_is_left_of_pairs_is_listed_and_can_be_taken_out,
    a_flow_whose_guard_somebody_deletes_is_told_to_be_lost_and_its_rule_forwards_no_more,
    a_flow_whose_rule_somebody_deletes_is_told_to_be_lost_and_its_guard_goes,
    guards_that_somebody_flushes_are_found_by_comparison,
    two_rules_of_a_port_that_went_keep_their_counters,
];

const ROUTE: &str = "dec_ttl(le_1(drop)),2";
/// The priority of the guard, and that of the rule.
const PREFERENCES: [&str; 2] = ["pref 61000 ", "pref 61004 "];

/// The names of the filters at the first port.
fn filters(network: &Network) -> Vec<String> {
    let shown = network.run("tc filter show dev p1 ingress");
    shown.lines().filter(|line| line.contains(" handle ")).map(ToOwned::to_owned).collect()
}

/// Sends a datagram with each time to live.
fn send(network: &Network, lives: &[u32]) {
    for life in lives {
        network.hosts[0].socket.set_ttl(*life).unwrap();
        network.hosts[0].send(0, Ipv4Addr::new(10, 0, 0, 2));
    }
}

/// The times to live of what arrives.
fn lives(capture: &Capture, count: usize) -> Vec<u8> {
    capture.frames(count).iter().map(|frame| frame[14 + 8]).collect()
}

/// Deletes the filter of a priority at the first port.
fn delete(network: &Network, preference: &str) {
    let filters = filters(network);
    let line = filters.iter().find(|line| line.contains(preference)).expect("the filter");
    let handle = line.split_whitespace().skip_while(|word| *word != "handle").nth(1).unwrap();
    network.run(&format!("tc filter del dev p1 ingress protocol ip {preference} handle {handle} flower"));
}

fn a_packet_whose_time_is_up_is_dropped_and_every_other_one_goes_on_with_a_hop_less(network: &Network) {
    for policy in [OffloadPolicy::SkipHardware, OffloadPolicy::Any] {
        let mut device = Device::with_policy(policy);
        let rule = device.install(TO_B, ROUTE).unwrap();
        assert_eq!((rule.placement, filters(network).len()), (Placement::Software, 2));
        let arriving = network.capture(1);
        send(network, &[1, 64, 2, 1, 255]);
        assert_eq!(lives(&arriving, 4), [63, 1, 254]);
        assert_eq!(device.counted()[&rule.id], (5, 5 * FRAME), "what both rules took is the flow's");
        let apart = device.backend.counted_apart(rule.handle).unwrap().unwrap();
        assert_eq!((apart.software.packets, apart.hardware.packets), (5, 0));
        let listed = device.installed().pop().unwrap();
        assert_eq!((listed.handle, listed.rules), (rule.handle, 2));
        assert!(listed.flow.is_same(&flow(TO_B, ROUTE)) && listed.flow.actions == flow(TO_B, ROUTE).actions);
        assert_eq!(device.foreign(), Vec::<String>::new());
        send(network, &[1, 64]);
        assert_eq!(lives(&arriving, 1), [63]);
        let last = device.remove(rule).unwrap();
        assert_eq!((last.packets, last.bytes), (7, 7 * FRAME), "the last packets of both are in the last counters");
        assert_eq!(filters(network), Vec::<String>::new());
    }
}

fn a_flow_of_two_rules_is_explained_as_both_in_the_words_of_tc(network: &Network) {
    let device = Device::open();
    let words = device.backend.explain(&flow(TO_B, ROUTE)).unwrap();
    let lines: Vec<_> = words.lines().collect();
    assert_eq!(lines.len(), 2, "{words}");
    assert!(lines[0].contains("pref 61000 ") && lines[0].contains("ip_ttl 0/0xfe"), "{words}");
    assert!(device.installed().is_empty(), "a dry run");
    assert!(lines[1].contains("pref 61004 ") && lines[1].contains("add ff000000 mask 00ffffff"), "{words}");
    // The other one rewrites bits, for which tc has words only to show them.
    network.run(&format!("tc {}", lines[0]));
    network.run("tc filter add dev p1 ingress protocol ip pref 61004 flower dst_ip 10.0.0.2 action mirred egress redirect dev p2");
    let arriving = network.capture(1);
    send(network, &[1, 64]);
    assert_eq!(lives(&arriving, 2), [64]);
    network.run("tc filter del dev p1 ingress");
}

/// A meter in the place of whose policer somebody has put one that is not for `skip_hw` alone, so that the kernel refuses the rules of
/// ours that use it. The backend puts back what is gone, but cannot change for whom a policer is.
fn refused_meter(network: &Network, device: &Device) {
    device.meters().set_meter(&Meter::simple(MeterId(3), MeterUnit::Kilobits, 1_000_000, 0)).unwrap();
    let listed = || network.run("tc actions list action police");
    let shown = listed();
    let mut words = shown.split_whitespace().skip_while(|word| !word.contains("police"));
    let index = u32::from_str_radix(words.nth(1).unwrap().trim_start_matches("0x"), 16).unwrap();
    // In one datagram: between two, the backend could hear of the first and put its own back.
    let mut requests = Vec::new();
    shared::emit_name(&mut requests, shared::DELETE_ACTION, "police", index, 0, 1).unwrap();
    let police = Police { conform: Control::Pipe, rate: Some(125_000), burst: 10_000, mtu: 0, packets: None };
    let other = Action { index, ..Action::new(Operation::Police(Box::new(police)), Control::Shot) };
    shared::emit(&mut requests, &other, 0, flag::CREATE | flag::EXCLUSIVE, 2).unwrap();
    eventually("the other policer is there", || {
        let kernel = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::send(&kernel, &requests, SendFlags::empty()).unwrap();
        let shown = listed();
        shown.contains("police") && !shown.contains("skip_hw")
    });
}

fn where_the_kernel_refuses_one_of_two_rules_none_is_left(network: &Network) {
    let mut device = Device::open();
    refused_meter(network, &device);
    for actions in ["meter(3),dec_ttl(le_1(drop)),2", "dec_ttl(le_1(drop)),meter(3),2"] {
        let refusal = device.install(TO_B, actions).unwrap_err();
        assert_eq!(refusal.label(), "kernel", "{actions}: {refusal}");
        assert_eq!(filters(network), Vec::<String>::new(), "{actions}");
        assert!(device.installed().is_empty() && device.counted().is_empty());
    }
    device.install(TO_B, ROUTE).unwrap();
    let refusal = device.install(TO_B, ROUTE).unwrap_err();
    assert!(matches!(&refusal, sluice_flow::refusal::Refusal::Kernel { errno: 17, .. }), "{refusal}");
    assert_eq!(filters(network).len(), 2, "those of the first flow");
}

fn a_guard_comes_and_goes_with_the_actions_of_its_flow(network: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, "2").unwrap();
    let arriving = network.capture(1);
    let marked = "set(eth(src=02:00:00:00:00:77)),dec_ttl(le_1(drop)),2";
    let mut sent = 0;
    for (actions, arrived, rules) in [
        ("2", vec![1, 64], 1),
        (ROUTE, vec![63], 2),
        (marked, vec![63], 2),
        ("2", vec![1, 64], 1),
        (ROUTE, vec![63], 2),
    ] {
        let modified = device.modify(rule, TO_B, actions).unwrap();
        assert_eq!((modified.handle, modified.placement), (rule.handle, Placement::Software));
        assert_eq!((filters(network).len(), device.installed()[0].rules), (rules, rules), "{actions}");
        send(network, &[1, 64]);
        sent += 2;
        assert_eq!(lives(&arriving, arrived.len()), arrived, "{actions}");
        assert_eq!(device.counted()[&rule.id], (sent, sent * FRAME), "{actions}");
    }
    assert_eq!(device.installed()[0].flow.actions, flow(TO_B, ROUTE).actions);
    assert_eq!(device.backend.resync(), Ok(vec![]));
    assert_eq!(device.remove(rule).unwrap().packets, sent);
    assert_eq!(filters(network), Vec::<String>::new());
}

fn no_packet_wraps_and_none_is_lost_or_counted_twice_while_two_rules_are_modified(network: &Network) {
    const PACKETS: u32 = 4000;
    let mut device = Device::open();
    // A rule of one action counts on when it is replaced.
    let mut rule = device.install(TO_B, "2").unwrap();
    rule = device.modify(rule, TO_B, ROUTE).unwrap();
    let arriving = network.capture(1);
    let is_over = AtomicBool::new(false);
    let (arrived, changes, back) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| lives(&arriving, PACKETS as usize));
        let sender = scope.spawn(|| {
            for number in 0..PACKETS {
                network.hosts[0].socket.set_ttl([1, 64][number as usize % 2]).unwrap();
                network.hosts[0].send(number, Ipv4Addr::new(10, 0, 0, 2));
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut changes, mut back, mut before) = (0, 0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let actions = ["set(eth(src=02:00:00:00:00:77)),dec_ttl(le_1(drop)),2", ROUTE][changes % 2];
            rule = device.modify(rule, TO_B, actions).unwrap();
            changes += 1;
            let counted = device.counted().get(&rule.id).map_or(before, |(packets, _)| *packets);
            back += u32::from(counted < before);
            before = counted;
        }
        sender.join().unwrap();
        (receiver.join().unwrap(), changes, back)
    });
    assert!(arrived.iter().all(|life| *life == 63), "after {changes} changes");
    assert_eq!(arrived.len(), PACKETS as usize / 2, "after {changes} changes");
    assert!(changes > 3, "{changes}");
    assert_eq!(back, 0, "counters never run backwards");
    let counted = device.remove(rule).unwrap().packets;
    assert_eq!(counted, u64::from(PACKETS), "every packet is counted once over {changes} changes");
}

fn a_modification_that_is_refused_leaves_two_rules_as_they_were(network: &Network) {
    let mut device = Device::open();
    refused_meter(network, &device);
    let arriving = network.capture(1);
    let mut sent = 0;
    for before in [ROUTE, "2"] {
        let rule = device.install(TO_B, before).unwrap();
        let marked = "set(eth(src=02:00:00:00:00:77)),dec_ttl(le_1(drop)),meter(3),2";
        for refused in [marked, "meter(3),dec_ttl(le_1(drop)),2", "set(ipv4(ttl=5)),meter(3),2"] {
            let refusal = device.modify(rule, TO_B, refused).unwrap_err();
            assert_eq!(refusal.label(), "kernel", "{refused}: {refusal}");
            let listed = device.installed().pop().expect(refused);
            assert_eq!(listed.flow.actions, flow(TO_B, before).actions, "{refused}");
            assert_eq!(listed.rules, if before == ROUTE { 2 } else { 1 }, "{refused}");
            send(network, &[1, 64]);
            sent += 2;
            assert_eq!(lives(&arriving, 2), if before == ROUTE { vec![63] } else { vec![1, 64] }, "{refused}");
            assert_eq!(device.counted()[&rule.id].0, sent, "{refused}");
        }
        assert_eq!(device.remove(rule).unwrap().packets, sent);
        sent = 0;
        assert_eq!(filters(network), Vec::<String>::new());
    }
}

fn many_flows_of_two_rules_go_in_and_out_at_a_time(network: &Network) {
    const MANY: usize = 300;
    let mut device = Device::open();
    let keys: Vec<_> = (0..MANY)
        .map(|number| {
            let key = format!("in_port(1),eth_type(0x0800),ipv4(dst=10.1.{}.{})", number / 256, number % 256);
            // Each third one needs no second rule.
            (key, if number % 3 == 0 { "2" } else { ROUTE })
        })
        .collect();
    let rules: Vec<_> = device.install_all(&keys).into_iter().map(Result::unwrap).collect();
    let in_kernel = MANY / 3 + MANY / 3 * 2 * 2;
    assert_eq!(filters(network).len(), in_kernel);
    let listed = device.installed();
    assert_eq!((listed.len(), listed.iter().map(|rule| rule.rules).sum::<usize>()), (MANY, in_kernel));
    assert_eq!(device.counted().len(), MANY, "one reading for each flow");
    let (gone, left) = rules.split_at(MANY / 2);
    assert!(device.remove_all(gone).iter().all(|last| last.unwrap().packets == 0));
    assert_eq!(device.counted().len(), left.len());
    assert_eq!(device.backend.flush(), Ok(filters_of(left.len())));
    assert_eq!((device.installed().len(), filters(network).len()), (0, 0));
    assert!(device.install_all(&keys).iter().all(Result::is_ok), "the ledger is empty, too");
}

/// The number of rules of the last flows of which each third one has one and the others two.
const fn filters_of(flows: usize) -> usize {
    flows / 3 + flows / 3 * 2 * 2
}

const NEW: FlowId = FlowId { slot: 77, incarnation: 3 };

fn both_rules_go_on_in_the_next_run_and_half_a_pair_does_not(network: &Network) {
    let mut first = Device::open();
    first.install(TO_B, ROUTE).unwrap();
    let arriving = network.capture(1);
    send(network, &[1, 64]);
    drop(first);
    let mut second = Device::open();
    let adoption = second.adoption().adopt(&mut |rule: &InstalledRule| {
        assert_eq!(rule.rules, 2);
        assert!(rule.flow.is_same(&flow(TO_B, ROUTE)) && rule.flow.actions == flow(TO_B, ROUTE).actions);
        Some((NEW, Generation(5)))
    });
    assert_eq!(adoption, Ok(Adoption { adopted: 1, orphans: 0 }));
    send(network, &[1, 64]);
    assert_eq!(lives(&arriving, 3), [63, 63]);
    assert_eq!(second.counted()[&NEW], (4, 4 * FRAME), "both rules go on counting");
    drop(second);

    // The last run was killed between one rule and the other.
    for preference in PREFERENCES {
        delete(network, preference);
        let mut third = Device::open();
        let adoption =
            third.backend.adoption().unwrap().adopt(&mut |_: &InstalledRule| panic!("half a pair is no flow's"));
        assert_eq!(adoption, Ok(Adoption { adopted: 0, orphans: 1 }), "without {preference}");
        assert_eq!(filters(network), Vec::<String>::new());
        third.install(TO_B, ROUTE).unwrap();
    }
}

fn what_is_left_of_pairs_is_listed_and_can_be_taken_out(network: &Network) {
    for (deleted, rules) in [(None, 2), (Some(PREFERENCES[0]), 1), (Some(PREFERENCES[1]), 1)] {
        let mut first = Device::open();
        first.install(TO_B, ROUTE).unwrap();
        drop(first);
        deleted.inspect(|preference| delete(network, preference));
        let second = Device::open();
        let strays = second.installed();
        assert_eq!((strays.len(), strays[0].rules), (1, rules), "{deleted:?}");
        assert_eq!({ strays[0].flow.ufid }, { flow(TO_B, ROUTE).ufid }, "{deleted:?}");
        second.audit().remove_stray(strays[0].handle).unwrap();
        assert_eq!((second.installed().len(), filters(network).len()), (0, 0), "{deleted:?}");
    }
}

/// Has somebody delete one of two rules; the flow is put in again then.
fn loses(network: &Network, preference: &str) {
    let mut device = Device::open();
    let rule = device.install(TO_B, ROUTE).unwrap();
    let other = device.install("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.9)", "2").unwrap();
    device.events();
    // Of the other flow's the name is another one, since each has a number of its own.
    let number = |line: &str| line.split_whitespace().skip_while(|word| *word != "handle").nth(1).unwrap().to_owned();
    let names = filters(network);
    let guard = names.iter().find(|line| line.contains(PREFERENCES[0])).map(|line| number(line)).unwrap();
    network.run(&format!("tc filter del dev p1 ingress protocol ip {preference} handle {guard} flower"));
    let lost = DeviceEvent::RuleLost(LostRule { flow: rule.id, handle: rule.handle });
    eventually("the loss is told", || device.events().contains(&lost));
    assert_eq!(filters(network).len(), 1, "what is left of the pair is gone");
    let arriving = network.capture(1);
    send(network, &[1, 64]);
    assert_eq!(lives(&arriving, 1), [] as [u8; 0]);
    assert_eq!(device.remove(rule), None);
    let again = device.install(TO_B, ROUTE).unwrap();
    send(network, &[1, 64]);
    assert_eq!(lives(&arriving, 2), [63]);
    assert_eq!(device.counted().keys().collect::<Vec<_>>(), [&other.id, &again.id]);
}

fn a_flow_whose_guard_somebody_deletes_is_told_to_be_lost_and_its_rule_forwards_no_more(network: &Network) {
    loses(network, PREFERENCES[0]);
}

fn a_flow_whose_rule_somebody_deletes_is_told_to_be_lost_and_its_guard_goes(network: &Network) {
    loses(network, PREFERENCES[1]);
}

fn guards_that_somebody_flushes_are_found_by_comparison(network: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, ROUTE).unwrap();
    let kept = device.install("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.9)", "2").unwrap();
    network.run("tc filter del dev p1 ingress protocol ip pref 61000");
    eventually("a reset is told", || device.events().iter().any(|event| matches!(event, DeviceEvent::Reset { .. })));
    assert_eq!(device.installed().len(), 1, "a rule without its guard is none");
    assert_eq!(device.backend.resync(), Ok(vec![LostRule { flow: rule.id, handle: rule.handle }]));
    assert_eq!(filters(network).len(), 1);
    device.install(TO_B, ROUTE).unwrap();
    assert_eq!(filters(network).len(), 3);
    assert!(device.counted().contains_key(&kept.id));
}

fn two_rules_of_a_port_that_went_keep_their_counters(network: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, ROUTE).unwrap();
    send(network, &[1, 64, 64]);
    device.backend.detach_port(PortNumber(1)).unwrap();
    assert_eq!(device.remove(rule).unwrap().packets, 3);
    device.attach(1);
    assert_eq!(filters(network), Vec::<String>::new());
    device.install(TO_B, ROUTE).unwrap();
    assert_eq!(filters(network).len(), 2);
}
