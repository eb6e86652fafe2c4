//! Reading the table: by name, all of it, and for ageing; and taking counters in.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::record::Record;
use super::{FlowTable, cell::Applied};
use crate::backend::Placement;
use crate::counters::{Counters, Reading, Sampled};
use crate::flow::Flow;
use crate::id::FlowId;
use crate::refusal::Refusal;
use crate::table::FlowState;
use crate::time::Timestamp;
use crate::ufid::Ufid;

/// A flow as it stood at one moment.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// Its life.
    pub id: FlowId,
    /// What is wanted.
    pub flow: Arc<Flow>,
    /// How far it has come.
    pub state: FlowState,
    /// Where its rule is, if there is one.
    pub placement: Option<Placement>,
    /// The last refusal, if what is wanted or was last tried was refused.
    pub refusal: Option<Arc<Refusal>>,
    /// All that it has counted.
    pub counters: Counters,
    /// When it was accepted.
    pub accepted: Timestamp,
}

/// What ageing must know of a flow. No copy is made.
pub struct AgeView<'a> {
    /// Its life.
    pub id: FlowId,
    /// What is wanted.
    pub flow: &'a Flow,
    /// How far it has come.
    pub state: FlowState,
    /// When it was accepted.
    pub accepted: Timestamp,
    /// For how long readings have shown no growth, up to what the last one holds for certain; `None` without a rule, and on fewer than two
    /// readings newer than its last change.
    pub idle: Option<Duration>,
    /// The time of its last known growth or change.
    pub grown: Timestamp,
    /// Packets that it has counted.
    pub packets: u64,
}

impl FlowTable {
    /// The life that a UFID names now, unless it is on its way out.
    pub fn find(&self, ufid: Ufid) -> Option<FlowId> {
        let shard = self.by_ufid.lock(ufid);
        self.wanted_in(self.slot_of_ufid(&shard, ufid)?)
    }

    /// The life that has match and priority of this flow, unless it is on its way out.
    pub fn find_same(&self, flow: &Flow) -> Option<FlowId> {
        let shard = self.by_identity.lock(flow.identity);
        self.wanted_in(self.slot_of_same(&shard, flow)?)
    }

    /// A flow as it stands now.
    pub fn view(&self, id: FlowId) -> Option<FlowView> {
        let record = self.arena.record(id)?;
        self.view_of(id, &record)
    }

    fn view_of(&self, id: FlowId, record: &Record) -> Option<FlowView> {
        Some(FlowView {
            id,
            flow: record.flow()?.clone(),
            state: record.state(),
            placement: record.placement(),
            refusal: record.refusal().cloned(),
            counters: self.arena.cell(id)?.total(),
            accepted: record.accepted(),
        })
    }

    /// Shows every flow, in no order, until `visit` breaks. No lock is held meanwhile, and each flow is shown at one
    /// moment of its own.
    pub fn visit(&self, visit: &mut dyn FnMut(FlowView) -> ControlFlow<()>) {
        for slot in self.arena.slots() {
            let view = self.arena.slot(slot).and_then(|(id, record)| self.view_of(id, &record));
            if view.is_some_and(|view| visit(view).is_break()) {
                return;
            }
        }
    }

    /// Shows ageing every flow that is still wanted. `visit` is called under the flow's lock and must not call the table.
    pub fn visit_ages(&self, visit: &mut dyn FnMut(&AgeView<'_>)) {
        for slot in self.arena.slots() {
            let Some((id, record)) = self.arena.slot(slot) else { continue };
            let Some(flow) = record.flow().filter(|_| record.is_wanted()) else { continue };
            let Some((idle, grown, packets)) =
                self.arena.cell(id).map(|cell| (cell.idle(), cell.grown(), cell.total().packets))
            else {
                continue;
            };
            visit(&AgeView {
                id,
                flow,
                state: record.state(),
                accepted: record.accepted(),
                idle: idle.filter(|_| record.placement().is_some()),
                grown,
                packets,
            });
        }
    }

    /// Takes a reading of what the device counted at a time. No reading may be older than the one before.
    pub fn apply(&self, reading: &Reading, sampled: Sampled) -> Applied {
        let Some(mut cell) = self.arena.cell(reading.flow) else { return Applied::Foreign };
        cell.apply(reading, sampled)
    }

    /// Masks and action lists that are in use.
    pub fn shared_parts(&self) -> (usize, usize) {
        (self.masks.len(), self.action_lists.len())
    }
}
