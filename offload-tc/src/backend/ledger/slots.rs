//! The slots of the ledger, in shards, and how their numbers become handles.

use std::collections::VecDeque;

use sluice_flow::backend::Handle;

use super::record::{Entry, Record, State, handle_of};

pub(super) const SHARDS: usize = 64;
/// Handles up to here are adopted: more rules than any machine has, and few enough that an absurd handle does not take much
/// memory.
pub(super) const MOST: u32 = 1 << 24;

#[derive(Default)]
pub(super) struct Slot {
    /// How many rules it has had; the upper half of the handle.
    pub(super) life: u32,
    pub(super) state: State,
    pub(super) record: Option<Record>,
}

#[derive(Default)]
pub(super) struct Shard {
    pub(super) slots: Vec<Slot>,
    /// Vacant slots, each with the last listing that began before it became vacant.
    pub(super) free: VecDeque<(u32, u64)>,
}

/// The shard that a worker uses next.
#[derive(Debug)]
pub(crate) struct ShardCursor(pub(super) usize);

impl ShardCursor {
    /// The cursor of one of several workers, each of which begins at another shard.
    pub(crate) const fn new(number: usize) -> Self {
        Self(number.wrapping_mul(SHARDS / 2 + 1))
    }

    pub(super) const fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_add(1);
        self.0 % SHARDS
    }
}

impl Slot {
    /// Whether its rule is installed, and as an entry shows it.
    pub(super) fn is_installed_as(&self, shown: &Entry) -> bool {
        let is_same = |record: &Record| record.settlements == shown.record.settlements;
        self.state == State::Installed && self.record.as_ref().is_some_and(is_same)
    }

    pub(super) fn occupy(&mut self, record: Record, index: u32) -> Handle {
        self.life = self.life.wrapping_add(1);
        self.state = State::Arriving;
        self.record = Some(record);
        handle_of(self.life, index)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the kernel has 32 bits for handles, and memory ends before")]
pub(super) const fn narrow(local: usize) -> u32 {
    local as u32
}

pub(super) const fn split(index: u32) -> (usize, usize) {
    (index as usize % SHARDS, index as usize / SHARDS)
}

pub(super) fn index(shard: usize, local: u32) -> u32 {
    local * narrow(SHARDS) + narrow(shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_the_ledger_is_small() {
        assert!(size_of::<Slot>() <= 80, "{}", size_of::<Slot>());
    }
}
