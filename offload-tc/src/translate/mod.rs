//! Translates flows into flower rules, or refuses them, and rules back into flows.
//!
//! Both directions use the same tables. An error in a table is wrong in both, and shows in what the kernel does with
//! packets; an error in one direction shows when the [`flow`] of a [`rule`] differs from the original.

mod actions;
mod beyond_ovs;
mod conntrack;
mod fields;
mod guard;
mod matching;
mod mirror;
mod options;
mod places;
mod read;
mod refuse;
mod tunnel;

use sluice_flow::action::{Action, ActionList, visit};
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use self::fields::{DONT_FRAGMENT, PASSED_OVER};
use self::refuse::{device_of, refuse};
use crate::context::{Context, TunnelFlags};
use crate::label::{Label, Spelling};
use crate::marks::{AgentId, Format};
use crate::rule::{Caveat, Rule};
use crate::wire::action::MAX_ACTIONS;
use crate::wire::filter::Filter;

pub(crate) use fields::{MAY_BE_UNREAD, plain};
pub use mirror::{Mirror, mirror};
pub use refuse::Unreadable;

/// The rules of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The rule that takes the flow's packets.
    pub rule: Rule,
    /// The guard, which takes some of the packets first, so that `dec_ttl` does not wrap. It is in front of the rule
    /// ([`Priorities::acquire_in_front`](crate::priorities::Priorities::acquire_in_front)), installed before it and deleted
    /// after it. The flow's counters are those of both. Its notes have [`Spelling::GUARD`].
    pub guard: Option<Rule>,
}

/// The rules of a flow, with the notes of an agent.
pub fn rules(flow: &Flow, agent: AgentId, context: &dyn Context) -> Result<Rules, Refusal> {
    let full = flow.matching().expand();
    let Some(found) = guard::guard(&full, &flow.actions)? else {
        return Ok(Rules { rule: rule(flow, agent, context)?, guard: None });
    };
    let label = label_of(flow, agent);
    let rule = labelled(&full, &flow.actions, label, context, true)?;
    let label = Label { spelling: Spelling::GUARD, ..label };
    let guard = labelled(&found.matching, &found.actions, label, context, false)?;
    Ok(Rules { rule, guard: Some(guard) })
}

/// What the [guard](Rules::guard) of a flow matches and does, if it needs one.
pub fn guard(matching: &Match, actions: &[Action]) -> Result<Option<(Match, ActionList)>, Refusal> {
    Ok(guard::guard(matching, actions)?.map(|found| (found.matching, found.actions)))
}

/// The rule of a flow that has only one, with the notes of an agent. Refuses a flow that needs a [guard](Rules::guard).
pub fn rule(flow: &Flow, agent: AgentId, context: &dyn Context) -> Result<Rule, Refusal> {
    let full = flow.matching().expand();
    labelled(&full, &flow.actions, label_of(flow, agent), context, false)
}

/// The notes of a flow's rule, except for the spelling.
fn label_of(flow: &Flow, agent: AgentId) -> Label {
    let (spelling, digest) = Default::default();
    Label { ufid: Some(flow.ufid), agent, format: Format::CURRENT, priority: flow.priority, spelling, digest }
}

/// The rule of a match and actions. With a guard in front, no packet has a TTL below 2.
fn labelled(
    full: &Match,
    actions: &ActionList,
    label: Label,
    context: &dyn Context,
    is_guarded: bool,
) -> Result<Rule, Refusal> {
    let number: Option<u32> = matching::exact(full, Field::InPort);
    let number = number.ok_or_else(|| refuse(Field::InPort, "a rule belongs to one port"))?;
    let device = device_of(PortNumber(number), context)?;
    let mut matched = matching::translate(full, device, context)?;
    if is_guarded {
        matched.shape.least_ttl = 2;
    }
    let (mut spelling, mut caveats) = (matched.spelling, matched.caveats);
    spelling.add(label.spelling);
    let mut flower = matched.flower;
    if leaves_out_df(actions, context)? {
        spelling.add(Spelling::DF_LEFT_OUT);
        caveats.push(Caveat::NotSet { flag: "df" });
    }
    if names_what_stays(actions)? {
        spelling.add(Spelling::WHOLE_SET);
    }
    visit(actions, &mut |action| {
        if matches!(action, Action::Conntrack(track) if track.helper.is_some()) {
            caveats.push(Caveat::RelatedIsForgotten);
        }
    });
    flower.actions = actions::translate(actions, matched.shape, context, &mut spelling)?;
    Label { spelling, ..label }.put(&mut flower.actions, context.room());
    if flower.actions.len() > MAX_ACTIONS {
        return Err(Refusal::Limit { what: "actions of tc in a rule".into(), limit: MAX_ACTIONS as u64 });
    }
    let (chain, protocol) = (matched.chain, matched.protocol);
    Ok(Rule { hook: device.hook(), chain, priority: label.priority, protocol, flower, caveats })
}

/// A match without the flags of the outer header that are ignored where the kernel does not know them.
pub(crate) fn without_unknown_flags(full: &Match) -> Match {
    let passed_over = PASSED_OVER.iter().fold(0, |bits, (_, bit, ..)| bits | u128::from(*bit));
    let (value, mask) = (full.key.get(Field::TunnelFlags), full.mask.get(Field::TunnelFlags));
    let mut left = *full;
    left.set(Field::TunnelFlags, value & !passed_over, mask & !passed_over);
    left
}

/// Whether the actions set the don't-fragment flag where the kernel cannot, and the configuration allows that. The notes
/// have one bit for all sets of a rule.
fn leaves_out_df(actions: &ActionList, context: &dyn Context) -> Result<bool, Refusal> {
    if context.features().no_fragment || context.tunnel_flags() == TunnelFlags::Exact {
        return Ok(false);
    }
    let (mut with, mut without) = (false, false);
    visit(actions, &mut |action| {
        if let Action::SetTunnel(set) = action {
            let flags = set.get(Field::TunnelFlags).map_or(0, |(value, _)| value);
            let place = if flags & u128::from(DONT_FRAGMENT) == 0 { &mut without } else { &mut with };
            *place = true;
        }
    });
    if with && without {
        let reason = "only one of two outer headers has the don't-fragment flag, which this kernel's tc cannot set (Linux 6.3 can)";
        return Err(refuse(Field::TunnelFlags, reason));
    }
    Ok(with)
}

/// Whether sets of a whole IP header name its protocol and `frag`, too. The notes have one bit for all sets of a rule.
fn names_what_stays(actions: &ActionList) -> Result<bool, Refusal> {
    let (mut with, mut without) = (false, false);
    visit(actions, &mut |action| {
        if let Action::Set(set) = action {
            with |= places::names_what_stays(set);
            without |= places::is_all_that_changes(set);
        }
    });
    if with && without {
        let reason = "of two sets of all fields of an IP header, one names proto and frag and the other does not, which the note \
                      on a rule of tc cannot tell apart";
        return Err(Refusal::Combination { reason: reason.into() });
    }
    Ok(with)
}

/// Match and actions of the flow of a rule with these notes.
pub fn flow(filter: &Filter, label: &Label, context: &dyn Context) -> Result<(Match, ActionList), Unreadable> {
    let full = read::matching(filter.id, &filter.flower, label.spelling, context)?;
    let mut actions = filter.flower.actions.clone();
    Label::take_off(&mut actions);
    let actions = read::actions(&actions, &full, label.spelling, context)?;
    Ok((full, actions))
}

/// The match of any rule, however it is written; `None` if no flow can express it.
pub fn matching(filter: &Filter, context: &dyn Context) -> Option<Match> {
    read::matching(filter.id, &filter.flower, Spelling::default(), context).ok()
}
