//! How many copies there were, and what became of them.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_control::mirror::{CLASSES, Class};

/// Why a client did not get a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nobody was connected.
    NoClient,
    /// As much as may wait for the client did wait already.
    QueueFull,
    /// The client went, or the agent ended, before it was written.
    Disconnected,
    /// No message is so long.
    TooLong,
}

impl Loss {
    /// All of them, with the word for it in metrics.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::NoClient, "no_client"),
        (Self::QueueFull, "queue_full"),
        (Self::Disconnected, "disconnected"),
        (Self::TooLong, "too_long"),
    ];
}

/// Counts of each class. `copied` times the clients at that time, or once where there was none, is `sent` and all losses together, but for
/// what waits.
#[derive(Debug, Default)]
pub struct Counts {
    copied: [AtomicU64; CLASSES],
    copied_bytes: [AtomicU64; CLASSES],
    sent: [AtomicU64; CLASSES],
    lost: [[AtomicU64; Loss::ALL.len()]; CLASSES],
}

impl Counts {
    /// Copies that the device made.
    pub fn copied(&self, class: Class) -> u64 {
        self.copied[class.index()].load(Ordering::Relaxed)
    }

    /// Bytes of these copies.
    pub fn copied_bytes(&self, class: Class) -> u64 {
        self.copied_bytes[class.index()].load(Ordering::Relaxed)
    }

    /// Copies that were written to a client.
    pub fn sent(&self, class: Class) -> u64 {
        self.sent[class.index()].load(Ordering::Relaxed)
    }

    /// Copies that a client did not get for this reason.
    pub fn lost(&self, class: Class, loss: Loss) -> u64 {
        self.lost[class.index()][loss as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count_copy(&self, class: Class, bytes: usize) {
        self.copied[class.index()].fetch_add(1, Ordering::Relaxed);
        self.copied_bytes[class.index()].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_sent(&self, class: Class) {
        self.sent[class.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_loss(&self, class: Class, loss: Loss) {
        self.lost[class.index()][loss as usize].fetch_add(1, Ordering::Relaxed);
    }
}
