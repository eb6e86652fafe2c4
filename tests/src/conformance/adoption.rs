//! What one run of the agent leaves to the next, and what others can change.

use sluice_flow::backend::{Adoption, Facet, InstalledRule};
use sluice_flow::{FlowId, Generation};

use super::device::{flow, other};
use super::{Device, Rule, Subject, UDP, stories};

stories![
    rules_of_an_earlier_run_are_taken_over_and_count_on,
    rules_that_nobody_claims_are_taken_out,
    a_device_that_keeps_nothing_begins_with_nothing,
    a_rule_is_read_back_as_it_was_put_in,
    a_rule_that_no_flow_has_can_be_taken_out_and_one_that_a_flow_has_cannot,
];

const HEIR: FlowId = FlowId { slot: 900, incarnation: 3 };
const AS: Generation = Generation(70);

/// Takes over every rule for the same flow.
fn claim(_: &InstalledRule) -> Option<(FlowId, Generation)> {
    Some((HEIR, AS))
}

/// Readings carry the names that the new run has given.
pub fn rules_of_an_earlier_run_are_taken_over_and_count_on(subject: &Subject<'_>) {
    let mut first = Device::open(subject);
    if !first.has(Facet::Adoption) {
        return;
    }
    let rule = first.install(UDP, "2").expect("it is taken");
    first.send(3);
    drop(first);
    let mut second = Device::open(subject);
    let adopter = second.backend().adoption().expect("the same device");
    assert_eq!(adopter.adopt(&mut claim), Ok(Adoption { adopted: 1, orphans: 0 }));
    let listed = second.installed();
    let (handle, listed) = listed.first_key_value().expect("the rule is there still");
    assert!(listed.flow.is_same(&flow(UDP, "2")) && listed.flow.actions == flow(UDP, "2").actions);
    let rule = Rule { flow: HEIR, generation: AS, handle: *handle, ..rule };
    second.send(2);
    let read = second.read();
    assert_eq!((read[&HEIR].installed_as, read[&HEIR].counters.packets), (AS, 5));
    let rule = second.modify(rule, UDP, "drop").expect("it can be modified");
    assert_eq!(second.remove(rule).map(|last| last.packets), Some(5));
    assert!(second.installed().is_empty());
}

/// The others are taken over.
pub fn rules_that_nobody_claims_are_taken_out(subject: &Subject<'_>) {
    let mut first = Device::open(subject);
    if !first.has(Facet::Adoption) {
        return;
    }
    for number in 0..4 {
        first.install(&other(number), "2").expect("it is taken");
    }
    let wanted = first.install(UDP, "2").expect("it is taken");
    drop(first);
    let mut second = Device::open(subject);
    let adopter = second.backend().adoption().expect("the same device");
    let mut claims = |rule: &InstalledRule| rule.flow.is_same(&flow(UDP, "2")).then_some((HEIR, AS));
    assert_eq!(adopter.adopt(&mut claims), Ok(Adoption { adopted: 1, orphans: 4 }));
    assert_eq!((second.installed().len(), second.read().len()), (1, 1));
    assert_eq!(second.packets(Rule { flow: HEIR, ..wanted }), Some(0));
    assert_eq!(others(&second), Ok(0), "what is ours is no other owner's");
}

/// How many other owners have something in the device.
fn others(device: &Device<'_>) -> Result<usize, sluice_flow::Refusal> {
    Facet::Adoption.require(device.backend().adoption())?.holdings().map(|holdings| holdings.len())
}

/// Who has no facet for adoption leaves nothing to adopt.
pub fn a_device_that_keeps_nothing_begins_with_nothing(subject: &Subject<'_>) {
    let mut first = Device::open(subject);
    if first.has(Facet::Adoption) {
        return;
    }
    first.install(UDP, "2").expect("it is taken");
    drop(first);
    let mut second = Device::open(subject);
    assert_eq!((second.installed().len(), second.read().len()), (0, 0));
}

/// In full, with the flow that it is for; one that is not there is not shown.
pub fn a_rule_is_read_back_as_it_was_put_in(subject: &Subject<'_>) {
    let mut device = Device::open(subject);
    let wanted = [(UDP.to_owned(), "2"), (other(1), "drop"), (other(2), "2")];
    let rules = wanted.clone().map(|(key, actions)| device.install(&key, actions).expect("it is taken"));
    device.remove(rules[2]);
    let Some(auditor) = device.backend().audit() else { return };
    let mut read = Vec::new();
    let handles = rules.map(|rule| rule.handle);
    auditor.read_back(&handles, &mut |id, rule| read.push((id, rule))).expect("the rules are read");
    read.sort_by_key(|(id, _)| *id);
    assert_eq!(read.len(), 2);
    for ((id, found), (rule, (key, actions))) in read.iter().zip(rules.iter().zip(&wanted)) {
        assert_eq!((*id, found.handle, found.is_current), (rule.flow, rule.handle, true));
        let wanted = flow(key, actions);
        assert!(found.flow.is_same(&wanted) && found.flow.actions == wanted.actions, "{:?}", found.flow);
    }
    let mut foreign = Vec::new();
    auditor.foreign(&mut |rule| foreign.push(rule)).expect("rules of others are listed");
    assert_eq!(foreign, Vec::<String>::new(), "nobody else is here");
}

/// A stray of a run that did not end.
pub fn a_rule_that_no_flow_has_can_be_taken_out_and_one_that_a_flow_has_cannot(subject: &Subject<'_>) {
    let mut first = Device::open(subject);
    if !(first.has(Facet::Audit) && first.has(Facet::Adoption)) {
        return;
    }
    first.install(UDP, "2").expect("it is taken");
    drop(first);
    let mut second = Device::open(subject);
    let stray = *second.installed().first_key_value().expect("the rule is there still").0;
    let auditor = second.backend().audit().expect("the same device");
    auditor.remove_stray(stray).expect("it is nobody's");
    auditor.remove_stray(stray).expect_err("it is gone");
    assert!(second.installed().is_empty());
    let rule = second.install(UDP, "2").expect("its place is free");
    let auditor = second.backend().audit().expect("the same device");
    auditor.remove_stray(rule.handle).expect_err("it is a flow's");
    assert_eq!(second.installed().into_keys().collect::<Vec<_>>(), [rule.handle]);
}
