//! Reading the table: by name and all of it.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::FlowTable;
use super::record::Record;
use crate::backend::{Handle, Placement};
use crate::counters::Counters;
use crate::flow::Flow;
use crate::id::{FlowId, Generation};
use crate::origin::Origin;
use crate::port::GonePort;
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
    pub flow: Flow,
    /// How far it has come.
    pub state: FlowState,
    /// What is wanted, by the count of its changes.
    pub generation: Generation,
    /// The device's name for its rule, if there is one.
    pub handle: Option<Handle>,
    /// Where its rule is, if there is one.
    pub placement: Option<Placement>,
    /// The last refusal, if what is wanted or was last tried was refused.
    pub refusal: Option<Arc<Refusal>>,
    /// The ports that it was accepted for and that are gone, for which it is withheld.
    pub gone_ports: Vec<GonePort>,
    /// All that it has counted.
    pub counters: Counters,
    /// When it was accepted.
    pub accepted: Timestamp,
}

impl FlowView {
    /// Whether its rule is in the device as wanted.
    pub const fn is_settled(&self) -> bool {
        matches!(self.state, FlowState::Offloaded | FlowState::Partial)
    }
}

impl FlowTable {
    /// The life that a UFID names now, unless it is on its way out.
    pub fn find(&self, ufid: Ufid) -> Option<FlowId> {
        let given = self.by_ufid.lock(ufid);
        self.named_in(&given, ufid).or_else(|| self.named_in(&self.by_identity.lock(Identity::of_own(ufid)), ufid))
    }

    /// The life that has match and priority of this flow, unless it is on its way out.
    pub fn find_same(&self, flow: &Flow) -> Option<FlowId> {
        let shard = self.by_identity.lock(flow.identity(&self.seed));
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
            generation: record.generation(),
            handle: record.handle(),
            placement: record.placement(),
            refusal: record.refusal().cloned(),
            gone_ports: record.gone_ports().to_vec(),
            counters: self.arena.cell(id)?.total(),
            accepted: record.accepted(),
        })
    }

    /// Where the rule of a flow is, if it has one.
    pub fn placement(&self, id: FlowId) -> Option<Placement> {
        self.arena.record(id)?.placement()
    }

    /// Shows the slot of every flow that has a rule.
    pub fn visit_rules(&self, visit: &mut dyn FnMut(u32)) {
        for slot in self.arena.slots() {
            if self.with_record(slot, |_, record| record.placement().is_some()) == Some(true) {
                visit(slot);
            }
        }
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

    /// Shows every flow of a source of which something is new since this last showed it: a packet that was counted, a rule that is there, a
    /// refusal. In no order, and each at one moment of its own; no lock is held meanwhile. Of other flows it touches the counter cell only.
    pub fn visit_news(&self, source: Origin, visit: &mut dyn FnMut(FlowView)) {
        for (id, cell) in self.arena.cells() {
            let has_news = cell.has_news();
            // The record is locked before its cell.
            drop(cell);
            if !has_news {
                continue;
            }
            let Some((id, record)) = self.arena.slot(id.slot) else { continue };
            if record.flow().is_none_or(|flow| flow.origin != source) {
                continue;
            }
            // What comes from here on is shown the next time.
            self.with_cell(id, |cell| cell.show());
            let view = self.view_of(id, &record);
            drop(record);
            view.into_iter().for_each(&mut *visit);
        }
    }
}
