//! Packets that go no further.

use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that went no further, by reason.
#[derive(Debug, Default)]
pub struct Losses {
    /// The table was full, and no connection could be evicted.
    pub full: AtomicU64,
    /// The connection, as it would be committed, has a direction that belongs to another one.
    pub clash: AtomicU64,
    /// The packet could not be translated.
    pub translation: AtomicU64,
    /// A gateway did not understand the packet, or cannot expect what it announces.
    pub helper: AtomicU64,
    /// A fragment was malformed, a duplicate or an overlap, or too many waited.
    pub fragment: AtomicU64,
    /// The zone had as many connections as it may have.
    pub limit: AtomicU64,
}

impl Losses {
    /// How many for which reason.
    pub(crate) fn reasons(&self) -> [(&'static str, u64); 6] {
        [
            ("the table of connections was full", &self.full),
            ("its connection clashed with another one", &self.clash),
            ("it could not be translated", &self.translation),
            ("a gateway did not understand it, or cannot expect what it announces", &self.helper),
            ("it was a malformed, doubled or overlapping fragment, or too many waited", &self.fragment),
            ("its zone had as many connections as it may have", &self.limit),
        ]
        .map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }
}

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It is a fragment that waits for the others.
    Waits,
    Dropped,
}

/// Counts a packet that goes no further.
pub(super) fn lose(count: &AtomicU64) -> Stop {
    count.fetch_add(1, Ordering::Relaxed);
    Stop::Dropped
}
