//! Rules go in, count, change and go.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_flow::backend::{CountedApart, Placement};
use sluice_flow::counters::Counters;
use sluice_flow::refusal::Refusal;
use sluice_offload_tc::OffloadPolicy;

use crate::device::{Device, TO_A, TO_B, flow};
use crate::network::{FRAME, Network, missing};
use crate::stories;

stories![
    a_rule_forwards_what_it_matches_counts_it_and_stops_when_it_is_removed,
    a_rule_that_anyone_may_take_is_where_the_kernel_says,
    a_modified_rule_does_the_new_thing_under_the_same_name_and_counts_on,
    a_stream_loses_nothing_while_its_rule_is_modified,
    many_rules_go_in_and_out_at_a_time,
    a_listing_gives_the_flows_back,
    a_rule_is_explained_in_the_words_of_tc,
];

fn a_rule_forwards_what_it_matches_counts_it_and_stops_when_it_is_removed(network: &Network) {
    let mut device = Device::open();
    assert_eq!(network.send(0, 5), [0; 0], "nothing forwards");
    let there = device.install(TO_B, "2").unwrap();
    let back = device.install(TO_A, "1").unwrap();
    assert_eq!(there.placement, Placement::Software);
    assert_eq!(network.send(0, 20), (0..20).collect::<Vec<_>>());
    assert_eq!(network.send(1, 3), [0, 1, 2]);
    let counted = device.counted();
    assert_eq!(counted[&there.id], (20, 20 * FRAME));
    assert_eq!(counted[&back.id], (3, 3 * FRAME));
    let apart = device.backend.counted_apart(there.handle).unwrap().unwrap();
    let software = Counters { packets: 20, bytes: 20 * FRAME, ..Counters::default() };
    assert_eq!(apart, CountedApart { software, hardware: Counters::default() });
    network.send(0, 2);
    let last = device.remove(there).unwrap();
    assert_eq!(
        (last.packets, last.bytes),
        (22, 22 * FRAME),
        "what came after the last reading is in the last counters"
    );
    assert_eq!(network.send(0, 2), [0; 0]);
    assert_eq!(device.counted().keys().collect::<Vec<_>>(), [&back.id]);
    assert_eq!(device.remove(there), None, "it is gone");
}

fn a_rule_that_anyone_may_take_is_where_the_kernel_says(network: &Network) {
    let mut device = Device::with_policy(OffloadPolicy::Any);
    let rule = device.install(TO_B, "2").unwrap();
    assert_eq!(rule.placement, Placement::Software, "a veth has no hardware");
    assert_eq!(network.send(0, 3).len(), 3);
    assert_eq!(device.counted()[&rule.id], (3, 3 * FRAME));
    let modified = device.modify(rule, TO_B, "set(eth(dst=02:00:00:00:00:02)),2").unwrap();
    assert_eq!(modified.placement, Placement::Software);
    assert_eq!(network.send(0, 2).len(), 2);
    assert_eq!(device.remove(rule).unwrap().packets, 5);
}

fn a_modified_rule_does_the_new_thing_under_the_same_name_and_counts_on(network: &Network) {
    let mut device = Device::open();
    let rule = device.install(TO_B, "2").unwrap();
    network.send(0, 10);
    let modified = device.modify(rule, TO_B, "drop").unwrap();
    assert_eq!(modified.handle, rule.handle);
    assert_eq!(network.send(0, 4), [0; 0]);
    assert_eq!(device.counted()[&rule.id], (14, 14 * FRAME));
    device.modify(rule, TO_B, "2").unwrap();
    network.send(0, 1);
    assert_eq!(device.counted()[&rule.id].0, 15);
    assert_eq!(device.remove(rule).unwrap().packets, 15);
    assert_eq!(device.installed().len(), 0);
}

fn a_stream_loses_nothing_while_its_rule_is_modified(network: &Network) {
    const PACKETS: u32 = 4000;
    let mut device = Device::open();
    let mut rule = device.install(TO_B, "2").unwrap();
    let is_over = AtomicBool::new(false);
    let (arrived, changes, back) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| network.hosts[1].receive(PACKETS));
        let sender = scope.spawn(|| {
            for number in 0..PACKETS {
                network.hosts[0].send(number, Ipv4Addr::new(10, 0, 0, 2));
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut changes, mut back, mut before) = (0, 0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let actions = ["set(ipv4(ttl=9)),2", "2", "set(eth(src=02:00:00:00:00:77)),2"][changes % 3];
            rule = device.modify(rule, TO_B, actions).unwrap();
            changes += 1;
            let counted = device.counted().get(&rule.id).map_or(before, |(packets, _)| *packets);
            back += u32::from(counted < before);
            before = counted;
        }
        sender.join().unwrap();
        (receiver.join().unwrap(), changes, back)
    });
    assert_eq!(missing(&arrived, PACKETS), [0; 0], "after {changes} changes");
    assert_eq!(arrived.len(), PACKETS as usize, "none twice");
    assert!(changes > 3, "{changes}");
    assert_eq!(back, 0, "counters never run backwards");
    let counted = device.remove(rule).unwrap().packets;
    assert_eq!(counted, u64::from(PACKETS), "every packet is counted once over {changes} changes");
}

fn many_rules_go_in_and_out_at_a_time(_: &Network) {
    const MANY: usize = 1000;
    let mut device = Device::open();
    let keys: Vec<_> = (0..MANY)
        .map(|number| (format!("in_port(1),eth_type(0x0800),ipv4(dst=10.1.{}.{})", number / 256, number % 256), "2"))
        .collect();
    let rules: Vec<_> = device.install_all(&keys).into_iter().map(Result::unwrap).collect();
    let listed: BTreeMap<_, _> = device.installed().into_iter().map(|rule| (rule.flow.ufid, rule.flow)).collect();
    assert_eq!(listed.len(), MANY);
    for (key, actions) in &keys {
        let wanted = flow(key, actions);
        let found = listed.get(&{ wanted.ufid }).unwrap();
        assert!(found.is_same(&wanted) && found.actions == wanted.actions, "{key}");
    }
    assert_eq!(device.counted().len(), MANY);
    let again = device.install_all(&keys[..MANY / 2]);
    assert!(again.iter().all(|result| matches!(result, Err(Refusal::Kernel { errno: 17, .. }))));
    assert_eq!(device.installed().len(), MANY, "a second one with the same match is refused, and the first one stays");
    let (gone, left) = rules.split_at(MANY / 2);
    assert!(device.remove_all(gone).iter().all(|last| *last == Some(Counters::default())));
    assert_eq!(device.counted().len(), left.len());
    assert_eq!(device.backend.flush(), Ok(left.len()));
    assert_eq!((device.installed().len(), device.counted().len()), (0, 0));
    assert!(device.install_all(&keys).iter().all(Result::is_ok), "the ledger is empty, too");
}

fn a_listing_gives_the_flows_back(_: &Network) {
    let mut device = Device::open();
    let wanted = [(TO_B, "2"), (TO_A, "set(ipv4(ttl=3)),1"), ("in_port(1),eth_type(0x88b5)", "drop")];
    let rules: Vec<_> = device.install_all(&wanted).into_iter().map(Result::unwrap).collect();
    let listed = device.installed();
    assert_eq!(listed.len(), wanted.len());
    for (rule, (key, actions)) in rules.iter().zip(wanted) {
        let listed = listed.iter().find(|listed| listed.handle == rule.handle).unwrap();
        let wanted = flow(key, actions);
        assert_eq!({ listed.flow.ufid }, { wanted.ufid });
        assert_eq!(listed.flow.actions, wanted.actions);
        assert!(listed.flow.is_same(&wanted));
        assert_eq!(listed.placement, Placement::Software);
    }
    assert_eq!(device.foreign(), Vec::<String>::new());
}

fn a_rule_is_explained_in_the_words_of_tc(network: &Network) {
    let mut device = Device::open();
    let flow = flow(TO_B, "2");
    let words = device.backend.explain(&flow).unwrap();
    assert!(device.installed().is_empty(), "a dry run");
    // What is explained is what tc itself would make a rule of.
    network.run(&format!("tc {words}"));
    assert_eq!(network.send(0, 2), [0, 1]);
    network.run("tc filter del dev p1 ingress");
    let of_length = crate::device::flow(TO_B, "check_pkt_len(size=200,gt(drop),le(2))");
    network.run(&format!("tc {}", device.backend.explain(&of_length).unwrap()));
    assert_eq!(network.send(0, 2), [0, 1], "what is not too long goes on");
    network.run("tc filter del dev p1 ingress");
    let refusal = device.backend.explain(&crate::device::flow("in_port(7)", "2")).unwrap_err();
    assert_eq!(refusal.label(), "port");
    device.install(TO_B, "2").unwrap();
}
