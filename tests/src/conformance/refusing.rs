//! What a refusal leaves behind: the device as it was.

use sluice_flow::backend::{Change, Operation, Outcome};

use super::device::{flow, other};
use super::{Device, REFUSED, Subject, UDP, stories};

stories![
    a_refused_install_leaves_nothing_and_may_be_tried_again,
    a_refused_modification_leaves_the_old_rule_which_counts_on,
    a_refusal_in_a_batch_is_its_own_flows_alone,
    a_removal_of_a_rule_that_is_gone_is_done,
    what_is_explained_is_not_put_in,
];

/// No rule, no counters, and no place that is taken.
pub fn a_refused_install_leaves_nothing_and_may_be_tried_again(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let refusal = device.install(UDP, REFUSED).expect_err("it is refused");
    assert_ne!(refusal.to_string(), "");
    assert_eq!((device.installed().len(), device.read().len()), (0, 0), "after {refusal}");
    let rule = device.install(UDP, "2").expect("another form of the same flow is taken");
    assert_eq!(device.installed().len(), 1);
    device.send(2);
    assert_eq!(device.packets(rule), Some(2));
}

/// Whether it is to stay is for the agent to say.
pub fn a_refused_modification_leaves_the_old_rule_which_counts_on(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let rule = device.install(UDP, "2").expect("it is taken");
    device.send(2);
    device.modify(rule, UDP, REFUSED).expect_err("it is refused");
    let listed = device.installed();
    assert_eq!(listed.keys().copied().collect::<Vec<_>>(), [rule.handle]);
    assert_eq!(listed[&rule.handle].flow.actions, flow(UDP, "2").actions);
    device.send(3);
    assert_eq!(device.packets(rule), Some(5));
    let rule = device.modify(rule, UDP, "drop").expect("it can be modified still");
    assert_eq!(device.remove(rule).map(|last| last.packets), Some(5));
}

/// The others of the batch go in.
pub fn a_refusal_in_a_batch_is_its_own_flows_alone(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let batch: Vec<_> = (0..20)
        .map(|number| {
            let actions = if number % 4 == 0 { REFUSED } else { "2" };
            let (id, generation) = device.new_flow();
            Change { flow: id, generation, operation: Operation::Install(flow(&other(number), actions)) }
        })
        .collect();
    let wanted: Vec<_> = batch.iter().enumerate().map(|(number, change)| (change.flow, number % 4 != 0)).collect();
    let mut completions = device.worker().make(batch);
    completions.sort_by_key(|done| done.flow);
    let taken: Vec<_> = completions.iter().map(|done| (done.flow, done.result.is_ok())).collect();
    assert_eq!(taken, wanted);
    assert_eq!(device.installed().len(), 15);
}

/// It was flushed, or is removed a second time: nothing is left to be refused.
pub fn a_removal_of_a_rule_that_is_gone_is_done(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let rules = [0, 1].map(|number| device.install(&other(number), "2").expect("it is taken"));
    device.remove(rules[0]);
    assert_eq!(device.backend().flush(), Ok(1));
    for rule in rules {
        let generation = device.next_generation();
        let change = Change { flow: rule.flow, generation, operation: Operation::Remove(rule.handle) };
        let completion = device.worker().make(vec![change]).pop().expect("one");
        assert_eq!(completion.result, Ok(Outcome::Removed { last: None }));
    }
}

/// A dry run.
pub fn what_is_explained_is_not_put_in(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    assert_ne!(device.backend().explain(&flow(UDP, "2")).expect("it would be taken"), "");
    let explained = device.backend().explain(&flow(UDP, REFUSED)).expect_err("it would be refused");
    assert!(device.installed().is_empty());
    let refused = device.install(UDP, REFUSED).expect_err("it is refused");
    assert_eq!(explained.label(), refused.label(), "{explained}; {refused}");
    device.install(UDP, "2").expect("what was explained takes no place");
}
