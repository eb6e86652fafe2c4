//! Every change is completed once, as what was asked for, and changes to a flow follow each other.

use std::collections::{BTreeMap, BTreeSet};

use sluice_flow::backend::{Change, Completion, Handle, Operation, Outcome};
use sluice_flow::{FlowId, Generation};

use super::device::{flow, other};
use super::{Device, Subject, UDP, Worker, stories};

stories![
    every_change_of_a_batch_is_completed_once_with_its_flow_and_generation,
    a_batch_that_installs_modifies_and_removes_leaves_what_it_says,
    changes_to_a_flow_follow_each_other,
    two_workers_at_a_time_get_their_own_completions,
];

const MANY: usize = 200;

/// The names of changes, to be compared with those of completions.
fn names(changes: &[Change]) -> BTreeSet<(FlowId, Generation)> {
    changes.iter().map(|change| (change.flow, change.generation)).collect()
}

/// The names of completions, of which none is there twice and all went well.
fn done(completions: &[Completion]) -> BTreeSet<(FlowId, Generation)> {
    let names: BTreeSet<_> = completions.iter().map(|done| (done.flow, done.generation)).collect();
    assert_eq!(names.len(), completions.len(), "no change is completed twice");
    for completion in completions {
        assert!(completion.result.is_ok(), "{completion:?}");
    }
    names
}

fn handles(completions: &[Completion]) -> BTreeMap<FlowId, Handle> {
    let handle = |done: &Completion| match done.result {
        Ok(Outcome::InPlace { handle, .. }) => Some((done.flow, handle)),
        _ => None,
    };
    completions.iter().filter_map(handle).collect()
}

fn installs(device: &mut Device<'_>, numbers: std::ops::Range<usize>) -> Vec<Change> {
    let change = |number| {
        let (id, generation) = device.new_flow();
        Change { flow: id, generation, operation: Operation::Install(flow(&other(number), "2")) }
    };
    numbers.map(change).collect()
}

/// A flow and its generation come back with each completion, and no two rules have one handle.
pub fn every_change_of_a_batch_is_completed_once_with_its_flow_and_generation(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let changes = installs(&mut device, 0..MANY);
    let asked = names(&changes);
    let completions = device.worker().make(changes);
    assert_eq!(done(&completions), asked);
    let distinct: BTreeSet<_> = handles(&completions).into_values().collect();
    assert_eq!(distinct, device.installed().into_keys().collect(), "the handles are those of the listing");
    assert_eq!(distinct.len(), MANY);
}

/// One batch with every kind of change.
pub fn a_batch_that_installs_modifies_and_removes_leaves_what_it_says(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let changes = installs(&mut device, 0..MANY);
    let ids: Vec<_> = changes.iter().map(|change| change.flow).collect();
    let handles = handles(&device.worker().make(changes));
    let mut batch = installs(&mut device, MANY..MANY + 50);
    for (number, id) in ids.iter().enumerate() {
        let operation = match number % 3 {
            0 => Operation::Modify(handles[id], flow(&other(number), "drop")),
            1 => Operation::Remove(handles[id]),
            _ => continue,
        };
        batch.insert(number / 2, Change { flow: *id, generation: device.next_generation(), operation });
    }
    let asked = names(&batch);
    assert_eq!(done(&device.worker().make(batch)), asked);
    let mut wanted: BTreeMap<_, _> = (0..MANY + 50)
        .filter(|number| *number >= MANY || number % 3 != 1)
        .map(|number| {
            let flow = flow(&other(number), if number < MANY && number % 3 == 0 { "drop" } else { "2" });
            (flow.ufid, flow)
        })
        .collect();
    for rule in device.installed().into_values() {
        let flow = wanted.remove(&{ rule.flow.ufid }).expect("a rule of a flow");
        assert!(rule.flow.is_same(&flow) && rule.flow.actions == flow.actions, "{:?}", rule.flow);
    }
    assert!(wanted.is_empty(), "{} rules are missing", wanted.len());
}

/// Whatever a flow went through, the device has the last of it.
pub fn changes_to_a_flow_follow_each_other(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let is_there = |device: &Device<'_>, actions: &str| {
        let rules = device.installed();
        assert_eq!(rules.len(), 1);
        rules.into_values().all(|rule| rule.flow.actions == flow(UDP, actions).actions)
    };
    for round in 0..10 {
        let mut rule = device.install(UDP, "2").expect("it is taken");
        for actions in ["drop", "2", "drop"] {
            rule = device.modify(rule, UDP, actions).expect("it is taken");
            assert!(is_there(&device, actions), "round {round}: {actions}");
        }
        device.remove(rule);
        assert!(device.installed().is_empty(), "round {round}");
    }
}

/// Each worker has a queue of its own.
pub fn two_workers_at_a_time_get_their_own_completions(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let changes = installs(&mut device, 0..MANY);
    let (left, right) = changes.split_at(MANY / 2);
    let work = |mut worker: Worker, changes: Vec<Change>| {
        move || {
            for changes in changes.chunks(7) {
                assert_eq!(done(&worker.make(changes.to_vec())), names(changes));
            }
        }
    };
    let workers = [left, right].map(|changes| work(Worker::new(&**device.backend()), changes.to_vec()));
    std::thread::scope(|scope| {
        let threads = workers.map(|worker| scope.spawn(worker));
        threads.into_iter().for_each(|thread| thread.join().expect("the worker gets through"));
    });
    assert_eq!(device.installed().len(), MANY);
}
