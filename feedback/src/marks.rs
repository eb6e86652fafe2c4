//! Which lives ovs-vswitchd has deleted: written by the library, read by the agent.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::records::Record;

/// The marks of a memory, a word for each slot: the sequence of the record whose deletion was answered last. A record has another sequence
/// in each life, so that a mark says nothing of the next one.
#[derive(Clone, Copy)]
pub(crate) struct Marks<'a>(pub(crate) &'a [AtomicU64]);

impl Marks<'_> {
    /// Whether the answer to the deletion of this life was received.
    pub(crate) fn has(self, record: &Record) -> bool {
        record.slot < self.0.len() && self.load(record.slot) == record.sequence
    }

    /// The mark of a slot.
    pub(crate) fn load(self, slot: usize) -> u64 {
        self.0.get(slot).map_or(0, |mark| mark.load(Ordering::Relaxed))
    }

    /// Notes that it was.
    pub(crate) fn set(self, record: &Record) {
        if let Some(mark) = self.0.get(record.slot) {
            mark.store(record.sequence, Ordering::Relaxed);
        }
    }
}
