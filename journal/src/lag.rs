//! How far the log is behind what is wanted, and when that is said.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sluice_flow::Timestamp;
use sluice_flow::table::Unwritten;

/// How far the log may be behind before the agent is not ready, and nobody waits for it any more.
const LATE: Duration = Duration::from_secs(5);

/// What the threads of the log have come to. Read without a lock, for they may hang in the disk.
#[derive(Default)]
pub(super) struct Pace {
    /// What was changed before this time is written.
    written: AtomicU64,
    is_writing: AtomicBool,
    /// What was written before this time is on the disk.
    synced: AtomicU64,
    is_syncing: AtomicBool,
    /// What the table had [given up](sluice_flow::table::Unwritten::given_up) when the writer last began what it has finished.
    passed: AtomicUsize,
    /// The same when everything was last written anew.
    made_up_for: AtomicUsize,
}

/// How far the log is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// For how long the oldest change that is not written has waited, at most.
    pub write: Duration,
    /// For how long the oldest record that is not on the disk has been written, at most.
    pub sync: Duration,
    /// Slots of the table that are kept for the ends of flows, which are not written.
    pub kept_slots: usize,
    /// Ends of flows that were given up because there were too many of those.
    pub given_up: usize,
}

impl Lag {
    /// For how long what is written next may have to wait, if nobody should wait for it.
    pub(super) fn is_late(&self) -> Option<Duration> {
        Some(self.write).filter(|lag| *lag >= LATE)
    }

    /// Why the agent is not ready, if it is that late.
    pub(super) fn complaint(&self, sync_interval: Duration) -> Option<Complaint> {
        let is_late = self.write >= LATE || self.sync >= LATE + sync_interval;
        is_late.then_some(Complaint(*self))
    }
}

/// Said of a log that is too far behind.
pub(super) struct Complaint(Lag);

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lag { write, sync, .. } = self.0;
        if write >= LATE {
            write!(out, "the log of flows is {} s behind: the disk does not answer", write.as_secs())
        } else {
            write!(out, "the disk has not synced the log of flows for {} s", sync.as_secs())
        }
    }
}

impl Pace {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { written: now.0.into(), synced: now.0.into(), ..Self::default() }
    }

    /// The writer begins to write what was changed before now.
    pub(super) fn begin_writing(&self) {
        self.is_writing.store(true, Ordering::Release);
    }

    /// The writer has written what was changed before it began.
    pub(super) fn have_written(&self, began: Timestamp, given_up: usize) {
        self.written.store(began.0, Ordering::Release);
        self.passed.store(given_up, Ordering::Release);
        self.is_writing.store(false, Ordering::Release);
    }

    /// Whether all that was changed before is written. Takes no lock.
    pub(super) fn has_written_all(&self, unwritten: &Unwritten) -> bool {
        // In this order: the writer says that it writes before it takes anything out of the queue.
        unwritten.is_empty() && !self.is_writing.load(Ordering::Acquire)
    }

    pub(super) fn begin_syncing(&self) {
        self.is_syncing.store(true, Ordering::Release);
    }

    /// What was written before it began is on the disk.
    pub(super) fn have_synced(&self, began: Timestamp) {
        self.synced.store(began.0, Ordering::Release);
        self.is_syncing.store(false, Ordering::Release);
    }

    /// What the table had given up by the time of which all is written.
    pub(super) fn passed(&self) -> usize {
        self.passed.load(Ordering::Acquire)
    }

    /// Everything has been written anew since the table had given up so many.
    pub(super) fn have_made_up_for(&self, given_up: usize) {
        self.made_up_for.store(given_up, Ordering::Release);
    }

    /// How far the log is behind. Takes no lock.
    pub(super) fn lag(&self, now: Timestamp, unwritten: &Unwritten, is_unsynced: &AtomicBool) -> Lag {
        let since = |time: &AtomicU64| now.since(Timestamp(time.load(Ordering::Acquire)));
        let is_writing = self.is_writing.load(Ordering::Acquire) || !unwritten.is_empty();
        let is_syncing = self.is_syncing.load(Ordering::Acquire) || is_unsynced.load(Ordering::Acquire);
        Lag {
            write: if is_writing { since(&self.written) } else { Duration::ZERO },
            sync: if is_syncing { since(&self.synced) } else { Duration::ZERO },
            kept_slots: unwritten.kept(),
            given_up: unwritten.given_up().saturating_sub(self.made_up_for.load(Ordering::Acquire)),
        }
    }
}
