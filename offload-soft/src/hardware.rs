//! How much of the device counts as hardware.
//!
//! A NIC in software has room for every rule. To be like one that has not, it can be told how many it takes: further rules
//! are in "software" then, which forwards and counts them just the same.

use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_flow::backend::{Placement, Room};

/// The places for rules. Without a limit nothing is counted, so that installs do not meet here.
#[derive(Default)]
pub(crate) struct Hardware {
    limit: Option<usize>,
    taken: AtomicUsize,
    waiting: AtomicUsize,
}

impl Hardware {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// How many places there are; `None` without a limit.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Where a new rule goes.
    pub(crate) fn admit(&self) -> Placement {
        if self.take() {
            return Placement::Hardware;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Placement::Software
    }

    /// A rule has gone that was there.
    pub(crate) fn dismiss(&self, placement: Placement) {
        if !self.is_limited() {
            return;
        }
        match placement {
            Placement::Hardware | Placement::Both => self.taken.fetch_sub(1, Ordering::SeqCst),
            Placement::Software | Placement::Unknown => self.waiting.fetch_sub(1, Ordering::SeqCst),
        };
    }

    /// Takes a place, unless all are taken.
    pub(crate) fn take(&self) -> bool {
        let Some(limit) = self.limit else { return true };
        let one_more = |taken: usize| (taken < limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// Gives a place back.
    pub(crate) fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
    }

    /// A rule has left software for a place that was taken for it, or come to it from one that is given back.
    pub(crate) fn moved(&self, to: Placement) {
        match to {
            Placement::Hardware | Placement::Both => self.waiting.fetch_sub(1, Ordering::SeqCst),
            Placement::Software | Placement::Unknown => {
                self.give_back();
                self.waiting.fetch_add(1, Ordering::SeqCst)
            }
        };
    }

    /// How many places are free, and how many rules found none.
    pub(crate) fn room(&self) -> Room {
        let free = self.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.taken.load(Ordering::SeqCst)));
        Room { free, waiting: self.waiting.load(Ordering::SeqCst) }
    }
}
