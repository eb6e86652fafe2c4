//! What the revalidator asks of the table: to take counters in, and to show what ageing must know of each flow. And how a flow comes to
//! age otherwise.
//!
//! The former touch the counter cells only, 40 bytes a flow, and do not wait for a flow that is being changed.

use super::FlowTable;
use super::arena::Arena;
use super::cell::{AgeView, Applied};
use crate::counters::{Reading, Sampled};
use crate::event::Event;
use crate::flow::Expiry;
use crate::id::FlowId;
use crate::time::Timestamp;

/// What readings did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Those that showed growth.
    pub grown: usize,
    /// Those that were less than the one before: the device lost count.
    pub backwards: usize,
}

impl FlowTable {
    /// What a round reads of each flow.
    pub const CELL_BYTES: usize = Arena::CELL_BYTES;

    /// Takes readings of what the device counted at a time. Batches should fit into the first-level cache with their
    /// cells: some hundred.
    pub fn take_readings(&self, readings: &[Reading], sampled: Sampled) -> Taken {
        // The device knows flows in another order than the table. Waiting for one line after the other under its lock
        // would be most of the cost.
        readings.iter().for_each(|reading| self.arena.prepare_cell(reading.flow.slot));
        let mut taken = Taken::default();
        for reading in readings {
            match self.apply(reading, sampled) {
                Applied::Grown => taken.grown += 1,
                Applied::Backwards => taken.backwards += 1,
                Applied::Still | Applied::Foreign => {}
            }
        }
        taken
    }

    /// Takes a reading of what the device counted at a time. No reading may be older than the one before.
    pub fn apply(&self, reading: &Reading, sampled: Sampled) -> Applied {
        let Some(mut cell) = self.arena.cell(reading.flow) else { return Applied::Foreign };
        cell.apply(reading, sampled)
    }

    /// Shows every flow that is still wanted, each at one moment of its own. No lock is held meanwhile.
    pub fn visit_ages(&self, mut visit: impl FnMut(&AgeView)) {
        for (id, cell) in self.arena.cells() {
            let view = cell.age(id);
            drop(cell);
            if let Some(view) = view {
                visit(&view);
            }
        }
    }

    /// What ageing must know of one flow; `None` if it is no longer wanted.
    pub fn age(&self, id: FlowId) -> Option<AgeView> {
        self.arena.cell(id)?.age(id)
    }

    /// The expiries that classes stand for, by [`ExpiryClass::index`](super::ExpiryClass::index). Classes beyond it are newer, or not listed.
    pub fn expiries(&self) -> Vec<Expiry> {
        self.expiries.listed()
    }

    /// The expiry of a flow, and when it was accepted.
    pub fn term(&self, id: FlowId) -> Option<(Expiry, Timestamp)> {
        let record = self.arena.record(id)?;
        record.flow().map(|flow| (flow.expiry, record.accepted()))
    }

    /// Gives a flow that is wanted another expiry, which `change` makes of the one that it has by then; `None` leaves it as it is. Nothing
    /// else that is wanted changes, and no worker has to look at the flow: a device does not know when it goes. Returns whether it was
    /// changed.
    pub fn change_expiry(&self, id: FlowId, now: Timestamp, change: impl FnOnce(&Expiry) -> Option<Expiry>) -> bool {
        let changed = self.with_life(id, |life| {
            let expiry = change(&life.flow.expiry).filter(|_| life.end.is_none())?;
            let flow = self.parts.share(life.flow.with_expiry(expiry));
            if let Some(rule) = &mut life.installed {
                let is_as_wanted = rule.flow.is_clone_of(&life.flow);
                rule.flow = match is_as_wanted {
                    // The very flow, so that a life that was settled is settled.
                    true => flow.clone(),
                    false => self.parts.share(rule.flow.with_expiry(expiry)),
                };
            }
            self.events.event(&Event::Accepted(flow.clone()));
            self.has_changed(id, &flow);
            life.flow = flow;
            self.classify(id, life);
            // What was read before says nothing about a flow that was not to age.
            self.with_cell(id, |cell| cell.touch(now));
            Some(())
        });
        changed.flatten().is_some()
    }
}
