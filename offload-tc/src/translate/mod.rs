//! From a flow to a rule of flower, or to the reason why there is none; and back.
//!
//! Both directions go by the same tables, so that a field or a place that is wrong there is wrong both ways, and shows in
//! what the kernel does with packets; what is only in one of them shows in [`flow`] of [`rule`] not being what it was.

mod actions;
mod conntrack;
mod fields;
mod matching;
mod options;
mod places;
mod read;
mod tunnel;

use sluice_flow::action::ActionList;
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use crate::rule::{AgentId, Label, Rule};
use crate::surroundings::Surroundings;
use crate::wire::action::MAX_ACTIONS;
use crate::wire::filter::Filter;

pub use read::Unreadable;

/// The rule of a flow, with the notes of an agent on it.
pub fn rule(flow: &Flow, agent: AgentId, surroundings: &dyn Surroundings) -> Result<Rule, Refusal> {
    let full = flow.matching().expand();
    let number: Option<u32> = matching::exact(&full, Field::InPort);
    let number = number.ok_or_else(|| matching::refuse(Field::InPort, "a rule is of one port"))?;
    let device = surroundings.device(PortNumber(number));
    let device =
        device.ok_or_else(|| Refusal::Port { port: number.to_string(), reason: "there is no such port".into() })?;
    let matched = matching::translate(&full, device, surroundings.features())?;
    let mut spelling = matched.spelling;
    let mut flower = matched.flower;
    flower.actions = actions::translate(&flow.actions, matched.shape, surroundings, &mut spelling)?;
    Label { ufid: flow.ufid, agent, priority: flow.priority, spelling }.put(&mut flower.actions);
    if flower.actions.len() > MAX_ACTIONS {
        return Err(Refusal::Limit { what: "actions of tc in a rule".into(), limit: MAX_ACTIONS as u64 });
    }
    Ok(Rule { hook: device.hook(), chain: matched.chain, priority: flow.priority, protocol: matched.protocol, flower })
}

/// The flow of a rule of ours, whose notes are given: what it matches and does.
pub fn flow(
    filter: &Filter,
    label: &Label,
    surroundings: &dyn Surroundings,
) -> Result<(Match, ActionList), Unreadable> {
    let full = read::matching(filter.id, &filter.flower, label.spelling, surroundings)?;
    let mut actions = filter.flower.actions.clone();
    Label::take_off(&mut actions);
    let actions = read::actions(&actions, &full, label.spelling, surroundings)?;
    Ok((full, actions))
}
