//! One entry that a packet visited, in words.

use std::fmt;

use crate::steering::deed::Deed;

/// One entry that a packet visited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteStep {
    /// Its address.
    pub address: u64,
    /// By which fields it matches: definer mode and index, or 0x400 and the number of a match definer.
    pub lookup: u16,
    /// Whether it matched.
    pub hit: bool,
    /// What it did.
    pub did: Vec<Deed>,
    /// Where it led to.
    pub next: u64,
}

impl fmt::Display for SteStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.hit { "hit" } else { "miss" };
        write!(out, "STE {:#x} lookup {:#06x}: {outcome}", self.address, self.lookup)?;
        self.did.iter().try_for_each(|deed| write!(out, ", {deed}"))?;
        write!(out, ", on to {:#x}", self.next)
    }
}
