//! Flows that are two rules: the one that takes their packets, and the guard in front of it
//! ([`Rules::guard`](crate::translate::Rules::guard)). The guard goes in before the rule and out after it, so that no packet meets
//! the rule without it; where one cannot be, the other is undone.

use sluice_flow::backend::{Change, Completion, Handle, Outcome, Placement};
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;

use super::books::{Counted, Entry, Place, filter_id};
use super::exclusive::is_same_match;
use super::failure;
use super::ports::PortTable;
use super::queue::{NAMES_TRIED, Queue, Result, Wanted, counted, pass_in, placement, total};
use super::removal::{deleted, take_out};
use crate::config::OffloadPolicy;
use crate::install::{Done, Request};
use crate::rule::Label;
use crate::surroundings::Surroundings;
use crate::wire::action::{Action, MAX_ACTIONS, Operation};
use crate::wire::filter::{Filter, FilterId};
use crate::wire::flower::{Flower, flag};

/// What is to be done for a flow of two rules.
pub(super) enum Pair {
    /// Both are put in.
    Install(Handle, Box<Wanted>),
    /// Both are taken out.
    Remove(Entry),
}

/// Two rules on their way in.
struct Arrival {
    change: Change,
    handle: Handle,
    place: Place,
    guard: Filter,
    rule: Filter,
    /// Where the guard is, once it is there.
    guard_is_in: Placement,
}

/// What a flow counted while its rules were changed.
#[derive(Clone, Copy)]
struct Tally {
    /// By rules that are not there any more.
    carried: Counted,
    /// By the guard that is there, as far as listings have shown.
    guard: Option<Counted>,
}

impl Queue {
    /// Does what is to be done for flows of two rules: as much as possible at a time.
    pub(super) fn finish_pairs(&mut self, ports: &PortTable, done: &mut Vec<Completion>) {
        if self.pairs.is_empty() {
            return;
        }
        let (mut arriving, mut leaving) = (Vec::new(), Vec::new());
        for (change, pair) in std::mem::take(&mut self.pairs) {
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

    /// Puts pairs in, and gives those back, under another name, whose name was somebody else's.
    fn install_pairs(&mut self, arriving: Vec<Arrival>, ports: &PortTable, done: &mut Vec<Completion>) -> Vec<Arrival> {
        let mut again = Vec::new();
        let mut guarded = Vec::new();
        let guards: Vec<_> = arriving.iter().map(|arrival| Request::Add(arrival.guard.clone())).collect();
        for (mut arrival, result) in arriving.into_iter().zip(self.installer.submit(&guards)) {
            match self.resolve(&arrival.guard, result) {
                Ok(Some(guard)) => {
                    arrival.guard_is_in = placement(self.core.policy, guard.told.as_ref());
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
                // One that does not go is found by the next audit as what it is: a rule that no flow has.
                let _ = self.one(Request::Delete(arrival.guard.id));
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
        self.core.books.settle(*handle, *place, Counted::default(), Some(Counted::default()));
        let placement = of_both(*guard_is_in, placement(self.core.policy, rule.told.as_ref()));
        completion(change, Ok(Outcome::InPlace { handle: *handle, placement }))
    }

    fn refused(&self, arrival: Arrival, refusal: Refusal, ports: &PortTable) -> Completion {
        self.core.forget(arrival.handle, arrival.place);
        completion(&arrival.change, Err(failure::refine(refusal, arrival.place.hook, ports)))
    }

    fn renamed(&mut self, arrival: Arrival) -> Arrival {
        let handle = self.core.books.rename(&mut self.turn, arrival.handle).unwrap_or(arrival.handle);
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
                    self.core.forget(entry.handle, place);
                    Ok(Outcome::Removed { last: counted.map(total) })
                }
                Err(refusal) => {
                    self.settle_as_before(entry);
                    Err(failure::refine(refusal, place.hook, ports))
                }
            };
            done.push(completion(change, result));
        }
    }

    /// Puts the rules of a flow in where none of them was, one or two. Says where they are.
    pub(super) fn put_in(&mut self, handle: Handle, wanted: Wanted) -> Result<Placement> {
        let policy = self.core.policy;
        let (guard, mut rule) = wanted.named(handle);
        let Some(guard) = guard else {
            return self.one(Request::Add(rule)).map(|done| placement(policy, done.told.as_ref()));
        };
        let name = guard.id;
        let guard_is_in = placement(policy, self.one(Request::Add(guard))?.told.as_ref());
        follow(policy, guard_is_in, &mut rule.flower);
        match self.one(Request::Add(rule)) {
            Ok(done) => Ok(of_both(guard_is_in, placement(policy, done.told.as_ref()))),
            Err(refusal) => {
                let _ = self.one(Request::Delete(name));
                Err(refusal)
            }
        }
    }

    /// Puts others in the place of a flow's rules, of which there are two before or afterwards.
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
        self.core.books.settle(handle, place, tally.carried, tally.guard);
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
        // A guard fits the old rule as well, or that needs none, so that it may be there a moment earlier.
        let guard_is_in = match guard {
            Some(guard) => {
                let name = guard.id;
                let there = self.replace(guard, old_guard.as_ref(), flow)?;
                there.count(&mut tally.carried, &mut tally.guard, true);
                Some((name, placement(policy, there.done.told.as_ref())))
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
        let rule_is_in = placement(policy, there.done.told.as_ref());
        let (None, Some(name)) = (guard_is_in, guard_name) else {
            return Ok(guard_is_in.map_or(rule_is_in, |(_, guard_is_in)| of_both(guard_is_in, rule_is_in)));
        };
        // The new rule needs none.
        let result = self.one(Request::Delete(name));
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

    /// Puts the guard back that there was, if there was one.
    fn undo_guard(&mut self, name: FilterId, old: Option<Filter>, flow: &Flow, ports: &PortTable, tally: &mut Tally) {
        match old {
            Some(old) => {
                let now = self.look(name).ok().flatten();
                if let Ok(there) = self.replace(anew(old, ports), now.as_ref(), flow) {
                    there.count(&mut tally.carried, &mut tally.guard, true);
                }
            }
            None => {
                let told = self.one(Request::Delete(name)).ok().and_then(|done| done.told);
                let by_guard = told.map(|told| counted(&told, &name)).unwrap_or_default();
                (tally.carried, tally.guard) = (tally.carried.plus(by_guard), None);
            }
        }
    }

    /// Puts a rule in the place of another one, which may be missing.
    fn replace(&mut self, mut rule: Filter, old: Option<&Filter>, flow: &Flow) -> Result<Replaced> {
        let name = rule.id;
        if old.is_some_and(|old| !is_same_match(old, &rule.flower, &self.core.ports.load())) {
            let result = self.one(Request::Delete(name));
            let by_old = deleted(&mut self.installer, name, result)?;
            return Ok(Replaced { done: self.add(rule)?, by_old: Some(by_old.unwrap_or_default()) });
        }
        let has_room = rule.flower.actions.len() < MAX_ACTIONS;
        let pass = old.filter(|_| has_room && self.core.policy == OffloadPolicy::SkipHardware);
        if let Some(pass) = pass.and_then(|old| pass_in(old, flow)) {
            Label::go_on_counting(&mut rule.flower.actions, pass);
            return Ok(Replaced { done: self.one(Request::Replace(rule))?, by_old: None });
        }
        // One right after the other, for what the old one counts in between is lost.
        let mut results = self.installer.submit(&[Request::Read(name), Request::Replace(rule)]).into_iter();
        let told = results.next().and_then(Result::ok).and_then(|done| done.told);
        let by_old = told.map(|told| counted(&told, &name)).unwrap_or_default();
        let no_answer = || Err(Refusal::Device { reason: "no answer".into() });
        Ok(Replaced { done: results.next().unwrap_or_else(no_answer)?, by_old: Some(by_old) })
    }

    fn look(&mut self, name: FilterId) -> Result<Option<Filter>> {
        self.installer.find(name).map_err(super::core::socket_refusal)
    }
}

/// What became of a rule that was put in the place of another one.
struct Replaced {
    done: Done,
    /// What the old one counted; nothing if the new one goes on counting where that ended.
    by_old: Option<Counted>,
}

impl Replaced {
    /// Adds what the old one counted to what is carried over. Of a guard it is known from listings, too.
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

impl Wanted {
    /// The rules under their names: the guard, if there is one, and the other.
    fn named(mut self, handle: Handle) -> (Option<Filter>, Filter) {
        let guard = self.guard.take().zip(self.place.in_front());
        let guard = guard.map(|(flower, place)| Filter { id: filter_id(place, handle), flower });
        (guard, self.rule(handle))
    }
}

fn completion(change: &Change, result: Result<Outcome>) -> Completion {
    Completion { flow: change.flow, generation: change.generation, result }
}

/// A rule goes where its guard is: hardware that had the rule alone would let packets wrap.
fn follow(policy: OffloadPolicy, guard_is_in: Placement, rule: &mut Flower) {
    if policy == OffloadPolicy::Any && !guard_is_in.is_in_hardware() {
        rule.flags = flag::SKIP_HW;
    }
}

/// Where a flow is whose rules are in two places: in hardware only if both are.
pub(super) const fn of_both(one: Placement, other: Placement) -> Placement {
    match (one, other) {
        (Placement::Unknown, _) | (_, Placement::Unknown) => Placement::Unknown,
        (Placement::Software, _) | (_, Placement::Software) => Placement::Software,
        (Placement::Hardware, Placement::Hardware) => Placement::Hardware,
        (Placement::Both | Placement::Hardware, _) => Placement::Both,
    }
}

/// A rule as the kernel shows it, to be put in once more: without the answers, and with actions of its own but for those that it
/// shares with others.
fn anew(shown: Filter, surroundings: &dyn Surroundings) -> Filter {
    let is_shared = |action: &Action| {
        matches!(action.operation, Operation::Police(_)) && surroundings.meter(action.index).is_some()
    };
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
    fn a_flow_is_in_hardware_if_both_its_rules_are() {
        use Placement::{Both, Hardware, Software, Unknown};
        assert_eq!([of_both(Hardware, Hardware), of_both(Both, Both)], [Hardware, Both]);
        for (place, word) in Placement::ALL {
            assert_eq!(of_both(Software, place), of_both(place, Software), "{word}");
            assert_eq!(of_both(Unknown, place), Unknown, "{word}");
        }
        assert_eq!([of_both(Software, Both), of_both(Hardware, Software)], [Software; 2]);
        assert_eq!(of_both(Hardware, Both), Both);
    }

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
