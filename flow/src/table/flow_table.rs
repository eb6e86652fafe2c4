//! The table itself: what becomes of a flow from one look of its worker to the next.

use std::sync::Arc;
use std::time::Duration;

use super::arena::Arena;
use super::cell::CellGuard;
use super::census::Census;
use super::chains::{Chains, Member};
use super::expiries::{Expiries, ExpiryClass};
use super::free::FreeSlots;
use super::index::Index;
use super::life::{Installed, Life, Step};
use super::record::{Record, ShortLook};
use super::request::{Accepted, Completed, Limits, Look, Reply, ReplyTo, Settlement, TableError};
use super::retry::Changes;
use super::state::Standing;
use super::sync::{AtomicU64, Ordering};
use super::unwritten::Unwritten;
use super::{Freed, Lane};
use crate::backend::{Change, LostRule, Operation, Outcome, Placement};
use crate::chain::ChainId;
use crate::counters::Counters;
use crate::event::{EndReason, Event, EventSink};
use crate::flow::Flow;
use crate::id::FlowId;
use crate::parts::SharedParts;
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::ufid::{Seed, Ufid};

/// All flows. See the [module](super).
pub struct FlowTable {
    pub(super) seed: Seed,
    pub(super) arena: Arena,
    pub(super) free: FreeSlots,
    /// Flows whose UFID was given.
    pub(super) by_ufid: Index,
    /// All flows; those whose UFID follows from their identity are found by it, too.
    pub(super) by_identity: Index,
    pub(super) census: Census,
    pub(super) chains: Chains,
    pub(super) parts: Arc<SharedParts>,
    pub(super) expiries: Expiries,
    pub(super) events: Arc<dyn EventSink>,
    /// What a log has yet to write, if there is one.
    pub(super) unwritten: Option<Arc<Unwritten>>,
    /// When a flow of an earlier run was last restored.
    pub(super) restored: AtomicU64,
    pub(super) changes: Changes,
}

impl FlowTable {
    /// An empty table.
    pub fn new(seed: Seed, limits: Limits, events: Arc<dyn EventSink>) -> Self {
        Self {
            seed,
            arena: Arena::new(),
            free: FreeSlots::new(),
            by_ufid: Index::new(),
            by_identity: Index::new(),
            census: Census::new(limits.flows, limits.unsettled),
            chains: Chains::new(),
            parts: SharedParts::new().into(),
            expiries: Expiries::new(),
            events,
            unwritten: None,
            restored: AtomicU64::new(0),
            changes: Changes::default(),
        }
    }

    /// The seed of identities and UFIDs.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// What its flows have in common. Flows that are made with it are taken on faster.
    pub fn parts(&self) -> &Arc<SharedParts> {
        &self.parts
    }

    /// The counts of flows.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// Has packets pass so many chains one after the other at the most. Before there are flows.
    pub fn limit_chain_depth(&self, depth: usize) {
        self.chains.set_depth(depth);
    }

    /// How many chains a packet passes, at the most, before it comes to this one.
    pub fn chain_level(&self, chain: ChainId) -> usize {
        self.chains.level(chain)
    }

    /// Whether a rule jumps to a chain, or is about to, so that it must stay open.
    pub fn is_chain_held(&self, chain: ChainId) -> bool {
        self.chains.is_held(chain)
    }

    /// Takes new actions and expiry for a flow on. With `keep_old_rule` the old rule stays if the device refuses the new, unless a port went
    /// [meanwhile](FlowTable::withhold) that the old rule names, or any port while a change was with the device.
    pub fn modify(
        &self,
        id: FlowId,
        flow: Flow,
        keep_old_rule: bool,
        now: Timestamp,
        reply_to: Option<ReplyTo>,
    ) -> Result<Accepted, TableError> {
        // The name of a life never changes.
        let named = self.arena.record(id).and_then(|record| Some(flow.named_as(record.flow()?)));
        let Some(flow) = named.map(|flow| self.parts.share(flow)) else { return Err(TableError::NotFound) };
        self.with_life(id, |life| {
            if life.end.is_some() {
                return Err(TableError::NotFound);
            }
            if !life.flow.is_same(&flow) {
                return Err(TableError::OtherMatch(life.flow.ufid));
            }
            if life.flow.origin != flow.origin {
                return Err(TableError::OtherOrigin(life.flow.ufid, life.flow.origin));
            }
            if !life.unsettled {
                self.census.admit_change()?;
            }
            if let Err(refusal) = self.chains.wish(id, &mut life.member, &flow) {
                if !life.unsettled {
                    self.census.settle();
                }
                return Err(refusal.into());
            }
            life.unsettled = true;
            self.events.event(&Event::Accepted(flow.clone()));
            self.has_changed(id, &flow);
            life.flow = flow;
            // It is accepted for the ports that have their numbers now.
            life.withheld = None;
            self.classify(id, life);
            let accepted = self.changed(id, life, now, reply_to);
            life.keep_old_rule = keep_old_rule;
            Ok(accepted)
        })
        .unwrap_or(Err(TableError::NotFound))
    }

    /// Takes the end of a flow on.
    pub fn delete(
        &self,
        id: FlowId,
        reason: EndReason,
        now: Timestamp,
        reply_to: Option<ReplyTo>,
    ) -> Result<Accepted, TableError> {
        self.with_life(id, |life| {
            if life.end.is_some() {
                return Err(TableError::NotFound);
            }
            if !life.unsettled {
                self.census.force_change();
                life.unsettled = true;
            }
            life.end = Some(reason);
            self.census.unwant(life.flow.origin);
            if let Some(member) = &mut life.member {
                self.chains.depart(id, member);
            }
            self.classify(id, life);
            life.is_end_unwritten = self.has_changed(id, &life.flow);
            match reason {
                EndReason::Idle | EndReason::Hard => {
                    self.events.event(&Event::Aged { flow: life.flow.clone(), reason });
                }
                EndReason::Limit => self.events.event(&Event::Evicted { flow: life.flow.clone(), reason }),
                EndReason::Deleted | EndReason::Flushed => {}
            }
            Ok(self.changed(id, life, now, reply_to))
        })
        .unwrap_or(Err(TableError::NotFound))
    }

    /// What a worker has to do about a flow. The chains that a rule jumps to which is to be put in or changed must be open before
    /// the device hears of it; they are [held](FlowTable::is_chain_held) from now on.
    pub fn look(&self, id: FlowId) -> Look {
        let Some(mut record) = self.arena.record(id) else { return Look::Nothing };
        match record.look() {
            Some(ShortLook::Install(flow, generation)) => {
                return Look::Change(Change { flow: id, generation, operation: Operation::Install(flow) });
            }
            Some(ShortLook::Settle) => {
                self.census.settle();
                return Look::Nothing;
            }
            Some(ShortLook::Rest) => return Look::Nothing,
            None => {}
        }
        let step = record.change(|life| {
            if life.in_flight || life.predecessor.is_some() {
                return Ok(Look::Nothing);
            }
            match life.step() {
                Step::Rest => {
                    life.place = None;
                    let mut freed = Freed::default();
                    if life.installed.is_none() {
                        // Its port may be gone before the device has heard of it, or after the device has lost the rule.
                        self.settle_member(id, life, &mut freed);
                    }
                    self.settle(id, life, None);
                    Ok(if freed == Freed::default() { Look::Nothing } else { Look::Freed(freed) })
                }
                Step::Retire => Err(life.flow.clone()),
                Step::Change(operation) => {
                    let mut freed = Freed::default();
                    if life.member.as_mut().is_some_and(|member| !self.may_begin(id, member, &operation, &mut freed)) {
                        return Ok(if freed == Freed::default() { Look::Held } else { Look::Freed(freed) });
                    }
                    life.in_flight = true;
                    Ok(Look::Change(Change { flow: id, generation: life.generation, operation }))
                }
            }
        });
        drop(record);
        match step {
            None => Look::Nothing,
            Some(Ok(look)) => look,
            Some(Err(flow)) => {
                let (successor, freed) = self.retire(id, &flow);
                Look::Retired { flow, successor, freed }
            }
        }
    }

    /// Takes the outcome of a change. The id must be looked at again at once: what is wanted may have changed since, and
    /// the end of a removal is the end of the life.
    pub fn complete(&self, change: &Change, result: Result<Outcome, Refusal>, now: Timestamp) -> Completed {
        let Some(mut record) = self.arena.record(change.flow) else { return Completed::default() };
        if let (Operation::Install(_), Ok(Outcome::InPlace { handle, placement })) = (&change.operation, &result)
            && let Some((flow, accepted, reply_to)) = record.install(change, *handle, *placement)
        {
            self.census.enter(Standing::Placed(*placement));
            self.with_cell(change.flow, |cell| cell.begin(change.generation, now));
            self.events.event(&Event::Installed { flow, placement: *placement });
            let reply = reply_to.map(|reply_to| Reply { reply_to, flow: change.flow, placement: *placement });
            return Completed { latency: Some(self.waited(accepted, now)), freed: Freed::default(), reply };
        }
        let completed = record.change(|life| {
            let latency = Some(self.waited(life.asked, now));
            let mut freed = Freed::default();
            life.in_flight = false;
            if let (Operation::Install(_) | Operation::Modify(..), Ok(Outcome::InPlace { .. })) =
                (&change.operation, &result)
            {
                // What was refused before is history.
                life.refusal = None;
            }
            match (&change.operation, result) {
                (Operation::Install(flow), Ok(Outcome::InPlace { handle, placement })) => {
                    life.installed =
                        Some(Installed { flow: flow.clone(), generation: change.generation, handle, placement });
                    self.with_cell(change.flow, |cell| cell.begin(change.generation, now));
                    self.events.event(&Event::Installed { flow: flow.clone(), placement });
                }
                (Operation::Modify(_, flow), Ok(Outcome::InPlace { handle, placement })) => {
                    if let Some(rule) = &mut life.installed {
                        *rule = Installed { flow: flow.clone(), generation: change.generation, handle, placement };
                    }
                    self.with_cell(change.flow, |cell| cell.touch(now));
                    self.events.event(&Event::Modified { flow: flow.clone(), placement });
                }
                (Operation::Move(..), Ok(Outcome::InPlace { handle, placement })) => {
                    life.place = None;
                    let rule = life.installed.as_mut().filter(|rule| rule.placement != placement);
                    if let Some(rule) = rule {
                        (rule.handle, rule.placement) = (handle, placement);
                        self.events.event(&Event::Moved { flow: rule.flow.clone(), placement });
                    }
                }
                (Operation::Move(..), Err(refusal)) => {
                    // It stays where it is, which is no refusal of what is wanted.
                    life.place = None;
                    self.events.event(&Event::Refused { flow: life.flow.clone(), refusal: Arc::new(refusal) });
                }
                (_, Ok(Outcome::Removed { last })) => {
                    life.installed = None;
                    self.with_cell(change.flow, |cell| cell.end(last));
                    self.drop_old_refusal(change.flow, life, now);
                }
                (operation, Ok(Outcome::InPlace { .. })) => {
                    // A backend that answers a removal so does not keep the contract; the rule's fate is unknown.
                    let refusal = Refusal::Device { reason: format!("wrong answer to {operation:?}").into() };
                    life.stuck = change.generation == life.generation;
                    self.refused(change, life, refusal);
                }
                // It is asked for again at once.
                (_, Err(refusal)) if self.is_out_of_date(&refusal, change.flow, life) => life.asked = now,
                (operation, Err(refusal)) => {
                    // What is wanted since has yet to be tried.
                    life.stuck = matches!(operation, Operation::Remove(_)) && change.generation == life.generation;
                    self.refused(change, life, refusal);
                }
            }
            if let Some(rule) = life.installed.as_mut().filter(|rule| rule.generation == life.generation) {
                // It may go at another time by now, of which the device was not told.
                rule.flow = life.flow.clone();
            }
            if let Some(handle) = life.lost.take() {
                // The look that follows finds what is to be done.
                let _ = self.forget(LostRule { flow: change.flow, handle }, life, now);
            }
            self.restate(change.flow, life);
            if let Some(cause) = life.awaited() {
                self.arena.await_kind(change.flow.slot, cause.kind());
            }
            if !matches!(change.operation, Operation::Move(..)) {
                self.settle_member(change.flow, life, &mut freed);
            }
            Completed { latency, freed, reply: None }
        });
        completed.unwrap_or_default()
    }

    /// How long a flow has waited: since it was asked for, or since it was restored, if that was later.
    fn waited(&self, asked: Timestamp, now: Timestamp) -> Duration {
        now.since(asked.max(Timestamp(self.restored.load(Ordering::Relaxed))))
    }

    /// Tells the chains what the device has of a flow, while no change is with it.
    fn settle_member(&self, id: FlowId, life: &mut Life, freed: &mut Freed) {
        if let Some(member) = &mut life.member {
            let rule = life.installed.as_ref().map(|rule| &rule.flow);
            let wanted = life.end.is_none().then_some(&life.flow);
            self.chains.settle(id, member, rule, wanted, freed);
        }
    }

    fn may_begin(&self, id: FlowId, member: &mut Member, operation: &Operation, freed: &mut Freed) -> bool {
        match operation {
            Operation::Install(_) | Operation::Modify(..) => self.chains.may_enter(id, member, freed),
            Operation::Remove(_) => self.chains.may_leave(id, member, freed),
            Operation::Move(..) => true,
        }
    }

    /// Takes note that the device has lost a rule by itself. If the flow is still wanted it must be looked at.
    pub fn lost(&self, rule: LostRule, now: Timestamp) -> Option<Accepted> {
        self.with_life(rule.flow, |life| {
            if life.in_flight {
                // The device may be quicker to lose a rule than its worker to say that it is there.
                life.lost = Some(rule.handle);
                return None;
            }
            self.forget(rule, life, now)
        })
        .flatten()
    }

    pub(super) fn forget(&self, lost: LostRule, life: &mut Life, now: Timestamp) -> Option<Accepted> {
        life.installed.take_if(|rule| rule.handle == lost.handle)?;
        self.with_cell(lost.flow, |cell| cell.end(None));
        if !life.unsettled {
            self.census.force_change();
            life.unsettled = true;
        }
        let reply_to = life.reply_to.take();
        // Counted as a change, so that late readings of the lost rule are told from those of the next.
        Some(self.changed(lost.flow, life, now, reply_to))
    }

    /// Has the rule of a flow moved, if it has one and that is not there: nothing else that is wanted changes by it, and
    /// whatever is wanted goes before it. The flow must be looked at.
    pub fn place(&self, id: FlowId, place: Placement) -> Option<Accepted> {
        self.with_life(id, |life| {
            life.installed.as_ref().filter(|rule| rule.placement != place && life.end.is_none())?;
            life.place = Some(place);
            Some(Accepted { flow: id, lane: Lane::Change })
        })?
    }

    /// After a change to what is wanted: counts it and has it looked at.
    pub(super) fn changed(&self, id: FlowId, life: &mut Life, now: Timestamp, reply_to: Option<ReplyTo>) -> Accepted {
        life.asked = now;
        self.end_retry(life);
        life.generation = life.generation.next();
        // That the rule would not go is of what was wanted before.
        life.stuck = false;
        // Asked for with what was wanted before. The old rule may be what is wrong now.
        life.keep_old_rule = false;
        if let Some(older) = std::mem::replace(&mut life.reply_to, reply_to) {
            older.settled(id, &Settlement::Superseded);
        }
        self.restate(id, life);
        Accepted { flow: id, lane: life.lane() }
    }

    pub(super) fn refused(&self, change: &Change, life: &mut Life, refusal: Refusal) {
        let refusal = Arc::new(refusal);
        let flow = match &change.operation {
            Operation::Install(flow) | Operation::Modify(_, flow) => flow.clone(),
            Operation::Move(..) | Operation::Remove(_) => life.flow.clone(),
        };
        let is_known = life.refusal.as_ref().is_some_and(|(_, known)| *known == refusal);
        if !(life.is_retried && is_known) {
            self.events.event(&Event::Refused { flow, refusal: refusal.clone() });
        }
        if life.refuse(change.generation, refusal) {
            self.classify(change.flow, life);
            self.has_changed(change.flow, &life.flow);
        }
    }

    /// Tells who waits that there is an outcome.
    pub(super) fn settle(&self, id: FlowId, life: &mut Life, end: Option<Counters>) {
        self.end_retry(life);
        if !std::mem::take(&mut life.unsettled) {
            return;
        }
        self.census.settle();
        let Some(reply_to) = life.reply_to.take() else { return };
        let outcome = match (end, life.reason(), &life.installed) {
            (Some(counters), _, _) => Settlement::Deleted(counters),
            (None, Some(refusal), _) if life.is_refused() || life.stuck => Settlement::Refused(refusal.clone()),
            (None, _, Some(rule)) => Settlement::Installed(rule.placement),
            (None, _, None) => Settlement::Superseded,
        };
        reply_to.settled(id, &outcome);
    }

    /// Ends a life. Gives the life that waited for it and may begin now, and what waited at chains.
    pub(super) fn retire(&self, id: FlowId, flow: &Flow) -> (Option<FlowId>, Freed) {
        let mut freed = Freed::default();
        let mut by_ufid = self.by_ufid.lock(flow.ufid);
        let mut by_identity = self.by_identity.lock(flow.identity(&self.seed));
        let Some(mut record) = self.arena.record(id) else { return (None, freed) };
        let Some(mut life) = record.take_ended() else { return (None, freed) };
        let counters = self.arena.cell(id).map(|mut cell| cell.finish()).unwrap_or_default();
        let reason = life.end.unwrap_or(EndReason::Deleted);
        let accepted = life.accepted;
        self.events.event(&Event::Deleted { flow: life.flow.clone(), reason, counters, accepted });
        // Counted out before anybody hears of it, so that who waited for the end finds room for the next.
        self.census.leave(life.counted_as);
        self.census.dismiss_flow();
        self.settle(id, &mut life, Some(counters));
        if let Some(member) = life.member.take() {
            self.chains.leave(id, member, &mut freed);
        }
        self.arena.next_incarnation(id.slot);
        *record = self.after_life(flow.ufid, life.is_end_unwritten);
        let is_free = matches!(*record, Record::Free);
        drop(record);

        by_ufid.remove(id.slot);
        by_identity.remove(id.slot);
        let successor = life.successor.filter(|next| self.with_life(*next, |next| next.predecessor = None).is_some());
        if is_free {
            self.free.give_back(flow.ufid, id.slot);
        }
        (successor, freed)
    }

    /// Counts the flow under how far it has come now.
    pub(super) fn restate(&self, id: FlowId, life: &mut Life) {
        let standing = life.standing();
        if standing != life.counted_as {
            self.census.leave(life.counted_as);
            self.census.enter(standing);
            life.counted_as = standing;
            if life.flow.origin.is_source() && matches!(standing, Standing::Placed(_) | Standing::Refused) {
                self.with_cell(id, |cell| cell.note());
            }
        }
    }

    /// Tells the cell how the flow ages now.
    pub(super) fn classify(&self, id: FlowId, life: &Life) {
        let class = if life.end.is_some() { ExpiryClass::NONE } else { self.expiries.class(&life.flow.expiry) };
        self.with_cell(id, |cell| cell.set_class(class));
    }

    /// The life in a slot, unless it is on its way out.
    pub(super) fn wanted_in(&self, slot: u32) -> Option<FlowId> {
        self.with_record(slot, |id, record| record.is_wanted().then_some(id))?
    }

    pub(super) fn ufid(&self, id: FlowId) -> Option<Ufid> {
        Some(self.arena.record(id)?.flow()?.ufid)
    }

    pub(super) fn with_record<R>(&self, slot: u32, f: impl FnOnce(FlowId, &Record) -> R) -> Option<R> {
        let (id, record) = self.arena.slot(slot)?;
        Some(f(id, &record))
    }

    pub(super) fn with_life<R>(&self, id: FlowId, f: impl FnOnce(&mut Life) -> R) -> Option<R> {
        self.arena.record(id)?.change(f)
    }

    pub(super) fn with_cell(&self, id: FlowId, f: impl FnOnce(&mut CellGuard<'_>)) {
        if let Some(mut cell) = self.arena.cell(id) {
            f(&mut cell);
        }
    }
}
