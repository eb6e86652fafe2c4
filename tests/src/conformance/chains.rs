//! Rules that send packets on to other rules.

use sluice_flow::ChainId;
use sluice_flow::backend::{ChainChange, ChainCompletion, ChainOperation, Change, Operation};

use super::device::flow;
use super::{Device, Subject, UDP, Worker, stories};

stories![
    a_chain_that_is_not_open_is_not_jumped_to,
    a_packet_goes_on_in_the_chain_and_is_counted_in_both,
    a_chain_that_was_closed_is_as_if_it_had_never_been_open,
    a_change_to_a_chain_is_completed_once_with_what_was_asked,
    a_chain_that_one_worker_has_opened_is_jumped_to_by_rules_of_another,
    a_chain_that_is_opened_again_has_the_rules_that_are_in_it,
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
    device.open_chain(CHAIN).expect("the chain is opened");
    device.install(UDP, JUMP).expect("now it is");
}

/// What the chain does not take ends by the miss policy, and nothing counts it but the jump.
pub fn a_packet_goes_on_in_the_chain_and_is_counted_in_both(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    device.open_chain(CHAIN).expect("the chain is opened");
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
        device.open_chain(CHAIN).expect("the chain is opened");
        let there = device.install(IN_CHAIN, "2").expect("it is taken");
        let jump = device.install(UDP, JUMP).expect("it is taken");
        device.send(1);
        assert_eq!(device.packets(there), Some(1));
        device.remove(jump);
        device.remove(there);
        device.close_chain(CHAIN).expect("the chain is closed");
        assert!(device.installed().is_empty());
    }
}

/// By the queue that it was handed to, which wakes its worker then.
pub fn a_change_to_a_chain_is_completed_once_with_what_was_asked(subject: &Subject<'_>) {
    let device = Device::open(subject);
    let mut worker = Worker::new(&**device.backend());
    for operation in [ChainOperation::Open, ChainOperation::Close, ChainOperation::Open] {
        if let Some(stall) = device.stall() {
            stall(true);
        }
        worker.submit_chain(CHAIN, operation);
        if let Some(stall) = device.stall() {
            assert_eq!(worker.poll_chains(), [], "it is stalled");
            stall(false);
        }
        let change = ChainChange { chain: CHAIN, operation };
        assert_eq!(worker.finish_chain(), ChainCompletion { change, result: Ok(()) });
    }
}

/// And closed by a third.
pub fn a_chain_that_one_worker_has_opened_is_jumped_to_by_rules_of_another(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let mut workers = [Worker::new(&**device.backend()), Worker::new(&**device.backend())];
    workers[0].change_chain(CHAIN, ChainOperation::Open).expect("the chain is opened");
    let jump = device.install(UDP, JUMP).expect("it is open to all");
    device.remove(jump);
    workers[1].change_chain(CHAIN, ChainOperation::Close).expect("the chain is closed");
    device.install(UDP, JUMP).expect_err("it is closed to all");
    let (id, generation) = device.new_flow();
    let change = Change { flow: id, generation, operation: Operation::Install(flow(UDP, JUMP)) };
    let refused = workers[0].make(vec![change]).pop().expect("one");
    refused.result.expect_err("to the one that opened it, too");
}

/// To close it takes out what ends it, and nothing else.
pub fn a_chain_that_is_opened_again_has_the_rules_that_are_in_it(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    device.open_chain(CHAIN).expect("the chain is opened");
    let there = device.install(IN_CHAIN, "2").expect("it is taken");
    device.close_chain(CHAIN).expect("the chain is closed");
    assert!(device.installed().contains_key(&there.handle));
    device.open_chain(CHAIN).expect("the chain is opened");
    let jump = device.install(UDP, JUMP).expect("it is taken");
    device.send(3);
    assert_eq!((device.packets(jump), device.packets(there)), (Some(3), Some(3)));
}
