//! The agent on a device that takes its time to open chains and to close them, or does not open them at all.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::action::ActionKind;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Cause, EndReason, FlowId, FlowState, Refusal};
use sluice_tests::fault::{Faults, FaultyDevice, Plan};
use sluice_tests::world::{World, eventually, quick_config, soft_nic};

const FLOWS: u16 = 20;

/// Two workers.
fn faulty() -> (World, Arc<Faults>) {
    let clock = Arc::new(MonotonicClock::new());
    let (device, faults) = FaultyDevice::new(soft_nic(clock.clone()));
    (World::on(device, quick_config(), clock), faults)
}

fn stalled() -> Plan {
    Plan { stalls_chains: true, ..Plan::default() }
}

/// Flows of both workers that jump to one chain.
fn add_jumps(world: &World) -> Vec<FlowId> {
    let add = |port| world.agent.queue.add(world.udp_flow(port, "recirc(7)"), None).expect("accepted");
    (0..FLOWS).map(add).collect()
}

/// Has flows of both workers installed that jump nowhere: by then the workers have looked at all that came before.
fn pass_by(world: &World) {
    let add = |port| world.agent.queue.add(world.udp_flow(1_000 + port, "2"), None).expect("accepted");
    let ids: Vec<_> = (0..FLOWS).map(add).collect();
    let in_place = |id: &FlowId| world.agent.table.view(*id).is_some_and(|view| view.state == FlowState::Offloaded);
    eventually("flows without a chain are installed", || ids.iter().all(in_place));
}

fn all_are(world: &World, ids: &[FlowId], state: FlowState) -> bool {
    ids.iter().all(|id| world.agent.table.view(*id).is_some_and(|view| view.state == state))
}

#[test]
fn flows_that_wait_for_a_chain_hold_no_others_up_and_one_worker_opens_it() {
    let (world, faults) = faulty();
    faults.set(stalled());
    let jumps = add_jumps(&world);
    pass_by(&world);
    assert!(all_are(&world, &jumps, FlowState::Pending));
    assert_eq!(faults.opened(), 1);
    faults.set(Plan::default());
    world.settle();
    assert!(all_are(&world, &jumps, FlowState::Offloaded));
    assert_eq!(faults.opened(), 1);
}

#[test]
fn a_refused_opening_refuses_all_that_wait_for_it_until_its_cause_changes() {
    let (world, faults) = faulty();
    faults.set(stalled());
    let jumps = add_jumps(&world);
    pass_by(&world);
    let reason = "no chain for now";
    let refusal = Refusal::Action { action: ActionKind::Recirc, reason: reason.into() }.until(Cause::Chain);
    faults.set(Plan { refuses_chains: Some(refusal), ..Plan::default() });
    world.settle();
    assert!(all_are(&world, &jumps, FlowState::Refused));
    let refusal = world.agent.table.view(jumps[0]).unwrap().refusal.expect("a reason");
    assert!(refusal.to_string().contains(reason), "{refusal}");
    assert_eq!(faults.opened(), 1, "nobody asks again for what was just refused");

    faults.set(Plan::default());
    world.agent.queue.retry([Cause::Chain]);
    eventually("all are tried again", || all_are(&world, &jumps, FlowState::Offloaded));
}

#[test]
fn a_chain_that_is_needed_again_while_it_is_closed_is_opened_again() {
    let (world, faults) = faulty();
    let jumps = add_jumps(&world);
    world.settle();
    faults.set(stalled());
    for id in jumps {
        world.agent.queue.delete(id, EndReason::Deleted, None).expect("accepted");
    }
    eventually("the flows are gone", || world.agent.table.census().live() == 0);
    let again = add_jumps(&world);
    pass_by(&world);
    assert!(all_are(&world, &again, FlowState::Pending));
    assert_eq!(faults.opened(), 1, "it is not open, and not closed yet");
    faults.set(Plan::default());
    world.settle();
    assert!(all_are(&world, &again, FlowState::Offloaded));
    assert_eq!(faults.opened(), 2);
}

#[test]
fn flows_that_are_deleted_while_they_wait_for_their_chain_go() {
    let (world, faults) = faulty();
    faults.set(stalled());
    let jumps = add_jumps(&world);
    pass_by(&world);
    for id in jumps {
        world.agent.queue.delete(id, EndReason::Deleted, None).expect("accepted");
    }
    faults.set(Plan::default());
    eventually("they are gone", || world.agent.table.census().live() == usize::from(FLOWS));
    assert_eq!(world.installed().len(), usize::from(FLOWS));
}

#[test]
fn an_agent_that_stops_waits_for_a_chain_that_is_being_opened() {
    let (world, faults) = faulty();
    faults.set(stalled());
    add_jumps(&world);
    eventually("the chain is asked for", || faults.opened() == 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            faults.set(Plan::default());
        });
        // It says whether all of its parts stopped.
        drop(world);
    });
}

#[test]
fn chains_that_come_and_go_under_flows_of_two_workers_are_always_open_when_they_are_jumped_to() {
    let (world, faults) = faulty();
    faults.set(Plan { reorders: true, delay: Duration::from_micros(50), ..Plan::default() });
    for round in 0..30_u32 {
        let jump = |port: u16| {
            let actions = format!("recirc({})", 1 + (u32::from(port) + round) % 3);
            world.agent.queue.add(world.udp_flow(port, &actions), None).expect("accepted")
        };
        let ids: Vec<_> = (0..FLOWS).map(jump).collect();
        for id in ids.into_iter().rev() {
            world.agent.queue.delete(id, EndReason::Deleted, None).expect("accepted");
        }
    }
    let last = add_jumps(&world);
    world.settle();
    assert!(all_are(&world, &last, FlowState::Offloaded), "the device refuses a jump to a closed chain");
    assert_eq!(world.agent.table.census().live(), usize::from(FLOWS));
}
