//! Reading the table: by name and all of it.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::FlowTable;
use crate::backend::Placement;
use crate::counters::Counters;
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

    /// Masks and action lists that are in use.
    pub fn shared_parts(&self) -> (usize, usize) {
        (self.masks.len(), self.action_lists.len())
    }
}
