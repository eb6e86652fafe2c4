//! Tables, by what leads to them.

use sluice_flow::ChainId;

use super::tunnel::Entrance;

/// Where a rule is: packets that come through a tunnel have tables of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId {
    /// The chain.
    pub chain: ChainId,
    /// The tunnel.
    pub entrance: Option<Entrance>,
}
