//! Tables, by what leads to them.

use std::sync::Arc;

use sluice_flow::ChainId;

use super::changes::Changes;
use super::tunnel::Entrance;

/// Where a rule is: packets that come through a tunnel have tables of their own, and so have those with changes that are deferred.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableId {
    /// The chain.
    pub chain: ChainId,
    /// The tunnel.
    pub entrance: Option<Entrance>,
    /// Changes that are deferred until the packet is sent on.
    pub deferred: Option<Arc<Changes>>,
}

impl TableId {
    /// Returns the table of another chain, for packets of the same way.
    pub fn to(&self, chain: ChainId, deferred: Option<Arc<Changes>>) -> Self {
        Self { chain, entrance: self.entrance, deferred }
    }
}
