//! Rules that send packets on to other rules.

use sluice_flow::ChainId;

use super::{Device, Subject, UDP, stories};

stories![
    a_chain_that_is_not_open_is_not_jumped_to,
    a_packet_goes_on_in_the_chain_and_is_counted_in_both,
    a_chain_that_was_closed_is_as_if_it_had_never_been_open,
];

const CHAIN: ChainId = ChainId(7);
const JUMP: &str = "recirc(7)";
const IN_CHAIN: &str = "recirc_id(7),in_port(1),eth_type(0x0800),ipv4(dst=10.0.0.2,proto=17,frag=no)";

/// A packet is never sent where nothing says what becomes of it.
pub fn a_chain_that_is_not_open_is_not_jumped_to(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let refusal = device.install(UDP, JUMP).expect_err("the chain is not open");
    assert!(refusal.to_string().contains("0x7"), "the reason names the chain: {refusal}");
    assert!(device.installed().is_empty());
    device.backend().open_chain(CHAIN).expect("the chain is opened");
    device.install(UDP, JUMP).expect("now it is");
}

/// What the chain does not take ends by the miss policy, and nothing counts it but the jump.
pub fn a_packet_goes_on_in_the_chain_and_is_counted_in_both(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    device.backend().open_chain(CHAIN).expect("the chain is opened");
    let there = device.install(IN_CHAIN, "2").expect("it is taken");
    let jump = device.install(UDP, JUMP).expect("it is taken");
    device.send(4);
    assert_eq!((device.packets(jump), device.packets(there)), (Some(4), Some(4)));
    assert_eq!(device.remove(there).map(|last| last.packets), Some(4));
    device.send(2);
    assert_eq!(device.packets(jump), Some(6));
    assert_eq!(device.installed().len(), 1, "the end of a chain is no flow's rule");
}

/// Over and over.
pub fn a_chain_that_was_closed_is_as_if_it_had_never_been_open(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    for _ in 0..3 {
        device.install(UDP, JUMP).expect_err("the chain is not open");
        device.backend().open_chain(CHAIN).expect("the chain is opened");
        let there = device.install(IN_CHAIN, "2").expect("it is taken");
        let jump = device.install(UDP, JUMP).expect("it is taken");
        device.send(1);
        assert_eq!(device.packets(there), Some(1));
        device.remove(jump);
        device.remove(there);
        device.backend().close_chain(CHAIN);
        assert!(device.installed().is_empty());
    }
}
