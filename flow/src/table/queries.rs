//! Reading the table: by name, all of it, and for ageing; and taking counters in.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::{FlowTable, cell::Applied};
use crate::backend::Placement;
use crate::counters::{Counters, Reading, Sampled};
use crate::flow::Flow;
use crate::id::FlowId;
use crate::refusal::Refusal;
use crate::table::FlowState;
use crate::time::Timestamp;
use crate::ufid::{Identity, Ufid};

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
        let id = *self.ufid_shard(ufid).lock().get(&ufid)?;
        self.is_wanted(id).then_some(id)
    }

    /// The life with this match and priority, unless it is on its way out.
    pub fn find_identity(&self, identity: Identity) -> Option<FlowId> {
        let id = *self.identity_shard(identity).lock().get(&identity)?;
        self.is_wanted(id).then_some(id)
    }

    /// A flow as it stands now.
    pub fn view(&self, id: FlowId) -> Option<FlowView> {
        let mut record = self.lock_record(id.slot)?;
        let life = record.life(id)?;
        let counters = self.arena.cell(id.slot)?.total();
        Some(FlowView {
            id,
            flow: life.flow.clone(),
            state: life.state(),
            placement: life.installed.as_ref().map(|rule| rule.placement),
            refusal: life.refusal.as_ref().map(|(_, refusal)| refusal.clone()),
            counters,
            accepted: life.accepted,
        })
    }

    /// Shows every flow, in no order, until `visit` breaks. No lock is held meanwhile, and each flow is shown at one
    /// moment of its own.
    pub fn visit(&self, visit: &mut dyn FnMut(FlowView) -> ControlFlow<()>) {
        for slot in self.arena.slots() {
            let id = match self.lock_record(slot) {
                Some(record) if record.life.is_some() => FlowId { slot, incarnation: record.incarnation },
                _ => continue,
            };
            if let Some(view) = self.view(id)
                && visit(view).is_break()
            {
                return;
            }
        }
    }

    /// Shows ageing every flow that is still wanted. `visit` is called under the flow's lock and must not call the table.
    pub fn visit_ages(&self, visit: &mut dyn FnMut(&AgeView<'_>)) {
        for slot in self.arena.slots() {
            let Some(record) = self.lock_record(slot) else { continue };
            let Some(life) = record.life.as_deref().filter(|life| life.end.is_none()) else { continue };
            let Some(cell) = self.arena.cell(slot) else { continue };
            visit(&AgeView {
                id: FlowId { slot, incarnation: record.incarnation },
                flow: &life.flow,
                state: life.state(),
                accepted: life.accepted,
                idle: cell.idle().filter(|_| life.installed.is_some()),
                grown: cell.grown(),
                packets: cell.total().packets,
            });
        }
    }

    /// Takes a reading of what the device counted at a time.
    pub fn apply(&self, reading: &Reading, sampled: Sampled) -> Applied {
        let Some(mut cell) = self.arena.cell(reading.flow.slot) else { return Applied::Foreign };
        cell.apply(reading, sampled)
    }

    /// Masks and action lists that are in use.
    pub fn shared_parts(&self) -> (usize, usize) {
        (self.masks.len(), self.action_lists.len())
    }
}
