//! What other owners have in the kernel: it has notes of ours with another agent's number.
//!
//! An agent whose state is lost becomes another owner to itself: its old rules go on working, and no agent knows them.

use std::collections::{BTreeMap, BTreeSet};

use sluice_flow::backend::Holding;
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::failure::{self, socket_refusal};
use super::listing::list;
use crate::dump::Detail;
use crate::install::Request;
use crate::label::Label;
use crate::marks::{AgentId, Format, Mark, Marked};
use crate::wire::filter::FilterId;
use crate::wire::rule_view::RuleView;

/// How often rules are listed and deleted before giving up.
const TRIES: usize = 8;

/// What other owners have, by agent.
#[derive(Default)]
pub(super) struct OtherOwners(BTreeMap<u32, Held>);

/// What one owner has.
#[derive(Default)]
struct Held {
    rules: BTreeSet<FilterId>,
    guards: BTreeSet<FilterId>,
    ends: BTreeSet<FilterId>,
    mirrors: BTreeSet<FilterId>,
    meters: usize,
    /// What has notes of a format that this build does not know, and the latest of these formats.
    later: BTreeSet<FilterId>,
    later_meters: usize,
    format: Option<Format>,
}

impl OtherOwners {
    /// Adds a rule, unless it has no notes of a Sluice agent.
    pub(super) fn see(&mut self, rule: &RuleView<'_>) {
        let Some(Mark { on, format, agent }) = Mark::of_rule(rule.cookies) else { return };
        let held = self.0.entry(agent.0).or_default();
        if format.is_later() {
            held.format = held.format.max(Some(format));
            held.later.insert(rule.id);
            return;
        }
        let names = match on {
            Marked::Rule if Label::is_of_guard(rule.cookies) => &mut held.guards,
            Marked::Rule => &mut held.rules,
            Marked::ChainEnd => &mut held.ends,
            Marked::Mirror | Marked::Meter => &mut held.mirrors,
        };
        names.insert(rule.id);
    }

    /// Adds a meter.
    fn see_meter(&mut self, mark: Mark) {
        let held = self.0.entry(mark.agent.0).or_default();
        if mark.format.is_later() {
            held.format = held.format.max(Some(mark.format));
            held.later_meters += 1;
        } else {
            held.meters += 1;
        }
    }

    /// What each owner has.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        let holding = |(mark, held): (&u32, &Held)| Holding {
            mark: *mark,
            rules: held.rules.len() + held.guards.len(),
            chain_ends: held.ends.len(),
            mirrors: held.mirrors.len(),
            meters: held.meters,
            of_newer: held.later.len() + held.later_meters,
            newer_format: held.format.map(|format| format.0),
        };
        self.0.iter().map(holding).collect()
    }

    /// The rules of an owner's flows, including guards.
    pub(super) fn rules_of(&self, mark: u32) -> impl Iterator<Item = FilterId> {
        let held = self.0.get(&mark);
        held.into_iter().flat_map(|found| found.rules.iter().chain(&found.guards).copied())
    }

    /// The chain ends of an owner.
    pub(super) fn ends_of(&self, mark: u32) -> impl Iterator<Item = FilterId> {
        self.0.get(&mark).into_iter().flat_map(|found| found.ends.iter().copied())
    }

    /// All rules of an owner that this build can read, guards behind the rules that they guard.
    fn names_of(&self, mark: u32) -> Vec<FilterId> {
        let Some(Held { rules, guards, ends, mirrors, .. }) = self.0.get(&mark) else { return Vec::new() };
        rules.iter().chain(guards).chain(ends).chain(mirrors).copied().collect()
    }
}

impl Core {
    /// What other owners have, wherever filters can be.
    pub(super) fn holdings(&self) -> Result<Vec<Holding>, Refusal> {
        let mut others = self.other_owners()?;
        self.add_meters(&mut others)?;
        Ok(others.holdings())
    }

    /// Adds the meters of other owners.
    pub(super) fn add_meters(&self, others: &mut OtherOwners) -> Result<(), Refusal> {
        let marks = self.meters.of_others().map_err(socket_refusal)?;
        marks.into_iter().for_each(|mark| others.see_meter(mark));
        Ok(())
    }

    /// Deletes what another owner has, except for what has notes of a later format. Returns the number of rules and meters.
    /// The caller knows that the owner's agent does not run.
    pub(super) fn remove_holding(&self, mark: u32) -> Result<usize, Refusal> {
        let agent = AgentId(mark);
        if agent == self.agent {
            return Err(Refusal::Device { reason: "these rules are this agent's own".into() });
        }
        let mut count = 0;
        let mut is_over = false;
        for _ in 0..TRIES {
            let names = self.other_owners()?.names_of(mark);
            if names.is_empty() {
                is_over = true;
                break;
            }
            count += self.take_out_of_others(&names)?;
        }
        if !is_over {
            return Err(Refusal::Busy {
                reason: "new rules appeared while they were deleted: their agent is running".into(),
            });
        }
        count += self.meters.remove_of(agent)?;
        // Flows may have been refused because of these rules.
        self.events.changed(Cause::Time);
        Ok(count)
    }

    fn other_owners(&self) -> Result<OtherOwners, Refusal> {
        let mut others = OtherOwners::default();
        for hook in self.hooks_everywhere()? {
            list(hook, Detail::Terse, &mut |view| {
                let Ok(rule) = RuleView::new(view) else { return };
                let mark = Mark::of_rule(rule.cookies);
                if mark.is_some_and(|mark| !self.ledger.owns(mark.agent, &rule.id) || mark.format.is_later()) {
                    others.see(&rule);
                }
            })?;
        }
        Ok(others)
    }

    fn take_out_of_others(&self, names: &[FilterId]) -> Result<usize, Refusal> {
        let mut installer = self.sockets.installer.lock();
        let requests: Vec<_> = names.iter().copied().map(Request::Delete).collect();
        let results = installer.submit(&requests);
        // A chain of ours may have ended in a rule of theirs.
        let gone = names.iter().zip(&results).filter(|(_, result)| result.is_ok()).map(|(id, _)| *id);
        let own_ends = gone.filter(|id| self.ledger.chains.ends_at(id));
        let end = |id: FilterId| {
            let kind = self.ledger.chains.kind_of(&id);
            self.end(&installer, id.hook, ChainId(id.chain), kind).map(Request::Add)
        };
        let ends: Vec<_> = own_ends.map(end).collect::<Result<_, _>>()?;
        for result in installer.submit(&ends) {
            if let Err(refusal) = result
                && !failure::is_duplicate(&refusal)
            {
                return Err(refusal);
            }
        }
        let mut count = 0;
        for result in results {
            match result {
                Ok(_) => count += 1,
                Err(refusal) if failure::is_absence(&refusal) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(count)
    }
}
