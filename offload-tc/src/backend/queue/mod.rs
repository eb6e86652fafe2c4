//! The install queue of one worker.

mod pairs;
mod wanted;
mod writer;

use std::sync::Arc;
use std::task::Waker;

use crate::config::OffloadPolicy;
use sluice_flow::backend::{
    ChainChange, ChainCompletion, ChainOperation, Change, Completion, Facet, Handle, InstallQueue, Operation, Outcome,
};
use sluice_flow::chain::ChainId;
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;

use self::pairs::Pair;
use self::wanted::Wanted;
use self::writer::{NAMES_TRIED, Writer, is_same_match};
use super::core::Core;
use super::counted::Counted;
use super::failure::{self, Result};
use super::ledger::chains::{self, EndKind};
use super::ledger::record::{Entry, Place, Record, State, filter_id};
use super::ledger::removals::LateCompletions;
use super::placement;
use super::ports::table::PortTable;
use super::removal;
use crate::install::{Done, Report, Request};
use crate::label::Label;
use crate::priorities::Priorities;
use crate::templates::{Lookup, Template, Templates};
use crate::translate::Rules;
use crate::wire::action::MAX_ACTIONS;
use crate::wire::filter::{Filter, FilterId, Hook};

/// How often a rule that is to be removed is looked at. Others may change its state in between; there are no more states.
const LOOKS: usize = 4;

/// The install queue of one worker, with its own socket.
pub(super) struct Queue {
    writer: Writer,
    /// The netlink port id that was last registered.
    socket: u32,
    /// Templates for the ports of `templates_of`.
    templates: Templates,
    templates_of: Arc<PortTable>,
    steps: Vec<(Change, Step)>,
    requests: Vec<Request>,
    /// Changes of flows with two rules.
    pairs: Vec<(Change, Pair)>,
    /// Removals that another thread completes.
    later: Arc<LateCompletions>,
}

/// What a change needs.
enum Step {
    /// Nothing: it is done, or cannot be done.
    Over(Result<Outcome>),
    /// One request: install a rule.
    Install(Handle, Place),
    /// One request: replace the rule by one that goes on counting.
    Replace(Entry),
    /// Two requests: read the rule's counters, and replace it by one that counts from zero.
    ReadAndReplace(Entry),
    /// One request: delete the rule.
    Remove(Entry),
}

/// What a change needs, by the number of its rules.
enum Plan {
    One(Step),
    Two(Pair),
    /// Somebody else is deleting the rule, and completes the change.
    Later,
}

impl From<Step> for Plan {
    fn from(step: Step) -> Self {
        Self::One(step)
    }
}

impl Queue {
    pub(super) fn open(core: Arc<Core>) -> Result<Self> {
        let writer = Writer::open(core)?;
        let core = &writer.core;
        let socket = writer.installer.port();
        core.sockets.add(None, socket)?;
        let (templates, templates_of) = (Templates::new(), core.ports.load_full());
        let (steps, requests, pairs) = Default::default();
        let later = Arc::default();
        Ok(Self { writer, socket, templates, templates_of, steps, requests, pairs, later })
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
            queue
                .writer
                .core
                .ledger
                .insert(&mut queue.writer.cursor, Record::new(change.flow, change.generation, place))
        };
        let found = self.templates.look_up(flow, ports);
        if let Lookup::Hit(template) = found {
            let place = self.place_of(&template, flow, ports)?;
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
        if let Lookup::Learn(vacancy) = found {
            self.templates.learn(vacancy, flow, &filter, ports);
        }
        self.requests.push(Request::Add(filter));
        Ok(Step::Install(handle, place).into())
    }

    /// The place for one more rule of a template. Makes sure that the chains it jumps to have their ends.
    fn place_of(&mut self, template: &Template, flow: &Flow, ports: &PortTable) -> Result<Place> {
        let Template { hook, chain, priority, protocol, .. } = *template;
        self.make_ends(hook, &template.jumps, EndKind::of(flow), ports)?;
        let priority = self.writer.core.ledger.acquire_priority(priority, protocol)?;
        Ok(Place { hook, chain, priority, protocol })
    }

    fn plan_modify(&mut self, handle: Handle, flow: &Flow, ports: &PortTable) -> Result<Plan> {
        let gone = || Refusal::Device { reason: "the rule is gone".into() };
        let known = self.writer.core.ledger.find(handle).ok_or_else(gone)?;
        let wanted = self.translate(flow, ports)?;
        let place = wanted.place;
        let released = |refusal| {
            self.writer.core.ledger.release_priority(place.protocol);
            refusal
        };
        if let Some(entry) = self.writer.core.ledger.transition(handle, &[State::Parked], State::Changing) {
            return Ok(Step::Over(self.bring_back(&entry, wanted, ports)).into());
        }
        let entry = self.writer.core.ledger.transition(handle, &[State::Installed], State::Changing).ok_or_else(gone);
        let entry = entry.map_err(released)?;
        if place != known.record.place {
            return Ok(Step::Over(self.relocate(&entry, wanted, ports)).into());
        }
        // The old rule holds the priority already.
        self.writer.core.ledger.release_priority(place.protocol);
        if wanted.guard.is_some() || entry.guard_id().is_some() {
            return Ok(Step::Over(self.writer.modify_pair(&entry, wanted, flow, ports)).into());
        }
        let there = self.look_for_pass(filter_id(place, handle));
        if there.as_ref().is_some_and(|there| !is_same_match(there, &wanted.flower, ports)) {
            return Ok(Step::Over(self.writer.put_in_again(&entry, wanted, ports)).into());
        }
        let mut filter = wanted.rule(handle);
        let pass = there.and_then(|there| Label::pass_in(&there.flower, flow.ufid));
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

    /// The installed rule with a name, where rules may have a pass in front.
    fn look_for_pass(&mut self, id: FilterId) -> Option<Filter> {
        if self.writer.core.policy != OffloadPolicy::SkipHardware {
            return None;
        }
        self.writer.installer.find(id).ok()?
    }

    fn plan_remove(&mut self, change: &Change, handle: Handle) -> Plan {
        let gone = |last| Step::Over(Ok(Outcome::Removed { last })).into();
        for _ in 0..LOOKS {
            if let Some(entry) = self.writer.core.ledger.transition(handle, &[State::Installed], State::Leaving) {
                if entry.guard_id().is_some() {
                    return Plan::Two(Pair::Remove(entry));
                }
                self.requests.push(Request::Delete(entry.id()));
                return Step::Remove(entry).into();
            }
            if let Some(entry) = self.writer.core.ledger.transition(handle, &[State::Parked], State::Leaving) {
                self.writer.core.ledger.forget(handle, entry.record.place);
                return gone(Some(entry.record.carried().total()));
            }
            if self.writer.core.ledger.find(handle).is_none() {
                // Lost, flushed or removed before: the rule is gone, and so are its counters.
                return gone(None);
            }
            if self.writer.core.ledger.defer_removal(handle, change, &self.later) {
                return Plan::Later;
            }
        }
        Step::Over(Err(Refusal::Busy { reason: "the rule is being changed".into() })).into()
    }

    /// The rules of a flow. Makes sure that the chains they jump to have their ends.
    fn translate(&mut self, flow: &Flow, ports: &PortTable) -> Result<Wanted> {
        let Rules { rule, guard } = self.writer.core.rules_of(flow, ports)?;
        self.make_ends(rule.hook, &flow.jumps(), EndKind::of(flow), ports)?;
        if let Some(guard) = &guard {
            // Whether the guard has a place; its priority follows from the rule's.
            Priorities::acquire_in_front(guard.priority, guard.protocol)?;
        }
        let guard = guard.map(|guard| guard.flower);
        let priority = self.writer.core.ledger.acquire_priority(rule.priority, rule.protocol)?;
        let place = Place { hook: rule.hook, chain: rule.chain, priority, protocol: rule.protocol };
        Ok(Wanted { place, flower: rule.flower, guard })
    }

    /// Makes sure that chains have their ends at a hook, of a kind.
    fn make_ends(&mut self, hook: Hook, chains: &[ChainId], kind: EndKind, ports: &PortTable) -> Result<()> {
        for chain in chains.iter().copied() {
            if !self.writer.core.ledger.chains.has_end(hook, chain, kind)? {
                let end = chains::end(hook, chain, kind, self.writer.core.agent, self.writer.core.policy);
                let request = match kind {
                    EndKind::Plain => Request::Add(end),
                    EndKind::Forgets | EndKind::GoesOn => Request::Replace(end),
                };
                let ledger = &self.writer.core.ledger;
                match self.writer.installer.submit_one(request) {
                    Ok(_) => ledger.chains.add_end(hook, chain, kind, ledger.dumps.last()),
                    // Another worker may have been quicker, or an end was forgotten that is still there.
                    Err(refusal) if failure::is_duplicate(&refusal) => ledger.chains.adopt_end(hook, chain),
                    Err(refusal) => return Err(failure::refine(refusal, hook, ports)),
                }
            }
        }
        Ok(())
    }

    /// Installs rules at another place, and deletes the old ones afterwards.
    fn relocate(&mut self, entry: &Entry, wanted: Wanted, ports: &PortTable) -> Result<Outcome> {
        let (place, guard) = (wanted.place, wanted.guard.is_some().then(Counted::default));
        match self.writer.put_in(entry.handle, wanted) {
            Ok(placement) => {
                let old = removal::take_out(&mut self.writer.installer, &[entry]).pop();
                let carried = old.and_then(Result::ok).flatten().unwrap_or(entry.record.carried());
                self.writer.core.ledger.release_priority(entry.record.place.protocol);
                self.writer.core.ledger.settle(entry.handle, place, carried, guard);
                Ok(Outcome::InPlace { handle: entry.handle, placement })
            }
            Err(refusal) => {
                self.writer.core.ledger.release_priority(place.protocol);
                self.writer.core.ledger.settle_as_before(entry);
                Err(failure::refine(refusal, place.hook, ports))
            }
        }
    }

    /// Installs the rules of a flow whose rules were deleted with their port, which has another device now.
    fn bring_back(&mut self, entry: &Entry, wanted: Wanted, ports: &PortTable) -> Result<Outcome> {
        let (place, guard) = (wanted.place, wanted.guard.is_some().then(Counted::default));
        let core = Arc::clone(&self.writer.core);
        let ledger = &core.ledger;
        match self.writer.put_in(entry.handle, wanted) {
            Ok(placement) => {
                ledger.release_priority(entry.record.place.protocol);
                ledger.settle(entry.handle, place, entry.record.carried(), guard);
                Ok(Outcome::InPlace { handle: entry.handle, placement })
            }
            Err(refusal) => {
                ledger.release_priority(place.protocol);
                ledger.park(entry.handle, entry.record.carried());
                Err(failure::refine(refusal, place.hook, ports))
            }
        }
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
                let report = read.ok().and_then(|done| done.report);
                self.finish_replace(&entry, report.as_ref(), replaced, ports)
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
            self.writer.core.ledger.forget(handle, place);
            return Err(Refusal::Device { reason: "no answer".into() });
        };
        for _ in 0..NAMES_TRIED {
            match self.writer.resolve(&filter, result) {
                Ok(Some(done)) => return Ok(self.installed(handle, place, &done)),
                Ok(None) => {}
                Err(refusal) => {
                    self.writer.core.ledger.forget(handle, place);
                    return Err(failure::refine(refusal, place.hook, ports));
                }
            }
            handle = self.writer.core.ledger.rename(&mut self.writer.cursor, handle).unwrap_or(handle);
            filter.id = filter_id(place, handle);
            result = self.writer.installer.submit_one(Request::Add(filter.clone()));
        }
        self.writer.core.ledger.forget(handle, place);
        Err(failure::duplicate())
    }

    /// A rule has been installed.
    fn installed(&self, handle: Handle, place: Place, done: &Done) -> Outcome {
        self.writer.core.ledger.settle(handle, place, Counted::default(), None);
        Outcome::InPlace { handle, placement: placement::of_rule(self.writer.core.policy, done.report.as_ref()) }
    }

    fn finish_replace(
        &mut self,
        entry: &Entry,
        report: Option<&Report>,
        replaced: Result<Done>,
        ports: &PortTable,
    ) -> Result<Outcome> {
        let (place, before) = (entry.record.place, entry.record.carried());
        match replaced {
            Ok(done) => {
                let by_it = report.map(|report| Counted::reported(report, &entry.id())).unwrap_or_default();
                self.writer.core.ledger.settle(entry.handle, place, before.plus(by_it), None);
                let placement = placement::of_rule(self.writer.core.policy, done.report.as_ref());
                Ok(Outcome::InPlace { handle: entry.handle, placement })
            }
            Err(refusal) => {
                self.writer.core.ledger.settle_as_before(entry);
                Err(failure::refine(refusal, place.hook, ports))
            }
        }
    }

    fn finish_remove(&mut self, entry: &Entry, result: Result<Done>, ports: &PortTable) -> Result<Outcome> {
        let last = match removal::deleted(&mut self.writer.installer, entry.id(), result) {
            Ok(by_it) => by_it.map(|by_it| entry.record.carried().plus(by_it).total()),
            Err(refusal) => {
                self.writer.core.ledger.settle_as_before(entry);
                return Err(failure::refine(refusal, entry.record.place.hook, ports));
            }
        };
        self.writer.core.ledger.forget(entry.handle, entry.record.place);
        Ok(Outcome::Removed { last })
    }
}

impl InstallQueue for Queue {
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        let ports = self.writer.core.ports.load_full();
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
        let results = self.writer.installer.submit(&requests);
        let mut results = requests.drain(..).zip(results);
        for (change, step) in steps.drain(..) {
            let result = self.finish(step, &mut results, &ports);
            done.push(Completion { flow: change.flow, generation: change.generation, result });
        }
        drop(results);
        (self.steps, self.requests) = (steps, requests);
        if !self.pairs.is_empty() {
            let pairs = std::mem::take(&mut self.pairs);
            self.writer.finish_pairs(pairs, &ports, done);
        }
        let socket = self.writer.installer.port();
        if socket != self.socket {
            // If this fails, the watch looks at what this worker deletes, and finds nothing to do.
            let _ = self.writer.core.sockets.add(Some(self.socket), socket);
            self.socket = socket;
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        self.later.take(done);
    }

    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>) {
        let chains = &self.writer.core.ledger.chains;
        match change.operation {
            // It gets its end where the first rule jumps to it.
            ChainOperation::Open => chains.open(change.chain),
            ChainOperation::Close => {
                let ends: Vec<_> = chains.close(change.chain).into_iter().map(Request::Delete).collect();
                if !ends.is_empty() {
                    // An end that cannot be deleted passes packets on, as they would without it; the next start removes it
                    // at the latest.
                    self.writer.installer.submit(&ends);
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
        self.writer.core.sockets.remove(self.socket);
    }
}
