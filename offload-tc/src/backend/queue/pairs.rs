//! Flows with two rules: the one that takes their packets, and the guard in front of it
//! ([`Rules::guard`](crate::translate::Rules::guard)). The guard is installed before the rule and deleted after it, so that
//! no packet meets the rule without it. If one cannot be installed, the other is undone.

use crate::config::OffloadPolicy;
use sluice_flow::backend::{Change, Completion, Handle, Outcome, Placement};
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;

use super::wanted::Wanted;
use super::writer::{NAMES_TRIED, Writer, is_same_match};
use crate::backend::counted::Counted;
use crate::backend::failure::{self, Result, socket_refusal};
use crate::backend::ledger::record::{Entry, Place, filter_id};
use crate::backend::placement;
use crate::backend::ports::table::PortTable;
use crate::backend::removal::{deleted, take_out};
use crate::context::Context;
use crate::install::{Done, Request};
use crate::label::Label;
use crate::wire::action::{Action, MAX_ACTIONS, Operation};
use crate::wire::filter::{Filter, FilterId};
use crate::wire::flower::{Flower, flag};

/// What is to be done for a flow with two rules.
pub(super) enum Pair {
    /// Install both.
    Install(Handle, Box<Wanted>),
    /// Delete both.
    Remove(Entry),
}

/// Two rules that are being installed.
struct Arrival {
    change: Change,
    handle: Handle,
    place: Place,
    guard: Filter,
    rule: Filter,
    /// The placement of the guard, once it is installed.
    guard_is_in: Placement,
}

/// What a flow counted while its rules were changed.
#[derive(Clone, Copy)]
struct Tally {
    /// By rules that are gone.
    carried: Counted,
    /// By the installed guard, as listings have shown.
    guard: Option<Counted>,
}

impl Writer {
    /// Does what is to be done for flows with two rules, as much as possible at a time.
    pub(super) fn finish_pairs(&mut self, pairs: Vec<(Change, Pair)>, ports: &PortTable, done: &mut Vec<Completion>) {
        let (mut arriving, mut leaving) = (Vec::new(), Vec::new());
        for (change, pair) in pairs {
            match pair {
                Pair::Install(handle, wanted) => arriving.extend(Arrival::new(change, handle, *wanted)),
                Pair::Remove(entry) => leaving.push((change, entry)),
            }
        }
        for _ in 0..NAMES_TRIED {
            arriving = self.install_pairs(arriving, ports, done);
        }
        for arrival in arriving {
            done.push(self.refused(arrival, failure::duplicate(), ports));
        }
        self.remove_pairs(&leaving, ports, done);
    }

    /// Installs pairs. Returns those whose handle somebody else uses, under another handle.
    fn install_pairs(&mut self, arriving: Vec<Arrival>, ports: &PortTable, done: &mut Vec<Completion>) -> Vec<Arrival> {
        let mut again = Vec::new();
        let mut guarded = Vec::new();
        let guards: Vec<_> = arriving.iter().map(|arrival| Request::Add(arrival.guard.clone())).collect();
        for (mut arrival, result) in arriving.into_iter().zip(self.installer.submit(&guards)) {
            match self.resolve(&arrival.guard, result) {
                Ok(Some(guard)) => {
                    arrival.guard_is_in = placement::of_rule(self.core.policy, guard.report.as_ref());
                    follow(self.core.policy, arrival.guard_is_in, &mut arrival.rule.flower);
                    guarded.push(arrival);
                }
                Ok(None) => again.push(self.renamed(arrival)),
                Err(refusal) => done.push(self.refused(arrival, refusal, ports)),
            }
        }
        let rules: Vec<_> = guarded.iter().map(|arrival| Request::Add(arrival.rule.clone())).collect();
        for (arrival, result) in guarded.into_iter().zip(self.installer.submit(&rules)) {
            let there = self.resolve(&arrival.rule, result);
            if !matches!(there, Ok(Some(_))) {
                // If it cannot be deleted, the next audit finds it as a stray.
                let _ = self.installer.submit_one(Request::Delete(arrival.guard.id));
            }
            match there {
                Ok(Some(rule)) => done.push(self.arrived(&arrival, &rule)),
                Ok(None) => again.push(self.renamed(arrival)),
                Err(refusal) => done.push(self.refused(arrival, refusal, ports)),
            }
        }
        again
    }

    fn arrived(&self, arrival: &Arrival, rule: &Done) -> Completion {
        let Arrival { change, handle, place, guard_is_in, .. } = arrival;
        self.core.ledger.settle(*handle, *place, Counted::default(), Some(Counted::default()));
        let placement = placement::of_both(*guard_is_in, placement::of_rule(self.core.policy, rule.report.as_ref()));
        completion(change, Ok(Outcome::InPlace { handle: *handle, placement }))
    }

    fn refused(&self, arrival: Arrival, refusal: Refusal, ports: &PortTable) -> Completion {
        self.core.ledger.forget(arrival.handle, arrival.place);
        completion(&arrival.change, Err(failure::refine(refusal, arrival.place.hook, ports)))
    }

    fn renamed(&mut self, arrival: Arrival) -> Arrival {
        let handle = self.core.ledger.rename(&mut self.cursor, arrival.handle).unwrap_or(arrival.handle);
        let number = filter_id(arrival.place, handle).handle;
        let named = |filter: Filter| Filter { id: FilterId { handle: number, ..filter.id }, ..filter };
        Arrival { handle, guard: named(arrival.guard), rule: named(arrival.rule), ..arrival }
    }

    fn remove_pairs(&mut self, leaving: &[(Change, Entry)], ports: &PortTable, done: &mut Vec<Completion>) {
        let entries: Vec<_> = leaving.iter().map(|(_, entry)| entry).collect();
        for ((change, entry), result) in leaving.iter().zip(take_out(&mut self.installer, &entries)) {
            let place = entry.record.place;
            let result = match result {
                Ok(counted) => {
                    self.core.ledger.forget(entry.handle, place);
                    Ok(Outcome::Removed { last: counted.map(Counted::total) })
                }
                Err(refusal) => {
                    self.core.ledger.settle_as_before(entry);
                    Err(failure::refine(refusal, place.hook, ports))
                }
            };
            done.push(completion(change, result));
        }
    }

    /// Installs the rules of a flow, one or two, at a place without rules. Returns their placement.
    pub(super) fn put_in(&mut self, handle: Handle, wanted: Wanted) -> Result<Placement> {
        let policy = self.core.policy;
        let (guard, mut rule) = wanted.named(handle);
        let Some(guard) = guard else {
            return self
                .installer
                .submit_one(Request::Add(rule))
                .map(|done| placement::of_rule(policy, done.report.as_ref()));
        };
        let name = guard.id;
        let guard_is_in = placement::of_rule(policy, self.installer.submit_one(Request::Add(guard))?.report.as_ref());
        follow(policy, guard_is_in, &mut rule.flower);
        match self.installer.submit_one(Request::Add(rule)) {
            Ok(done) => Ok(placement::of_both(guard_is_in, placement::of_rule(policy, done.report.as_ref()))),
            Err(refusal) => {
                let _ = self.installer.submit_one(Request::Delete(name));
                Err(refusal)
            }
        }
    }

    /// Replaces the rules of a flow that has two before or afterwards.
    pub(super) fn modify_pair(
        &mut self,
        entry: &Entry,
        wanted: Wanted,
        flow: &Flow,
        ports: &PortTable,
    ) -> Result<Outcome> {
        let handle = entry.handle;
        let place = entry.record.place;
        let mut tally = Tally { carried: entry.record.carried(), guard: entry.record.guard() };
        let changed = self.change_pair(entry, wanted, flow, ports, &mut tally);
        self.core.ledger.settle(handle, place, tally.carried, tally.guard);
        match changed {
            Ok(placement) => Ok(Outcome::InPlace { handle, placement }),
            Err(refusal) => Err(failure::refine(refusal, place.hook, ports)),
        }
    }

    fn change_pair(
        &mut self,
        entry: &Entry,
        wanted: Wanted,
        flow: &Flow,
        ports: &PortTable,
        tally: &mut Tally,
    ) -> Result<Placement> {
        let policy = self.core.policy;
        let (guard, mut rule) = wanted.named(entry.handle);
        let (rule_name, guard_name) = (rule.id, entry.guard_id());
        let old_rule = self.look(rule_name)?;
        let old_guard = guard_name.map(|name| self.look(name)).transpose()?.flatten();
        // The guard also fits the old rule, or the old rule needs none, so it may be installed first.
        let guard_is_in = match guard {
            Some(guard) => {
                let name = guard.id;
                let there = self.replace(guard, old_guard.as_ref(), flow)?;
                there.count(&mut tally.carried, &mut tally.guard, true);
                Some((name, placement::of_rule(policy, there.done.report.as_ref())))
            }
            None => None,
        };
        if let Some((_, guard_is_in)) = guard_is_in {
            follow(policy, guard_is_in, &mut rule.flower);
        }
        let there = match self.replace(rule, old_rule.as_ref(), flow) {
            Ok(there) => there,
            Err(refusal) => {
                if let Some((name, _)) = guard_is_in {
                    self.undo_guard(name, old_guard, flow, ports, tally);
                }
                return Err(refusal);
            }
        };
        there.count(&mut tally.carried, &mut None, false);
        let rule_is_in = placement::of_rule(policy, there.done.report.as_ref());
        let (None, Some(name)) = (guard_is_in, guard_name) else {
            return Ok(guard_is_in.map_or(rule_is_in, |(_, guard_is_in)| placement::of_both(guard_is_in, rule_is_in)));
        };
        // The new rule needs no guard.
        let result = self.installer.submit_one(Request::Delete(name));
        match deleted(&mut self.installer, name, result) {
            Ok(by_guard) => {
                let by_guard = by_guard.or(tally.guard.take()).unwrap_or_default();
                (tally.carried, tally.guard) = (tally.carried.plus(by_guard), None);
                Ok(rule_is_in)
            }
            Err(refusal) => {
                if let Some(old) = old_rule {
                    let now = self.look(rule_name).ok().flatten();
                    if let Ok(there) = self.replace(anew(old, ports), now.as_ref(), flow) {
                        there.count(&mut tally.carried, &mut None, false);
                    }
                }
                Err(refusal)
            }
        }
    }

    /// Restores the old guard, if there was one.
    fn undo_guard(&mut self, name: FilterId, old: Option<Filter>, flow: &Flow, ports: &PortTable, tally: &mut Tally) {
        match old {
            Some(old) => {
                let now = self.look(name).ok().flatten();
                if let Ok(there) = self.replace(anew(old, ports), now.as_ref(), flow) {
                    there.count(&mut tally.carried, &mut tally.guard, true);
                }
            }
            None => {
                let report = self.installer.submit_one(Request::Delete(name)).ok().and_then(|done| done.report);
                let by_guard = report.map(|report| Counted::reported(&report, &name)).unwrap_or_default();
                (tally.carried, tally.guard) = (tally.carried.plus(by_guard), None);
            }
        }
    }

    /// Replaces a rule, which may be missing.
    fn replace(&mut self, mut rule: Filter, old: Option<&Filter>, flow: &Flow) -> Result<Replaced> {
        let name = rule.id;
        if old.is_some_and(|old| !is_same_match(old, &rule.flower, &self.core.ports.load())) {
            let result = self.installer.submit_one(Request::Delete(name));
            let by_old = deleted(&mut self.installer, name, result)?;
            return Ok(Replaced { done: self.add(rule)?, by_old: Some(by_old.unwrap_or_default()) });
        }
        let has_room = rule.flower.actions.len() < MAX_ACTIONS;
        let pass = old.filter(|_| has_room && self.core.policy == OffloadPolicy::SkipHardware);
        if let Some(pass) = pass.and_then(|old| Label::pass_in(&old.flower, flow.ufid)) {
            Label::go_on_counting(&mut rule.flower.actions, pass);
            return Ok(Replaced { done: self.installer.submit_one(Request::Replace(rule))?, by_old: None });
        }
        // In one batch, because what the old rule counts in between is lost.
        let mut results = self.installer.submit(&[Request::Read(name), Request::Replace(rule)]).into_iter();
        let report = results.next().and_then(Result::ok).and_then(|done| done.report);
        let by_old = report.map(|report| Counted::reported(&report, &name)).unwrap_or_default();
        let no_answer = || Err(Refusal::Device { reason: "no answer".into() });
        Ok(Replaced { done: results.next().unwrap_or_else(no_answer)?, by_old: Some(by_old) })
    }

    fn look(&mut self, name: FilterId) -> Result<Option<Filter>> {
        self.installer.find(name).map_err(socket_refusal)
    }
}

/// The outcome of replacing a rule.
struct Replaced {
    done: Done,
    /// What the old rule counted; `None` if the new one goes on counting.
    by_old: Option<Counted>,
}

impl Replaced {
    /// Adds what the old rule counted to what is carried over. For a guard, listings may have shown more.
    fn count(&self, carried: &mut Counted, shown: &mut Option<Counted>, is_guard: bool) {
        match self.by_old {
            Some(by_old) => {
                *carried = carried.plus(by_old.max(shown.unwrap_or_default()));
                *shown = is_guard.then(Counted::default);
            }
            None => *shown = is_guard.then(|| shown.unwrap_or_default()),
        }
    }
}

impl Arrival {
    fn new(change: Change, handle: Handle, wanted: Wanted) -> Option<Self> {
        let place = wanted.place;
        let (guard, rule) = wanted.named(handle);
        Some(Self { change, handle, place, guard: guard?, rule, guard_is_in: Placement::Unknown })
    }
}

fn completion(change: &Change, result: Result<Outcome>) -> Completion {
    Completion { flow: change.flow, generation: change.generation, result }
}

/// A rule stays in software if its guard does: hardware that had the rule alone would let the TTL wrap.
fn follow(policy: OffloadPolicy, guard_is_in: Placement, rule: &mut Flower) {
    if policy == OffloadPolicy::Any && !guard_is_in.is_in_hardware() {
        rule.flags = flag::SKIP_HW;
    }
}

/// An installed rule as a request to install it again: without counters, and with new actions except for those that rules
/// share.
fn anew(shown: Filter, context: &dyn Context) -> Filter {
    let is_shared =
        |action: &Action| matches!(action.operation, Operation::Police(_)) && context.meter(action.index).is_some();
    let action = |action: Action| match is_shared(&action) {
        true => Action { statistics: None, cookie: None, ..action },
        false => Action { statistics: None, index: 0, ..action },
    };
    let Filter { id, flower } = shown;
    let flags = flower.flags & (flag::SKIP_HW | flag::SKIP_SW | flag::VERBOSE);
    let actions = flower.actions.into_iter().map(action).collect();
    Filter { id, flower: Flower { actions, flags, hardware_count: None, ..flower } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_stays_in_software_if_hardware_did_not_take_its_guard() {
        let flags = |policy, guard_is_in| {
            let mut rule = Flower { flags: crate::install::flags(policy), ..Flower::default() };
            follow(policy, guard_is_in, &mut rule);
            rule.flags
        };
        assert_eq!(flags(OffloadPolicy::Any, Placement::Software), flag::SKIP_HW);
        assert_eq!(flags(OffloadPolicy::Any, Placement::Unknown), flag::SKIP_HW);
        assert_eq!(flags(OffloadPolicy::Any, Placement::Both), flag::VERBOSE);
        assert_eq!(flags(OffloadPolicy::SkipSoftware, Placement::Hardware), flag::SKIP_SW);
    }

    #[test]
    fn counters_go_on_whether_a_guard_is_made_anew_or_counts_on() {
        let count = |packets| Counted {
            software: crate::wire::statistics::Count { packets, bytes: packets * 60 },
            ..Counted::default()
        };
        let replaced = |by_old| Replaced { done: Done::default(), by_old };
        let (mut carried, mut shown) = (count(1), Some(count(5)));
        replaced(None).count(&mut carried, &mut shown, true);
        assert_eq!((carried, shown), (count(1), Some(count(5))), "it counts on");
        replaced(Some(count(7))).count(&mut carried, &mut shown, true);
        assert_eq!((carried, shown), (count(8), Some(count(0))), "from zero");
        (carried, shown) = (count(1), Some(count(5)));
        replaced(Some(count(0))).count(&mut carried, &mut shown, true);
        assert_eq!((carried, shown), (count(6), Some(count(0))), "what was shown is not lost where nothing was read");
    }
}
