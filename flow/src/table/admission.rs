//! How a flow comes into the table.

use super::arena::Arena;
use super::index::Shard;
use super::record::Record;
use super::sync::Ordering;
use super::{Accepted, FlowTable, Lane, ReplyTo, TableError};
use crate::event::Event;
use crate::flow::Flow;
use crate::id::FlowId;
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::ufid::{Identity, Ufid};

impl FlowTable {
    /// Takes a new flow on.
    pub fn add(&self, flow: Flow, now: Timestamp, reply_to: Option<ReplyTo>) -> Result<Accepted, TableError> {
        self.insert(flow, now, now, reply_to, false)
    }

    /// Takes a flow on again that was accepted in an earlier run: whatever the limits are by now, and without telling
    /// anybody, for nothing new is wanted.
    pub fn restore(&self, flow: Flow, accepted: Timestamp, now: Timestamp) -> Result<Accepted, TableError> {
        self.restored.fetch_max(now.0, Ordering::Relaxed);
        self.insert(flow, accepted, now, None, true)
    }

    fn insert(
        &self,
        flow: Flow,
        accepted: Timestamp,
        now: Timestamp,
        reply_to: Option<ReplyTo>,
        is_restored: bool,
    ) -> Result<Accepted, TableError> {
        let (ufid, identity) = (flow.ufid, flow.identity(&self.seed));
        let flow = self.parts.share(flow);
        let has_given_ufid = flow.has_given_ufid();
        // Held until the flow can be found, so that no other one is given its name meanwhile.
        let mut by_ufid = self.by_ufid.lock(ufid);
        let namesake = self.slot_of_ufid(&by_ufid, ufid);
        let is_taken = namesake.is_some_and(|slot| self.wanted_in(slot).is_some());
        // One with a UFID of its own meets another one with the same as one with the same identity.
        let is_yielded = || self.named_in(&self.by_identity.lock(Identity::of_own(ufid)), ufid).is_some();
        if is_taken || has_given_ufid && is_yielded() {
            return Err(TableError::Exists(ufid));
        }
        let mut by_identity = self.by_identity.lock(identity);
        let same = self.slot_of_same(&by_identity, &flow);
        if let Some(id) = same.and_then(|slot| self.wanted_in(slot)) {
            return Err(TableError::Exists(self.ufid(id).unwrap_or(ufid)));
        }
        let predecessor = same.and_then(|slot| self.with_record(slot, |id, _| id));
        if is_restored {
            self.census.force_flow();
            self.census.force_change();
        } else {
            self.census.admit_flow()?;
            if let Err(refusal) = self.census.admit_change() {
                self.census.dismiss_flow();
                return Err(refusal.into());
            }
        }
        let turn_away = |refusal: Refusal| {
            self.census.settle();
            self.census.dismiss_flow();
            Err(refusal.into())
        };
        let member = match self.chains.offer(&flow) {
            Ok(member) => member,
            Err(refusal) => return turn_away(refusal),
        };
        let Some(slot) = self.free.take(ufid, &self.arena) else {
            member.into_iter().for_each(|member| self.chains.withdraw(member));
            let what = "no slot is left in the table".into();
            return turn_away(Refusal::Limit { what, limit: Arena::CAPACITY as u64 });
        };

        let Some((id, mut record)) = self.arena.slot(slot) else { return Err(TableError::NotFound) };
        if !is_restored {
            self.events.event(&Event::Accepted(flow.clone()));
            self.has_begun(id, &flow);
        }
        let (class, is_followed) = (self.expiries.class(&flow.expiry), flow.origin.is_source());
        self.census.want(flow.origin);
        // Before anybody can end the life, which the cell must hear of.
        self.with_cell(id, |cell| cell.start(class, now, is_followed));
        let mut fresh = Record::new(flow, accepted, reply_to);
        if let Some(member) = &member {
            self.chains.arrive(id, member);
        }
        if predecessor.is_some() || member.is_some() {
            fresh.change(|life| (life.predecessor, life.member) = (predecessor, member));
        }
        *record = fresh;
        drop(record);
        if let Some(predecessor) = predecessor {
            self.with_life(predecessor, |life| life.successor = Some(id));
        }
        by_identity.put(same, slot);
        if has_given_ufid {
            by_ufid.put(namesake, slot);
        }
        Ok(Accepted { flow: id, lane: Lane::Change })
    }

    fn slot_of_ufid(&self, shard: &Shard<'_>, ufid: Ufid) -> Option<u32> {
        let is_it = |_, record: &Record| record.flow().is_some_and(|flow| flow.ufid == ufid);
        shard.find(|slot| self.with_record(slot, is_it).unwrap_or(false))
    }

    pub(super) fn slot_of_same(&self, shard: &Shard<'_>, wanted: &Flow) -> Option<u32> {
        let is_it = |_, record: &Record| record.flow().is_some_and(|flow| flow.is_same(wanted));
        shard.find(|slot| self.with_record(slot, is_it).unwrap_or(false))
    }

    /// The life that has this UFID in a shard, unless it is on its way out.
    pub(super) fn named_in(&self, shard: &Shard<'_>, ufid: Ufid) -> Option<FlowId> {
        self.wanted_in(self.slot_of_ufid(shard, ufid)?)
    }
}
