//! What an audit finds, and mends, when somebody else has changed the device.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;

use serde_json::Value;
use sluice_agent::commands;
use sluice_flow::backend::{Change, InstallQueue, Operation};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Flow, FlowId, Generation, Refusal};
use sluice_tests::documented::compare;
use sluice_tests::fault::{FaultyDevice, Plan};
use sluice_tests::instant::InstantDevice;
use sluice_tests::lasting::LastingDevice;
use sluice_tests::world::{World, eventually, quick_config, soft_nic};
use sluice_unixctl::{Peer, Registry, Request};

/// Runs the command as a client does.
fn audit(world: &World, args: &[&str]) -> Result<String, String> {
    let mut registry = Registry::new("test");
    commands::register(&mut registry, &world.agent);
    let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let mut out = String::new();
    registry.run("sluice/audit", &Request { args: &args, peer: Peer::own() }, &mut out).map(|()| out)
}

/// An agent with three flows, to the UDP ports 1 to 3, on a device that can be changed behind its back.
fn three_flows() -> (Arc<LastingDevice>, World, [Flow; 3]) {
    let clock = Arc::new(MonotonicClock::new());
    let device = LastingDevice::new(clock.clone());
    let world = World::on(device.clone(), quick_config(), clock);
    let flows = [1, 2, 3].map(|port| world.udp_flow(port, "2"));
    flows.iter().for_each(|flow| drop(world.agent.queue.add(flow.clone(), None)));
    world.settle();
    device.done();
    (device, world, flows)
}

/// Changes the device behind the agent's back.
fn behind_its_back(queue: &mut dyn InstallQueue, operation: Operation) {
    let flow = FlowId { slot: u32::MAX, incarnation: 0 };
    let mut done = Vec::new();
    queue.submit(&mut vec![Change { flow, generation: Generation(1), operation }], &mut done);
    done[0].result.as_ref().expect("the device does it");
}

#[test]
fn rules_of_the_software_nic_that_are_missing_stray_and_changed_are_told_apart() {
    let world = World::soft(quick_config());
    let flows = [1, 2, 3].map(|port| world.udp_flow(port, "2"));
    flows.iter().for_each(|flow| drop(world.agent.queue.add(flow.clone(), None)));
    world.settle();
    assert_eq!(audit(&world, &[]), Ok("3 rules, all as wanted (listed by the device)\n".into()));

    let mut queue = world.agent.backend.install_queue().expect("a queue");
    let rule = |index: usize| {
        let rules = world.installed();
        rules.into_iter().find(|rule| rule.flow.ufid == flows[index].ufid).expect("the rule").handle
    };
    behind_its_back(&mut *queue, Operation::Remove(rule(0)));
    behind_its_back(&mut *queue, Operation::Modify(rule(1), world.udp_flow(2, "3")));
    let stranger = world.udp_flow(9, "2");
    behind_its_back(&mut *queue, Operation::Install(stranger.clone()));
    let found = audit(&world, &[]).expect_err("there are differences");
    let lines: Vec<_> = found.lines().collect();
    assert_eq!(lines.len(), 3, "{found}");
    assert!(
        lines[0].starts_with(&format!("missing: ufid:{} is not in the device: recirc_id(0)", flows[0].ufid)),
        "{found}"
    );
    assert_eq!(lines[1], format!("changed: ufid:{} is something else in the device", flows[1].ufid));
    assert_eq!(lines[2], format!("stray: ufid:{} is in the device and not in the table", stranger.ufid));
}

#[test]
fn an_audit_says_whether_the_device_or_the_backend_lists_the_rules() {
    let world = World::on(InstantDevice::new(), quick_config(), Arc::new(MonotonicClock::new()));
    let from_ledger = "0 rules, all as wanted (from the backend's own ledger, for the device lists none)\n";
    assert_eq!(audit(&world, &[]).as_deref(), Ok(from_ledger));
    let object: Value = serde_json::from_str(&audit(&world, &["--json"]).unwrap()).unwrap();
    assert_eq!(object["listing"], "ledger");
}

#[test]
fn whatever_somebody_did_to_the_rules_is_mended_and_rules_of_others_are_left_alone() {
    let (device, world, flows) = three_flows();
    device.with(|memory| {
        let first = memory.handle(flows[0].ufid);
        memory.rules.remove(&first);
        memory.change(flows[1].ufid, world.udp_flow(2, "3").actions.clone());
        memory.put(flows[2].clone());
        memory.put(world.udp_flow(9, "2"));
        memory.foreign.push("p1 pref 7 u32".into());
    });
    let differences = [
        format!("missing: ufid:{} is not in the device: ", flows[0].ufid),
        format!("changed: ufid:{} is something else in the device", flows[1].ufid),
        format!("doubled: ufid:{} is in the device once more", flows[2].ufid),
        format!("stray: ufid:{} is in the device and not in the table", world.udp_flow(9, "2").ufid),
        "foreign: p1 pref 7 u32".to_owned(),
    ];
    let found = audit(&world, &[]).expect_err("there are differences");
    assert_eq!(found.lines().count(), differences.len(), "{found}");
    for (line, expected) in found.lines().zip(&differences) {
        assert!(line.starts_with(expected), "{line}, not {expected}");
    }
    assert!(device.done().is_empty(), "looking changes nothing");

    let mended = audit(&world, &["--fix"]).expect("all is mended");
    let said: Vec<_> = mended.lines().collect();
    assert_eq!(said[0], format!("doubled: ufid:{} taken out", flows[2].ufid));
    assert_eq!(said[1], format!("stray: ufid:{} taken out", world.udp_flow(9, "2").ufid));
    assert!(said[2].starts_with(&format!("missing: ufid:{} put in again: recirc_id(0)", flows[0].ufid)), "{mended}");
    assert_eq!(said[3..5], [&*format!("changed: ufid:{} changed back", flows[1].ufid), "foreign: p1 pref 7 u32"]);
    assert_eq!(said[5..], ["3 rules, all as wanted (listed by the device)"]);
    let mut done = device.done();
    done.sort();
    assert_eq!(done, [format!("install {}", flows[0].ufid), format!("modify {}", flows[1].ufid)], "and nothing else");
    device.with(|memory| {
        assert_eq!(memory.rules.len(), 3);
        assert!(memory.rules.values().all(|rule| rule.flow.actions == flows[0].actions));
        assert_eq!(memory.foreign.len(), 1);
    });
    assert_eq!(
        audit(&world, &[]).as_deref(),
        Ok("foreign: p1 pref 7 u32\n3 rules, all as wanted (listed by the device)\n")
    );
}

#[test]
fn mirrors_that_the_device_has_lost_or_changed_are_differences_and_are_mended() {
    let (device, world, _) = three_flows();
    let lose = |memory: &mut sluice_tests::lasting::Memory| {
        memory.mirror_faults = [("tap".to_owned(), false), ("spy".to_owned(), true)].into();
    };
    device.with(lose);
    let found = audit(&world, &[]).expect_err("there are differences");
    let differences =
        ["changed: mirror spy is something else in the device", "missing: mirror tap is not in the device"];
    assert_eq!(found.lines().collect::<Vec<_>>(), differences);
    let mended = audit(&world, &["--fix"]).expect("all is mended");
    let said = [
        "changed: mirror spy changed back",
        "missing: mirror tap put in again",
        "3 rules, all as wanted (listed by the device)",
    ];
    assert_eq!(mended.lines().collect::<Vec<_>>(), said);
    assert!(device.done().is_empty(), "no flow is touched");
    device.with(lose);
    device.with(|memory| memory.refusal = Some(Refusal::Device { reason: "no more today".into() }));
    let left = audit(&world, &["--fix"]).expect_err("they are still not there");
    assert!(left.starts_with("changed: mirror spy not mended: device: no more today\n"), "{left}");
    assert_eq!(left.lines().count(), 4, "{left}");
}

#[test]
fn as_an_object_an_audit_has_the_documented_keys() {
    let (device, world, flows) = three_flows();
    let object = |args: &[&str]| -> Value {
        serde_json::from_str(&audit(&world, args).expect("an object is an answer, whatever it says")).expect("JSON")
    };
    device.with(|memory| {
        let first = memory.handle(flows[0].ufid);
        memory.rules.remove(&first);
        memory.foreign.push("p1 pref 7 u32".into());
        memory.mirror_faults = [("tap".to_owned(), false)].into();
    });
    let found = object(&["--json"]);
    assert_eq!((&found["clean"], &found["rules"]), (&false.into(), &2.into()), "{found}");
    let kinds: Vec<_> =
        [0, 1].map(|index| [&found["differences"][index]["kind"], &found["differences"][index]["mirror"]]).into();
    assert_eq!(kinds, [[&Value::from("missing"), &Value::Null], [&"missing".into(), &"tap".into()]], "{found}");
    let mended = object(&["--json", "--fix"]);
    assert_eq!(
        (&mended["clean"], &mended["rules"], &mended["mended"][0]["refusal"]),
        (&true.into(), &3.into(), &Value::Null)
    );
    device.with(|memory| {
        let first = memory.handle(flows[0].ufid);
        memory.rules.remove(&first);
        memory.refusal = Some(Refusal::Device { reason: "no more today".into() });
    });
    let refused = object(&["--json", "--fix"]);
    assert_eq!(refused["mended"][0]["refusal"]["label"], "device", "{refused}");
    compare("audit", &[found, mended, refused], &[]);
}

#[test]
fn what_the_device_refuses_to_have_mended_is_said() {
    let (device, world, flows) = three_flows();
    device.with(|memory| {
        let first = memory.handle(flows[0].ufid);
        memory.rules.remove(&first);
        memory.refusal = Some(Refusal::Device { reason: "no more today".into() });
    });
    let said = audit(&world, &["--fix"]).expect_err("not all is as wanted");
    assert_eq!(said, format!("missing: ufid:{} not mended: device: no more today", flows[0].ufid));
}

#[test]
fn flows_that_come_and_go_are_no_differences() {
    let (_device, world, _) = three_flows();
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            for round in 0..400 {
                let flow = world.udp_flow(100 + round % 7, if round % 3 == 0 { "3" } else { "2" });
                match world.agent.queue.add(flow.clone(), None) {
                    Ok(_) => {}
                    Err(_) if round % 2 == 0 => drop(world.agent.queue.modify(flow, false, None)),
                    Err(_) => {
                        let id = world.agent.table.find(flow.ufid);
                        if let Some(id) = id {
                            drop(world.agent.queue.delete(id, sluice_flow::EndReason::Deleted, None));
                        }
                    }
                }
            }
        });
        let mut looks = 0;
        while !storm.is_finished() || looks == 0 {
            let found = audit(&world, &["--fix"]).expect("no difference");
            assert!(
                found.ends_with(" rules, all as wanted (listed by the device)\n") && found.lines().count() == 1,
                "{found}"
            );
            looks += 1;
        }
    });
}

#[test]
fn flows_that_wait_for_the_device_are_not_as_wanted_yet() {
    let clock = Arc::new(MonotonicClock::new());
    let (device, faults) = FaultyDevice::new(soft_nic(clock.clone()));
    let world = World::on(device, quick_config(), clock);
    faults.set(Plan { stalled: true, ..Plan::default() });
    for port in [1, 2] {
        world.agent.queue.add(world.udp_flow(port, "2"), None).expect("accepted");
    }
    assert_eq!(audit(&world, &[]), Err("pending: 2 flows wait for the device".into()));
    faults.set(Plan::default());
    assert_eq!(
        audit(&world, &["--fix"]),
        Ok("2 rules, all as wanted (listed by the device)\n".into()),
        "it waits for them"
    );
}

#[test]
fn a_rule_that_others_have_changed_is_made_anew_though_it_could_not_be_read_at_once() {
    let (device, _world, [flow, ..]) = three_flows();
    device.with(|memory| {
        memory.change(flow.ufid, Arc::from([]));
        memory.touched = vec![memory.handle(flow.ufid)];
        memory.failing_reads = 1;
    });
    eventually("it is made anew", || device.done() == [format!("modify {}", flow.ufid)]);
}
