//! What agents that live no more have left in the device. It goes on working, and stands in the way of flows with the same match.
//!
//! An agent whose state is lost finds its own rules so: it has another number than they say.

use std::fmt::{self, Display};

use sluice_flow::backend::{Holding, Owner};
use sluice_host::lock::{LockError, Locks};

use crate::config::Config;

/// What another owner has in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub holding: Holding,
    /// Whether an agent of the owner lives.
    pub is_alive: bool,
}

impl Found {
    /// Finds out whether an agent of the owner lives: one that uses the same folder of locks.
    pub fn of(holding: Holding, config: &Config) -> Result<Self, LockError> {
        let is_alive = Locks::open(&config.lock_dir)?.is_alive(Owner(holding.mark.into()))?;
        Ok(Self { holding, is_alive })
    }

    /// Whether there is anything that may be removed or taken over.
    pub const fn is_orphan(&self) -> bool {
        let Holding { rules, chain_ends, mirrors, meters, .. } = self.holding;
        !self.is_alive && rules + chain_ends + mirrors + meters > 0
    }
}

impl Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holding { mark, rules, chain_ends, mirrors, meters, of_newer, newer_format } = self.holding;
        let counts = [(rules, "rules"), (chain_ends, "ends of chains"), (mirrors, "mirrors"), (meters, "meters")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let newer =
            newer_format.map(|format| format!("{of_newer} written by a newer sluice (notes of format {format})"));
        let all: Vec<_> = counts.chain(newer).collect();
        let life = if self.is_alive { "its agent is running" } else { "no agent of it is running" };
        write!(out, "owner {mark:08x}: {}; {life}", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_owner_has_is_said_in_one_line_and_what_a_newer_build_has_written_is_no_orphan() {
        let holding = Holding { mark: 0xbeef, rules: 3, meters: 1, ..Holding::default() };
        let found = Found { holding, is_alive: false };
        assert_eq!((found.is_orphan(), Found { is_alive: true, ..found }.is_orphan()), (true, false));
        assert_eq!(found.to_string(), "owner 0000beef: 3 rules, 1 meters; no agent of it is running");
        let newer = Holding { mark: 7, of_newer: 2, newer_format: Some(3), ..Holding::default() };
        let found = Found { holding: newer, is_alive: false };
        assert!(!found.is_orphan());
        let text = "owner 00000007: 2 written by a newer sluice (notes of format 3); no agent of it is running";
        assert_eq!(found.to_string(), text);
    }
}
