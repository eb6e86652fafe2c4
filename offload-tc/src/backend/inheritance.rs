//! Rules that flows have taken over from other owners. Each bears the notes of its owner until a worker has written it anew, and
//! is this agent's own meanwhile.

use arc_swap::ArcSwap;

use super::core::Core;
use crate::marks::AgentId;
use crate::wire::filter::FilterId;

/// The owners that left something to this agent.
#[derive(Default)]
pub(super) struct Predecessors(ArcSwap<Vec<AgentId>>);

impl Predecessors {
    /// An owner leaves something. Noted before the first of its rules is in the ledger.
    pub(super) fn add(&self, owner: AgentId) {
        self.0.rcu(|known| known.iter().copied().chain([owner]).collect::<Vec<_>>());
    }
}

impl Core {
    /// Whether rules with the notes of this owner may be this agent's own: the ledger says which are.
    pub(super) fn may_own(&self, owner: AgentId) -> bool {
        owner == self.agent || self.predecessors.0.load().contains(&owner)
    }

    /// Whether a rule with the notes of this owner is this agent's own.
    pub(super) fn owns(&self, owner: AgentId, id: &FilterId) -> bool {
        owner == self.agent || self.may_own(owner) && self.ledger.named(id).is_some()
    }
}
