//! What an audit finds when somebody else has changed the device.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use sluice_agent::commands;
use sluice_agent::unixctl::{Peer, Registry, Request};
use sluice_flow::backend::{Change, InstallQueue, Operation};
use sluice_flow::{FlowId, Generation};
use sluice_tests::world::{World, quick_config};

/// Changes the device behind the agent's back.
fn behind_its_back(queue: &mut dyn InstallQueue, operation: Operation) {
    let flow = FlowId { slot: u32::MAX, incarnation: 0 };
    let mut done = Vec::new();
    queue.submit(&mut vec![Change { flow, generation: Generation(1), operation }], &mut done);
    done[0].result.as_ref().expect("the device does it");
}

#[test]
fn missing_foreign_and_changed_rules_are_told_apart() {
    let world = World::soft(quick_config());
    let mut registry = Registry::new("test");
    commands::register(&mut registry, &world.agent);
    let audit = || {
        let mut out = String::new();
        let request = Request { args: &[], peer: Peer::own() };
        registry.run("sluice/audit", &request, &mut out).map(|()| out)
    };
    let flows = [1, 2, 3].map(|port| world.udp_flow(port, "2"));
    flows.iter().for_each(|flow| drop(world.agent.queue.add(flow.clone(), None)));
    world.settle();
    assert_eq!(audit(), Ok("3 rules, all as wanted\n".into()));

    let mut queue = world.agent.backend.install_queue().expect("a queue");
    let rule = |index: usize| {
        let rules = world.installed();
        rules.into_iter().find(|rule| rule.flow.ufid == flows[index].ufid).expect("the rule").handle
    };
    behind_its_back(&mut *queue, Operation::Remove(rule(0)));
    behind_its_back(&mut *queue, Operation::Modify(rule(1), world.udp_flow(2, "3")));
    let stranger = world.udp_flow(9, "2");
    behind_its_back(&mut *queue, Operation::Install(stranger.clone()));
    let found = audit().expect_err("there are differences");
    let lines: Vec<_> = found.lines().collect();
    assert_eq!(lines.len(), 3, "{found}");
    assert_eq!(lines[0], format!("changed: ufid:{} does something else in the device", flows[1].ufid));
    assert_eq!(lines[1], format!("foreign: ufid:{} is in the device and not in the table", stranger.ufid));
    assert!(
        lines[2].starts_with(&format!("missing: ufid:{} is not in the device: recirc_id(0)", flows[0].ufid)),
        "{found}"
    );
}
