//! Chains: the tables that `recirc(N)` jumps between.

use std::fmt;

/// The number of a chain, which is the recirculation id of the flows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ChainId(pub u32);

impl ChainId {
    /// The chain in which every packet starts.
    pub const ROOT: Self = Self(0);
}

impl fmt::Display for ChainId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { out.write_str("0") } else { write!(out, "{:#x}", self.0) }
    }
}
