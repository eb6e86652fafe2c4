//! Rules that send packets to other rules.

use sluice_flow::ChainId;
use sluice_flow::backend::DeviceEvent;

use crate::device::{Device, TO_B};
use crate::network::{Network, eventually};
use crate::stories;

stories![
    a_jump_goes_through_and_what_the_chain_does_not_take_is_counted_at_its_end,
    a_chain_that_is_not_open_is_not_jumped_to,
    a_chain_that_is_closed_leaves_nothing_behind,
    a_filter_that_somebody_deletes_with_its_priority_takes_no_end_of_a_chain_along,
    an_end_that_somebody_deletes_is_put_in_again_without_a_new_flow,
];

const CHAIN: ChainId = ChainId(7);

fn a_jump_goes_through_and_what_the_chain_does_not_take_is_counted_at_its_end(network: &Network) {
    let mut device = Device::open();
    device.open_chain(CHAIN);
    let there = device.install("recirc_id(7),in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.2,ttl=64)", "2").unwrap();
    let jump = device.install(TO_B, "recirc(7)").unwrap();
    assert_eq!(network.send(0, 6), (0..6).collect::<Vec<_>>());
    let counted = device.counted();
    assert_eq!((counted[&jump.id].0, counted[&there.id].0), (6, 6));
    device.remove(there);
    assert_eq!(network.send(0, 4), [0; 0]);
    let shown = network.run("tc -s filter show dev p1 ingress chain 7");
    assert!(shown.contains("Sent 128 bytes 4 pkt"), "the end counts what missed: {shown}");
    assert_eq!(device.installed().len(), 1, "an end is nobody's flow");
    assert_eq!(device.foreign(), Vec::<String>::new(), "and nobody else's");
}

fn a_chain_that_is_not_open_is_not_jumped_to(_: &Network) {
    let mut device = Device::open();
    let refusal = device.install(TO_B, "recirc(7)").unwrap_err();
    assert_eq!(refusal.to_string(), "action recirc: chain 0x7 is not open");
    assert!(device.installed().is_empty());
}

fn a_chain_that_is_closed_leaves_nothing_behind(network: &Network) {
    let mut device = Device::open();
    for _ in 0..2 {
        device.open_chain(CHAIN);
        let jump = device.install(TO_B, "recirc(7)").unwrap();
        assert!(network.run("tc filter show dev p1 ingress chain 7").contains("gact action pass"));
        device.remove(jump);
        device.close_chain(CHAIN);
        assert_eq!(network.run("tc filter show dev p1 ingress").trim(), "");
    }
}

fn a_filter_that_somebody_deletes_with_its_priority_takes_no_end_of_a_chain_along(network: &Network) {
    let mut device = Device::open();
    device.open_chain(CHAIN);
    let first = device.install(TO_B, "recirc(7)").unwrap();
    assert_eq!(network.send(0, 4), [0; 0]);
    let misses = |device: &mut Device| {
        device.counted();
        device.backend.lookup_counters().unwrap().chain_misses
    };
    assert_eq!(misses(&mut device), Some(4));
    network.run("tc filter add dev p1 ingress protocol ip pref 5 flower dst_ip 192.0.2.1 action drop");
    network.run("tc filter del dev p1 ingress pref 5");
    // What comes after it has been heard, so it has been, too.
    network.run("tc qdisc del dev p2 ingress");
    eventually("a reset is told", || device.events().iter().any(|event| matches!(event, DeviceEvent::Reset { .. })));

    let second = device.install("in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.9)", "recirc(7)").unwrap();
    assert_eq!(misses(&mut device), Some(4), "as before");
    assert_eq!(network.send(0, 3), [0; 0]);
    assert_eq!(misses(&mut device), Some(7));
    device.remove_all(&[first, second]);
    device.close_chain(CHAIN);
    assert_eq!(network.run("tc filter show dev p1 ingress").trim(), "");
}

fn an_end_that_somebody_deletes_is_put_in_again_without_a_new_flow(network: &Network) {
    let mut device = Device::open();
    device.open_chain(CHAIN);
    let jump = device.install(TO_B, "recirc(7)").unwrap();
    let has_end = || network.run("tc filter show dev p1 ingress chain 7").contains("gact action pass");
    let misses = |device: &mut Device| {
        device.counted();
        device.backend.lookup_counters().unwrap().chain_misses
    };
    assert_eq!(network.send(0, 4), [0; 0]);
    assert_eq!(misses(&mut device), Some(4));
    for (deletion, sum) in [("pref 65100", 6), ("", 8)] {
        network.run(&format!("tc filter del dev p1 ingress chain 7 {deletion}"));
        eventually("the next listings put it in again", || {
            device.counted();
            has_end()
        });
        assert_eq!(network.send(0, 2), [0; 0]);
        assert_eq!(misses(&mut device), Some(sum));
    }
    device.remove(jump);
    device.close_chain(CHAIN);
    device.counted();
    assert!(!has_end(), "it goes with its chain");
}
