//! The install path of one worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use sluice_flow::backend::{
    ChainChange, ChainCompletion, ChainOperation, Change, Completion, Facet, Handle, InstallQueue, Operation, Outcome,
    Placement,
};
use sluice_flow::chain::ChainId;
use sluice_flow::counters::Counters;
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;

use super::books::{Counted, Entry, Place, Record, State, Turn, filter_id};
use super::core::{Core, socket_refusal};
use super::departures::Later;
use super::exclusive::is_same_match;
use super::pairs::Pair;
use super::ports::PortTable;
use super::{chains, failure, removal};
use crate::config::OffloadPolicy;
use crate::install::{Done, Installer, Request, Told};
use crate::priorities::Priorities;
use crate::rule::Label;
use crate::templates::{Sought, Template, Templates};
use crate::translate::Rules;
use crate::wire::action::{Cookie, MAX_ACTIONS};
use crate::wire::filter::{Filter, FilterId, Hook};
use crate::wire::flower::{Flower, flag};

/// Names of rules in the kernel that are tried, if others have them.
pub(super) const NAMES_TRIED: usize = 8;
/// Looks at a rule that is to be taken out, between which others take it from one state to the next: there are no more states.
const LOOKS: usize = 4;

pub(super) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// The install path of one worker, with a socket of its own.
pub(super) struct Queue {
    pub(super) core: Arc<Core>,
    /// Keeps workers out of each other's way in the books.
    pub(super) turn: Turn,
    pub(super) installer: Installer,
    /// The number of the socket as the core knows it.
    socket: u32,
    /// Of rules as the ports let them be.
    templates: Templates,
    templates_of: Arc<PortTable>,
    steps: Vec<(Change, Step)>,
    requests: Vec<Request>,
    /// What is to be done for flows of two rules.
    pub(super) pairs: Vec<(Change, Pair)>,
    /// Changes that others bring to an end.
    later: Arc<Later>,
}

/// What a flow comes to in the kernel.
pub(super) struct Wanted {
    pub(super) place: Place,
    pub(super) flower: Flower,
    /// What goes in front.
    pub(super) guard: Option<Flower>,
}

/// What a change comes down to.
enum Step {
    /// It is done already, or cannot be.
    Over(Result<Outcome>),
    /// One request: a rule is put in.
    Install(Handle, Place),
    /// One: another rule is put in its place, which goes on counting.
    Replace(Entry),
    /// Two: what the rule counted is read, and another one put in its place, which begins anew.
    ReadAndReplace(Entry),
    /// One: the rule is taken out.
    Remove(Entry),
}

/// What a change comes down to, by the number of rules that it is about.
enum Plan {
    One(Step),
    Two(Pair),
    /// Somebody else is taking the rule out, and completes the change.
    Later,
}

impl From<Step> for Plan {
    fn from(step: Step) -> Self {
        Self::One(step)
    }
}

impl Queue {
    pub(super) fn open(core: Arc<Core>) -> Result<Self> {
        let turn = Turn::new(core.queues.fetch_add(1, Ordering::Relaxed));
        let installer = Installer::open(core.policy).map_err(socket_refusal)?;
        let socket = installer.port();
        core.add_socket(None, socket)?;
        let (templates, templates_of) = (Templates::new(), core.ports.load_full());
        let (steps, requests, pairs) = Default::default();
        let later = Arc::default();
        Ok(Self { core, turn, installer, socket, templates, templates_of, steps, requests, pairs, later })
    }

    fn plan(&mut self, change: &Change, ports: &PortTable) -> Plan {
        let planned = match &change.operation {
            Operation::Install(flow) => self.plan_install(change, flow, ports),
            Operation::Modify(handle, flow) => self.plan_modify(*handle, flow, ports),
            Operation::Move(..) => Err(Refusal::Unsupported { facet: Facet::Capacity }),
            Operation::Remove(handle) => return self.plan_remove(change, *handle),
        };
        planned.unwrap_or_else(|refusal| Step::Over(Err(refusal)).into())
    }

    fn plan_install(&mut self, change: &Change, flow: &Flow, ports: &PortTable) -> Result<Plan> {
        let arrive = |queue: &mut Self, place| {
            queue.core.books.arrive(&mut queue.turn, Record::new(change.flow, change.generation, place))
        };
        let sought = self.templates.seek(flow, ports);
        if let Sought::Known(template) = sought {
            let place = self.place_of(&template, ports)?;
            let handle = arrive(self, place);
            let rule = template.instance(flow.clone(), filter_id(place, handle));
            self.requests.push(Request::AddInstance(rule));
            return Ok(Step::Install(handle, place).into());
        }
        let wanted = self.translate(flow, ports)?;
        let place = wanted.place;
        let handle = arrive(self, place);
        if wanted.guard.is_some() {
            return Ok(Plan::Two(Pair::Install(handle, wanted.into())));
        }
        let filter = wanted.rule(handle);
        if let Sought::Wanted(vacancy) = sought {
            self.templates.learn(vacancy, flow, &filter, ports);
        }
        self.requests.push(Request::Add(filter));
        Ok(Step::Install(handle, place).into())
    }

    /// The place of one more rule of a template, after the chains that it jumps to have their ends.
    fn place_of(&mut self, template: &Template, ports: &PortTable) -> Result<Place> {
        let Template { hook, chain, priority, protocol, .. } = *template;
        self.make_ends(hook, &template.jumps, ports)?;
        let priority = self.core.acquire_priority(priority, protocol)?;
        Ok(Place { hook, chain, priority, protocol })
    }

    fn plan_modify(&mut self, handle: Handle, flow: &Flow, ports: &PortTable) -> Result<Plan> {
        let gone = || Refusal::Device { reason: "the rule is gone".into() };
        let known = self.core.books.find(handle).ok_or_else(gone)?;
        let wanted = self.translate(flow, ports)?;
        let place = wanted.place;
        let released = |refusal| {
            self.core.release_priority(place.protocol);
            refusal
        };
        let entry = self.core.books.turn(handle, &[State::Installed], State::Changing).ok_or_else(gone);
        let entry = entry.map_err(released)?;
        if place != known.record.place {
            return Ok(Step::Over(self.relocate(&entry, wanted, ports)).into());
        }
        // The old rule holds the priority already.
        self.core.release_priority(place.protocol);
        if wanted.guard.is_some() || entry.guard_id().is_some() {
            return Ok(Step::Over(self.modify_pair(&entry, wanted, flow, ports)).into());
        }
        let there = self.look_for_pass(filter_id(place, handle));
        if there.as_ref().is_some_and(|there| !is_same_match(there, &wanted.flower, ports)) {
            return Ok(Step::Over(self.put_in_again(&entry, wanted, ports)).into());
        }
        let mut filter = wanted.rule(handle);
        let pass = there.and_then(|there| pass_in(&there, flow));
        let pass = pass.filter(|_| filter.flower.actions.len() < MAX_ACTIONS);
        let step = match pass {
            Some(pass) => {
                Label::go_on_counting(&mut filter.flower.actions, pass);
                self.requests.push(Request::Replace(filter));
                Step::Replace(entry)
            }
            None => {
                self.requests.push(Request::Read(filter.id));
                self.requests.push(Request::Replace(filter));
                Step::ReadAndReplace(entry)
            }
        };
        Ok(step.into())
    }

    /// The rule of a name, where rules may have a pass in front.
    fn look_for_pass(&mut self, id: FilterId) -> Option<Filter> {
        if self.core.policy != OffloadPolicy::SkipHardware {
            return None;
        }
        self.installer.find(id).ok()?
    }

    fn plan_remove(&mut self, change: &Change, handle: Handle) -> Plan {
        let gone = |last| Step::Over(Ok(Outcome::Removed { last })).into();
        for _ in 0..LOOKS {
            if let Some(entry) = self.core.books.turn(handle, &[State::Installed], State::Leaving) {
                if entry.guard_id().is_some() {
                    return Plan::Two(Pair::Remove(entry));
                }
                self.requests.push(Request::Delete(entry.id()));
                return Step::Remove(entry).into();
            }
            if let Some(entry) = self.core.books.turn(handle, &[State::Parked], State::Leaving) {
                self.core.forget(handle, entry.record.place);
                return gone(Some(total(entry.record.carried())));
            }
            if self.core.books.find(handle).is_none() {
                // Lost, flushed, or removed before: it is gone, and so are its counters.
                return gone(None);
            }
            if self.core.completes_later(handle, change, &self.later) {
                return Plan::Later;
            }
        }
        Step::Over(Err(Refusal::Busy { reason: "the rule is being changed".into() })).into()
    }

    /// The rules of a flow, after the chains that it jumps to have their ends.
    fn translate(&mut self, flow: &Flow, ports: &PortTable) -> Result<Wanted> {
        let Rules { rule, guard } = self.core.rules_of(flow, ports)?;
        self.make_ends(rule.hook, &flow.jumps(), ports)?;
        if let Some(guard) = &guard {
            // Whether there is a place for it; which one follows from the rule's.
            Priorities::acquire_in_front(guard.priority, guard.protocol)?;
        }
        let guard = guard.map(|guard| guard.flower);
        let priority = self.core.acquire_priority(rule.priority, rule.protocol)?;
        let place = Place { hook: rule.hook, chain: rule.chain, priority, protocol: rule.protocol };
        Ok(Wanted { place, flower: rule.flower, guard })
    }

    /// Has chains at a hook end in something for every packet.
    fn make_ends(&mut self, hook: Hook, chains: &[ChainId], ports: &PortTable) -> Result<()> {
        for chain in chains.iter().copied() {
            if !self.core.chains.has_end(hook, chain)? {
                let end = chains::end(hook, chain, self.core.agent, self.core.policy);
                match self.one(Request::Add(end)) {
                    // Another worker may have been quicker.
                    Err(refusal) if !failure::is_duplicate(&refusal) => {
                        return Err(failure::refine(refusal, hook, ports));
                    }
                    _ => self.core.chains.add_end(hook, chain),
                }
            }
        }
        Ok(())
    }

    /// Has the kernel do one thing.
    pub(super) fn one(&mut self, request: Request) -> Result<Done> {
        let none = || Err(Refusal::Device { reason: "no answer".into() });
        self.installer.submit(&[request]).pop().unwrap_or_else(none)
    }

    /// Puts the rules in at a place where they were not before, and takes the old ones out then.
    fn relocate(&mut self, entry: &Entry, wanted: Wanted, ports: &PortTable) -> Result<Outcome> {
        let (place, guard) = (wanted.place, wanted.guard.is_some().then(Counted::default));
        match self.put_in(entry.handle, wanted) {
            Ok(placement) => {
                let old = removal::take_out(&mut self.installer, &[entry]).pop();
                let carried = old.and_then(Result::ok).flatten().unwrap_or(entry.record.carried());
                self.core.release_priority(entry.record.place.protocol);
                self.core.books.settle(entry.handle, place, carried, guard);
                Ok(Outcome::InPlace { handle: entry.handle, placement })
            }
            Err(refusal) => {
                self.core.release_priority(place.protocol);
                self.settle_as_before(entry);
                Err(failure::refine(refusal, place.hook, ports))
            }
        }
    }

    /// A rule is as it was before it was to be changed or taken out.
    pub(super) fn settle_as_before(&self, entry: &Entry) {
        let record = &entry.record;
        self.core.books.settle(entry.handle, record.place, record.carried(), record.guard());
    }

    fn finish(
        &mut self,
        step: Step,
        results: &mut impl Iterator<Item = (Request, Result<Done>)>,
        ports: &PortTable,
    ) -> Result<Outcome> {
        let no_answer = || Err(Refusal::Device { reason: "no answer".into() });
        let mut next = || results.next().map_or_else(no_answer, |(_, result)| result);
        match step {
            Step::Over(result) => result,
            Step::Install(handle, place) => {
                let (request, result) = results.next().unzip();
                self.finish_install(handle, place, request, result.unwrap_or_else(no_answer), ports)
            }
            Step::Replace(entry) => {
                let replaced = next();
                self.finish_replace(&entry, None, replaced, ports)
            }
            Step::ReadAndReplace(entry) => {
                let (read, replaced) = (next(), next());
                let told = read.ok().and_then(|done| done.told);
                self.finish_replace(&entry, told.as_ref(), replaced, ports)
            }
            Step::Remove(entry) => {
                let result = next();
                self.finish_remove(&entry, result, ports)
            }
        }
    }

    fn finish_install(
        &mut self,
        mut handle: Handle,
        place: Place,
        request: Option<Request>,
        mut result: Result<Done>,
        ports: &PortTable,
    ) -> Result<Outcome> {
        if let Ok(done) = &result {
            return Ok(self.installed(handle, place, done));
        }
        let Some(mut filter) = request.and_then(Request::into_rule) else {
            self.core.forget(handle, place);
            return Err(Refusal::Device { reason: "no answer".into() });
        };
        for _ in 0..NAMES_TRIED {
            match self.resolve(&filter, result) {
                Ok(Some(done)) => return Ok(self.installed(handle, place, &done)),
                Ok(None) => {}
                Err(refusal) => {
                    self.core.forget(handle, place);
                    return Err(failure::refine(refusal, place.hook, ports));
                }
            }
            handle = self.core.books.rename(&mut self.turn, handle).unwrap_or(handle);
            filter.id = filter_id(place, handle);
            result = self.one(Request::Add(filter.clone()));
        }
        self.core.forget(handle, place);
        Err(failure::duplicate())
    }

    /// A rule is there now that was not before.
    fn installed(&self, handle: Handle, place: Place, done: &Done) -> Outcome {
        self.core.books.settle(handle, place, Counted::default(), None);
        Outcome::InPlace { handle, placement: placement(self.core.policy, done.told.as_ref()) }
    }

    fn finish_replace(
        &mut self,
        entry: &Entry,
        told: Option<&Told>,
        replaced: Result<Done>,
        ports: &PortTable,
    ) -> Result<Outcome> {
        let (place, before) = (entry.record.place, entry.record.carried());
        match replaced {
            Ok(done) => {
                let by_it = told.map(|told| counted(told, &entry.id())).unwrap_or_default();
                self.core.books.settle(entry.handle, place, before.plus(by_it), None);
                let placement = placement(self.core.policy, done.told.as_ref());
                Ok(Outcome::InPlace { handle: entry.handle, placement })
            }
            Err(refusal) => {
                self.settle_as_before(entry);
                Err(failure::refine(refusal, place.hook, ports))
            }
        }
    }

    fn finish_remove(&mut self, entry: &Entry, result: Result<Done>, ports: &PortTable) -> Result<Outcome> {
        let last = match removal::deleted(&mut self.installer, entry.id(), result) {
            Ok(by_it) => by_it.map(|by_it| total(entry.record.carried().plus(by_it))),
            Err(refusal) => {
                self.settle_as_before(entry);
                return Err(failure::refine(refusal, entry.record.place.hook, ports));
            }
        };
        self.core.forget(entry.handle, entry.record.place);
        Ok(Outcome::Removed { last })
    }
}

impl InstallQueue for Queue {
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        let ports = self.core.ports.load_full();
        if !Arc::ptr_eq(&ports, &self.templates_of) {
            self.templates.clear();
            self.templates_of = Arc::clone(&ports);
        }
        let mut steps = std::mem::take(&mut self.steps);
        for change in batch.drain(..) {
            match self.plan(&change, &ports) {
                Plan::One(step) => steps.push((change, step)),
                Plan::Two(pair) => self.pairs.push((change, pair)),
                Plan::Later => {}
            }
        }
        let mut requests = std::mem::take(&mut self.requests);
        let results = self.installer.submit(&requests);
        let mut results = requests.drain(..).zip(results);
        for (change, step) in steps.drain(..) {
            let result = self.finish(step, &mut results, &ports);
            done.push(Completion { flow: change.flow, generation: change.generation, result });
        }
        drop(results);
        (self.steps, self.requests) = (steps, requests);
        self.finish_pairs(&ports, done);
        let socket = self.installer.port();
        if socket != self.socket {
            // Until then, what this worker removes is looked at by the watch, and found to be none of its concern.
            let _ = self.core.add_socket(Some(self.socket), socket);
            self.socket = socket;
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.later.take(done);
    }

    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>) {
        match change.operation {
            // It gets its end where the first rule jumps to it.
            ChainOperation::Open => self.core.chains.open(change.chain),
            ChainOperation::Close => {
                let ends: Vec<_> = self.core.chains.close(change.chain).into_iter().map(Request::Delete).collect();
                if !ends.is_empty() {
                    // One that does not go takes what missed anyway, and goes with the next start at the latest.
                    self.installer.submit(&ends);
                }
            }
        }
        done.push(ChainCompletion { change, result: Ok(()) });
    }

    fn poll_chains(&mut self, _: &mut Vec<ChainCompletion>) {}

    fn set_waker(&mut self, waker: Waker) {
        self.later.wake_with(waker);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.core.remove_socket(self.socket);
    }
}

impl Wanted {
    /// The rule under its name.
    pub(super) fn rule(self, handle: Handle) -> Filter {
        Filter { id: filter_id(self.place, handle), flower: self.flower }
    }
}

/// The number of the pass in front of what is a flow's rule, if it is and has one.
pub(super) fn pass_in(there: &Filter, flow: &Flow) -> Option<u32> {
    label(there).filter(|label| label.ufid == Some(flow.ufid))?.pass_of(&there.flower.actions)
}

/// The notes on a rule.
pub(super) fn label(filter: &Filter) -> Option<Label> {
    label_of(&filter.flower)
}

/// The same of one that has no name yet.
pub(super) fn label_of(flower: &Flower) -> Option<Label> {
    let note = |at: usize| flower.actions.get(at)?.cookie.as_ref().map(Cookie::octets);
    Label::read([0, 1].map(|at| note(at).unwrap_or_default()))
}

/// Where the kernel says that a rule is; where it was not asked, it has said so by taking a rule that only one may have.
pub(super) fn placement(policy: OffloadPolicy, told: Option<&Told>) -> Placement {
    match (told, policy) {
        (Some(told), _) => placement_of(told.flags),
        (None, OffloadPolicy::SkipSoftware) => Placement::Hardware,
        (None, OffloadPolicy::SkipHardware) => Placement::Software,
        (None, OffloadPolicy::Any) => Placement::Unknown,
    }
}

/// The same by the flags of the rule.
pub(super) const fn placement_of(flags: u32) -> Placement {
    match (flags & flag::IN_HW != 0, flags & flag::NOT_IN_HW != 0, flags & flag::SKIP_SW != 0) {
        (true, _, true) => Placement::Hardware,
        (true, _, false) => Placement::Both,
        (false, true, false) => Placement::Software,
        (false, ..) => Placement::Unknown,
    }
}

/// What a rule counted.
pub(super) fn counted(told: &Told, id: &FilterId) -> Counted {
    Counted { software: told.software.with_headers(id), hardware: told.hardware }
}

/// All that was counted, by whomever.
pub(super) fn total(counted: Counted) -> Counters {
    let all = counted.software.plus(counted.hardware);
    Counters { packets: all.packets, bytes: all.bytes, ..Counters::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::filter::Hook;
    use crate::wire::statistics::Count;

    #[test]
    fn a_rule_is_where_the_kernel_says_and_not_where_it_was_wished() {
        let told = |flags| Told { flags, software: Count::default(), hardware: Count::default() };
        let at = |flags| placement(OffloadPolicy::Any, Some(&told(flags)));
        assert_eq!(at(flag::IN_HW), Placement::Both);
        assert_eq!(at(flag::IN_HW | flag::SKIP_SW), Placement::Hardware);
        assert_eq!(at(flag::NOT_IN_HW | flag::SKIP_HW), Placement::Software);
        assert_eq!(at(flag::NOT_IN_HW | flag::SKIP_SW), Placement::Unknown, "nobody has it");
        assert_eq!(at(0), Placement::Unknown);
        assert_eq!(placement(OffloadPolicy::SkipSoftware, Some(&told(flag::NOT_IN_HW))), Placement::Software);
    }

    #[test]
    fn counters_go_on_from_what_was_carried_over() {
        let hook = Hook::Ingress { interface: 3 };
        let id = FilterId { hook, chain: 0, priority: 1000, protocol: 0x0800, handle: 1 };
        let count = |packets, bytes| Count { packets, bytes };
        let told = Told { flags: 0, software: count(2, 100), hardware: count(3, 300) };
        let once = counted(&told, &id);
        assert_eq!(once, Counted { software: count(2, 128), hardware: count(3, 300) });
        let twice = once.plus(counted(&told, &id));
        assert_eq!((total(twice).packets, total(twice).bytes), (10, 856));
    }
}
