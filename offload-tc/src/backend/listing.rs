//! What is in the kernel, ours and others': audit, strays and the great clean-up.

use std::collections::BTreeMap;

use sluice_flow::action::ActionList;
use sluice_flow::backend::{CountedApart, Handle, InstalledRule, Placement};
use sluice_flow::counters::Counters;
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::id::FlowId;
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::refusal::Refusal;
use sluice_flow::ufid::Seed;

use super::books::{Counted, Place, State};
use super::chains::owner_of_end;
use super::core::{Core, device_refusal, socket_refusal};
use super::pairs::of_both;
use super::queue::{counted, label, label_of, placement_of};
use super::reader::is_absence;
use super::taken_apart::{Collector, Taken};
use super::{failure, words};
use crate::config::OffloadPolicy;
use crate::dump::{Detail, Lister, Listing};
use crate::install::{self, Request};
use crate::marks::{Format, Mark};
use crate::rule::{AgentId, Label, Spelling};
use crate::translate;
use crate::wire::action::Cookie;
use crate::wire::filter::{Filter, FilterId, FilterView, Hook};
use crate::wire::flower::flag;
use crate::wire::statistics::RuleView;

/// How often a listing that changed while it was read is read again, and how often what is taken out is looked for.
const TRIES: usize = 8;
/// The upper half of handles of rules that are not in the books: no slot comes to so many lives.
const STRAY: u64 = u64::MAX << 32;

/// Rules of ours that no flow has, by the names that they were listed under.
#[derive(Default)]
pub(super) struct Strays {
    names: BTreeMap<u64, FilterId>,
    numbers: BTreeMap<FilterId, u64>,
    last: u64,
}

impl Strays {
    fn handle(&mut self, id: FilterId) -> Handle {
        let number = *self.numbers.entry(id).or_insert_with(|| {
            self.last += 1;
            self.last
        });
        self.names.insert(number, id);
        Handle(STRAY | number)
    }

    fn get(&self, handle: Handle) -> Option<FilterId> {
        self.names.get(&(handle.0 & !STRAY)).copied().filter(|_| handle.0 & STRAY == STRAY)
    }

    fn remove(&mut self, id: &FilterId) {
        if let Some(number) = self.numbers.remove(id) {
            self.names.remove(&number);
        }
    }
}

/// The rules of a flow as a listing shows them.
pub(super) struct Found {
    pub(super) rule: Taken,
    pub(super) guard: Option<Taken>,
}

/// A rule of ours read back: its notes, what it matches and does.
pub(super) type ReadBack = (Label, Match, ActionList);

/// How the rules of a flow fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// There is a guard if one is needed, and it is the right one.
    Whole,
    /// There is a guard, and none is needed.
    Spare,
    /// A guard is needed, and there is none.
    Bare,
    /// The guard is another one.
    Odd,
}

impl Found {
    /// Finds together what is one flow's. Gives guards by themselves whose rules are missing.
    pub(super) fn pairs(rules: Vec<Taken>) -> (Vec<Self>, Vec<Taken>) {
        let (guards, rules): (Vec<_>, Vec<_>) = rules.into_iter().partition(Taken::is_guard);
        let mut guards: BTreeMap<_, _> = guards.into_iter().map(|guard| (guard.id(), guard)).collect();
        let pair = |rule: Taken| {
            let id = rule.id();
            let name = Place::of(&id).in_front().map(|place| FilterId { priority: place.priority, ..id });
            Self { guard: name.and_then(|name| guards.remove(&name)), rule }
        };
        let pairs = rules.into_iter().map(pair).collect();
        (pairs, guards.into_values().collect())
    }
}

impl Core {
    /// Shows the rules of ours at the ports. A rule without its guard is none, and of a guard that is another one's that is
    /// shown.
    pub(super) fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        let (pairs, alone) =
            Found::pairs(self.rules_of_agents(&self.ports.load().hooks(), &|id, owner| self.owns(owner, id))?);
        for found in pairs {
            self.show(&found, &mut |_, rule| visit(rule));
        }
        for guard in &alone {
            self.show_alone(Some(guard), visit);
        }
        Ok(())
    }

    /// Shows rules of the books as the kernel has them.
    pub(super) fn read_back(
        &self,
        rules: &[Handle],
        visit: &mut dyn FnMut(FlowId, InstalledRule),
    ) -> Result<(), Refusal> {
        let entries: Vec<_> = rules.iter().filter_map(|handle| self.books.find(*handle)).collect();
        let names: Vec<_> = entries.iter().flat_map(|entry| entry.guard_id().into_iter().chain([entry.id()])).collect();
        let mut found = Vec::new();
        let mut take = |view: &FilterView<'_>| {
            let label = RuleView::new(view).ok().and_then(|rule| Label::read(rule.cookies));
            if label.is_some_and(|label| self.owns(label.agent, &view.id)) || self.is_damaged(view) {
                found.push(Taken::apart(self, view.id, view.octets_of_options()));
            }
        };
        self.inspector.lock().read_all(&names, &mut take).map_err(socket_refusal)?;
        let (pairs, _) = Found::pairs(found);
        for found in pairs {
            self.show(&found, &mut |flow, rule| {
                if let Some(flow) = flow {
                    visit(flow, rule);
                }
            });
        }
        Ok(())
    }

    /// Whether a rule is one of ours by its name, and somebody has left some of the notes on it, but not all.
    fn is_damaged(&self, view: &FilterView<'_>) -> bool {
        let Ok(rule) = RuleView::new(view) else { return false };
        Label::read(rule.cookies).is_none()
            && Label::has_left_traces(self.agent, rule.cookies)
            && self.books.named(&rule.id).is_some()
    }

    /// Whether some of our notes are on a rule.
    pub(super) fn has_traces_of_ours(&self, found: &Filter) -> bool {
        let note = |at: usize| found.flower.actions.get(at)?.cookie.as_ref().map(Cookie::octets);
        let notes = [0, 1].map(|at| note(at).unwrap_or_default());
        Label::read(notes).is_some_and(|label| self.owns(label.agent, &found.id))
            || Label::has_left_traces(self.agent, notes)
    }

    /// Shows the rules of a flow, and the flow if the books know it.
    fn show(&self, found: &Found, visit: &mut dyn FnMut(Option<FlowId>, InstalledRule)) {
        let known = match self.books.named(&found.rule.id()) {
            Some((_, State::Vacant | State::Arriving | State::Leaving)) => return,
            known => known.map(|(entry, _)| entry),
        };
        let flow = known.as_ref().map(|entry| entry.record.flow);
        let handle = known.map_or_else(|| self.strays.lock().handle(found.rule.id()), |entry| entry.handle);
        match self.fit(found) {
            Fit::Bare if flow.is_some() => {}
            Fit::Odd => visit(flow, self.as_installed(found.guard.as_ref().unwrap_or(&found.rule), None, handle)),
            Fit::Whole | Fit::Bare => visit(flow, self.as_installed(&found.rule, found.guard.as_ref(), handle)),
            Fit::Spare => {
                visit(flow, self.as_installed(&found.rule, None, handle));
                self.show_alone(found.guard.as_ref(), &mut |rule| visit(None, rule));
            }
        }
    }

    /// Shows a guard that guards nothing, unless it is on its way.
    fn show_alone(&self, guard: Option<&Taken>, visit: &mut dyn FnMut(InstalledRule)) {
        if let Some(guard) = guard.filter(|guard| self.books.named(&guard.id()).is_none()) {
            visit(self.as_installed(guard, None, self.strays.lock().handle(guard.id())));
        }
    }

    /// How the rules of a flow fit each other. One that cannot be read back is nobody's flow anyway, and needs no guard.
    pub(super) fn fit(&self, found: &Found) -> Fit {
        let needed = found.rule.said.as_ref().and_then(|said| said.guard.as_deref());
        match (needed, &found.guard) {
            (None, None) => Fit::Whole,
            (None, Some(_)) => Fit::Spare,
            (Some(_), None) => Fit::Bare,
            (Some(needed), Some(guard)) => match self.read(&guard.filter) {
                Some((_, matching, actions)) if (&matching, &actions) == (&needed.0, &needed.1) => Fit::Whole,
                _ => Fit::Odd,
            },
        }
    }

    /// Whether this agent has written the rules of a flow, and would give them such notes today.
    pub(super) fn has_written(&self, rule: &Taken, guard: Option<&Taken>) -> bool {
        let is_ours = |label: Label| label.agent == self.agent && label.format == Format::CURRENT;
        std::iter::once(rule).chain(guard).all(|rule| label(&rule.filter).is_some_and(is_ours))
    }

    /// Reads a rule of ours back.
    pub(super) fn read(&self, filter: &Filter) -> Option<ReadBack> {
        let label = label(filter)?;
        let (matching, actions) = translate::flow(filter, &label, &**self.ports.load()).ok()?;
        Some((label, matching, actions))
    }

    /// Shows filters of others at the ports.
    pub(super) fn foreign(&self, visit: &mut dyn FnMut(String)) -> Result<(), Refusal> {
        let ports = self.ports.load();
        for hook in ports.hooks() {
            let mut found = Vec::new();
            // Other kinds of classifiers are in no terse listing.
            self.list(hook, Detail::Full, &mut |view| {
                let rule = RuleView::new(view).ok().filter(|_| view.is_flower());
                let mark = rule.as_ref().and_then(|rule| Mark::of_rule(rule.cookies));
                let is_ours = mark.is_some_and(|mark| self.owns(mark.agent, &view.id) && mark.format.is_known());
                // A filter of handle 0 is the mark that a priority exists.
                if !is_ours && view.id.handle != 0 {
                    found.push(words::foreign(view, ports.name_at(hook), mark));
                }
            })?;
            found.into_iter().for_each(&mut *visit);
        }
        Ok(())
    }

    /// Takes out a rule of ours that no flow has.
    pub(super) fn remove_stray(&self, handle: Handle) -> Result<(), Refusal> {
        let gone = || Refusal::Device { reason: "there is no such rule that is no flow's".into() };
        let id = self.strays.lock().get(handle).ok_or_else(gone)?;
        if self.books.named(&id).is_some() {
            return Err(Refusal::Device { reason: "the rule is a flow's".into() });
        }
        let guard = Place::of(&id).in_front().map(|place| FilterId { priority: place.priority, ..id });
        let guard = guard.filter(|guard| self.books.named(guard).is_none());
        let mut installer = self.installer.lock();
        let is_ours = |found: &Filter| label(found).is_some_and(|label| label.agent == self.agent);
        for id in [Some(id), guard].into_iter().flatten() {
            let found = installer.find(id).map_err(socket_refusal)?;
            if found.as_ref().is_some_and(is_ours)
                && let Some(Err(refusal)) = installer.submit(&[Request::Delete(id)]).pop()
                && !failure::is_absence(&refusal)
            {
                return Err(refusal);
            }
        }
        self.strays.lock().remove(&id);
        Ok(())
    }

    /// What hardware and software counted of a rule.
    pub(super) fn counted_apart(&self, handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        let Some(entry) = self.books.find(handle) else { return Ok(None) };
        let ids: Vec<_> = std::iter::once(entry.id()).chain(entry.guard_id()).collect();
        let requests: Vec<_> = ids.iter().copied().map(Request::Read).collect();
        let results = self.installer.lock().submit(&requests);
        let mut all = entry.record.carried();
        for (id, result) in ids.iter().zip(results) {
            let told = match result {
                Ok(done) => done.told,
                Err(refusal) if failure::is_absence(&refusal) => None,
                Err(refusal) => return Err(refusal),
            };
            let Some(told) = told else { return Ok(None) };
            all = all.plus(counted(&told, id));
        }
        let Counted { software, hardware } = all;
        let counters = |count: crate::wire::statistics::Count| Counters {
            packets: count.packets,
            bytes: count.bytes,
            ..Counters::default()
        };
        Ok(Some(CountedApart { hardware: counters(hardware), software: counters(software) }))
    }

    /// Takes out every rule of ours, wherever it is, until there is none.
    pub(super) fn flush(&self) -> Result<usize, Refusal> {
        self.mirrors.forget();
        let mut count = 0;
        for _ in 0..TRIES {
            let mut found = Vec::new();
            let mut ends = 0;
            for hook in self.hooks_everywhere()? {
                self.list(hook, Detail::Terse, &mut |view| {
                    let Ok(rule) = RuleView::new(view) else { return };
                    let is_end = owner_of_end(rule.cookies[0]) == Some(self.agent);
                    let label = Label::read(rule.cookies);
                    let is_rule = label.is_some_and(|label| self.owns(label.agent, &rule.id));
                    if is_end || is_rule || self.mirrors.is_ours(rule.cookies[0]) {
                        ends += usize::from(is_end);
                        found.push((rule.id, has_notes_of_guard(rule.cookies)));
                    }
                })?;
            }
            if found.is_empty() {
                return Ok(count);
            }
            // What they guard goes before them.
            found.sort_by_key(|(_, is_guard)| *is_guard);
            let found: Vec<_> = found.into_iter().map(|(id, _)| id).collect();
            let requests: Vec<_> = found.iter().copied().map(Request::Delete).collect();
            let results = self.installer.lock().submit(&requests);
            let done = results.iter().filter(|result| result.is_ok()).count();
            count += done.saturating_sub(ends);
            for (id, _) in found.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
                self.chains.forget_end(id);
                if let Some((entry, _)) = self.books.named(id) {
                    self.forget(entry.handle, entry.record.place);
                }
            }
            if let Some(Err(refusal)) = results.into_iter().find(Result::is_err)
                && !failure::is_absence(&refusal)
            {
                return Err(refusal);
            }
        }
        Err(Refusal::Busy { reason: "new rules came while they were taken out".into() })
    }

    /// Rules of ours with those names, in full.
    pub(super) fn own_rules(
        &self,
        hooks: &[Hook],
        is_wanted: &dyn Fn(&FilterId) -> bool,
    ) -> Result<Vec<Taken>, Refusal> {
        self.rules_of_agents(hooks, &|id, agent| agent == self.agent && is_wanted(id))
    }

    /// Rules of flows with those names, of those agents, in full.
    pub(super) fn rules_of_agents(
        &self,
        hooks: &[Hook],
        is_wanted: &dyn Fn(&FilterId, AgentId) -> bool,
    ) -> Result<Vec<Taken>, Refusal> {
        std::thread::scope(|scope| {
            let mut collector = Collector::new(scope, self);
            for hook in hooks {
                self.list(*hook, Detail::Full, &mut |view| {
                    let label = RuleView::new(view).ok().and_then(|rule| Label::read(rule.cookies));
                    let agent = label.map(|label| label.agent).or_else(|| self.is_damaged(view).then_some(self.agent));
                    if agent.is_some_and(|agent| is_wanted(&view.id, agent)) {
                        collector.take(view);
                    }
                })?;
            }
            Ok(collector.finish())
        })
    }

    /// Lists a hook, again if it changed meanwhile; then filters may be shown twice.
    pub(super) fn list(&self, hook: Hook, detail: Detail, see: &mut dyn FnMut(&FilterView<'_>)) -> Result<(), Refusal> {
        let mut lister = Lister::open().map_err(socket_refusal)?;
        for _ in 0..TRIES {
            let listed = lister.list_any(hook, None, detail, &mut |view| {
                see(view);
                Ok(())
            });
            match listed {
                Ok(Listing::Whole) => return Ok(()),
                Ok(Listing::Interrupted) => {}
                Err(error) if is_absence(&error) => return Ok(()),
                Err(error) => return Err(socket_refusal(error)),
            }
        }
        Err(device_refusal("the rules changed each time that they were listed"))
    }

    fn as_installed(&self, rule: &Taken, guard: Option<&Taken>, handle: Handle) -> InstalledRule {
        let placement = placement_with(rule, guard);
        let ufid = label(&rule.filter).and_then(|label| label.ufid);
        // One that does what no flow does shows as one that does nothing, under its name.
        let unknown = || {
            let matching = Match::default();
            let none = [].into();
            let key = MaskedKey::new(&matching);
            Flow::new(ufid, key, none, sluice_flow::priority::Priority::default(), Expiry::default(), &SEED)
        };
        let flow = rule.said.as_ref().map_or_else(unknown, |said| said.flow.clone());
        let rules = 1 + usize::from(guard.is_some());
        let is_current = self.is_current(rule, guard);
        InstalledRule { handle, flow, is_named: ufid.is_some(), rules, placement, is_current }
    }

    /// Whether a rule would be put in like this now: by the form of its notes, the policy, and flags of outer headers that it leaves
    /// out.
    pub(super) fn is_current(&self, rule: &Taken, guard: Option<&Taken>) -> bool {
        const FOR_WHOM: u32 = flag::SKIP_HW | flag::SKIP_SW;
        let is_for_same = |rule: &Taken| (rule.filter.flower.flags ^ install::flags(self.policy)) & FOR_WHOM == 0;
        // Where hardware has not taken the guard, the rule is kept in software.
        let follows_guard = |guard: &Taken| {
            let is_in_software = rule.filter.flower.flags & FOR_WHOM == flag::SKIP_HW;
            is_for_same(guard) && self.policy == OffloadPolicy::Any && is_in_software
        };
        let is_for_same = guard.is_none_or(is_for_same) && is_for_same(rule) || guard.is_some_and(follows_guard);
        self.has_written(rule, guard) && is_for_same && self.leaves_out_the_same(rule)
    }

    /// Whether a rule leaves out of its flow what it would leave out now.
    fn leaves_out_the_same(&self, rule: &Taken) -> bool {
        let Some((label, said)) = label(&rule.filter).zip(rule.said.as_ref()) else { return true };
        if !label.spelling.leaves_out() {
            return true;
        }
        let now = translate::rules(&said.flow, self.agent, &**self.ports.load());
        now.ok().and_then(|now| label_of(&now.rule.flower)).is_some_and(|now| now.spelling == label.spelling)
    }
}

/// Where the rules of a flow are.
pub(super) fn placement_with(rule: &Taken, guard: Option<&Taken>) -> Placement {
    let of = |rule: &Taken| placement_of(rule.filter.flower.flags);
    guard.map_or(of(rule), |guard| of_both(of(guard), of(rule)))
}

pub(super) fn has_notes_of_guard(cookies: [&[u8]; 2]) -> bool {
    Label::read(cookies).is_some_and(|label| label.spelling.has(Spelling::GUARD))
}

/// UFIDs are those of the notes. What is made of a match with this is nobody's, and stands where there is none.
const SEED: Seed = Seed([0; 16]);

pub(super) fn flow_of(label: &Label, matching: &Match, actions: ActionList) -> Flow {
    Flow::new(label.ufid, MaskedKey::new(matching), actions, label.priority, Expiry::default(), &SEED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marks::Format;
    use crate::rule::Room;
    use crate::wire::action::{Action, Control, Operation};
    use crate::wire::flower::Flower;

    #[test]
    fn a_guard_belongs_to_the_rule_of_its_number_behind_it_and_else_to_none() {
        let filter = |priority, handle, spelling| {
            let mut actions = vec![Action::new(Operation::Generic, Control::Shot)];
            let (ufid, priority_of_flow, digest) = Default::default();
            let (agent, format) = (AgentId(1), Format::CURRENT);
            let label = Label { ufid, agent, format, priority: priority_of_flow, spelling, digest };
            label.put(&mut actions, Room::Found);
            let id = FilterId { hook: Hook::Ingress { interface: 3 }, chain: 0, priority, protocol: 0x0800, handle };
            let filter = Filter { id, flower: Flower { actions, ..Flower::default() } };
            Taken { filter, said: None }
        };
        let (rule, guard) =
            (|handle| filter(61_004, handle, Spelling::default()), |handle| filter(61_000, handle, Spelling::GUARD));
        let (pairs, alone) = Found::pairs(vec![guard(7), guard(8), rule(7), rule(9)]);
        let numbers =
            pairs.iter().map(|found| (found.rule.id().handle, found.guard.as_ref().map(|guard| guard.id().handle)));
        assert_eq!(numbers.collect::<Vec<_>>(), [(7, Some(7)), (9, None)]);
        assert_eq!(alone.iter().map(|guard| guard.id().handle).collect::<Vec<_>>(), [8]);
        // What is in front by its priority alone is a flow's own rule.
        let (pairs, alone) = Found::pairs(vec![filter(61_000, 7, Spelling::default()), rule(7)]);
        assert_eq!((pairs.len(), pairs.iter().all(|found| found.guard.is_none()), alone.len()), (2, true, 0));
    }
}
