//! Flows that the device cannot tell apart, because it does not look at all that they match.
//!
//! A rule for one of them would take the packets of the others as well. So none of them has a rule as long as there is more than
//! one; as soon as one is left alone, it is tried again. Flows are noted here before a worker can look at them, and a worker asks
//! once the change that it is about to make is known to be under way: whoever comes later has that one looked at again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluice_flow::backend::LooksAt;
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::ufid::Identity;
use sluice_flow::{Backend, Field, Flow, FlowId, FlowTable, Refusal};

/// Parts of the notes, each under a lock of its own.
const SHARDS: usize = 16;

/// Who looks alike to the device.
pub(super) struct Alike {
    backend: Arc<dyn Backend>,
    table: Arc<FlowTable>,
    shards: [Mutex<HashMap<Identity, Vec<Noted>>>; SHARDS],
}

/// A flow, and its whole match: two of the same match are one after the other, and not at a time.
struct Noted {
    flow: FlowId,
    matching: Match,
}

/// Under what a flow is noted.
pub(super) struct Name {
    looks_alike: Identity,
    matching: Match,
}

impl Alike {
    pub(super) fn new(backend: Arc<dyn Backend>, table: Arc<FlowTable>) -> Self {
        Self { backend, table, shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Under what a flow is to be noted; `None` for nearly all, which the device tells apart.
    pub(super) fn name(&self, flow: &Flow) -> Option<Name> {
        let LooksAt { matching, .. } = self.backend.looks_at(flow).filter(|looks_at| looks_at.holds_apart)?;
        let (looks_alike, _) = self.table.seed().names(&MaskedKey::new(&matching), flow.priority);
        Some(Name { looks_alike, matching: flow.matching().expand() })
    }

    /// Notes a flow. Gives those that look like it, which may have a rule.
    pub(super) fn arrive(&self, name: Name, flow: FlowId) -> Vec<FlowId> {
        let Name { looks_alike, matching } = name;
        let others = {
            let mut shard = self.shard(looks_alike).lock();
            let noted = shard.entry(looks_alike).or_default();
            let others = noted.iter().filter(|other| other.matching != matching).map(|other| other.flow).collect();
            noted.push(Noted { flow, matching });
            others
        };
        // Whoever deleted it meanwhile may have been here before it was noted.
        if self.table.view(flow).is_none() {
            self.strike_out(looks_alike, flow);
        }
        others
    }

    /// A flow and its rule are gone. Gives those that looked like it, which may be taken now.
    pub(super) fn gone(&self, flow: &Flow, id: FlowId) -> Vec<FlowId> {
        self.name(flow).map(|name| self.strike_out(name.looks_alike, id)).unwrap_or_default()
    }

    fn strike_out(&self, looks_alike: Identity, id: FlowId) -> Vec<FlowId> {
        let mut shard = self.shard(looks_alike).lock();
        let Some(noted) = shard.get_mut(&looks_alike) else { return Vec::new() };
        noted.retain(|noted| noted.flow != id);
        if noted.is_empty() {
            shard.remove(&looks_alike);
            return Vec::new();
        }
        noted.iter().map(|noted| noted.flow).collect()
    }

    /// Why a flow is not to have a rule, if another one looks like it.
    pub(super) fn refusal(&self, flow: &Flow) -> Option<Refusal> {
        let Name { looks_alike, matching } = self.name(flow)?;
        let other = {
            let shard = self.shard(looks_alike).lock();
            shard.get(&looks_alike)?.iter().find(|other| other.matching != matching)?.flow
        };
        let other = self.table.view(other).map(|view| format!("ufid:{}", view.flow.ufid));
        let reason = format!(
            "{} differs from it only in flags that this kernel does not match (Linux 6.11 does), so that neither has a rule",
            other.as_deref().unwrap_or("another flow")
        );
        Some(Refusal::Field { field: Field::TunnelFlags, reason: reason.into() })
    }

    fn shard(&self, identity: Identity) -> &Mutex<HashMap<Identity, Vec<Noted>>> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do to pick a shard")]
        let number = identity.0 as usize;
        &self.shards[number % SHARDS]
    }
}
