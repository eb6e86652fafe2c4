//! What the library counts of its own work, in a part of the memory that it alone writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// The word that counts changes to settings of meters, behind the counters.
const METER_CHANGES: usize = 6;

/// How often settings of meters have changed. Who reads it first reads settings that are as new.
pub(crate) fn meter_changes(words: &[AtomicU64]) -> u64 {
    words.get(METER_CHANGES).map_or(0, |word| word.load(Ordering::Acquire))
}

/// Counts a change, after it was made.
pub(crate) fn count_meter_change(words: &[AtomicU64]) {
    if let Some(word) = words.get(METER_CHANGES) {
        word.fetch_add(1, Ordering::Release);
    }
}

/// Counters of the library since the memory was made. They are the library's word, and those of all processes that have the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams of the family `ovs_flow`.
    pub datagrams: u64,
    /// Messages about a flow with a UFID in them.
    pub messages: u64,
    /// Messages that a record was added to.
    pub changed: u64,
    /// Messages that were left as they were since the receiver had no room for what is added.
    pub no_room: u64,
    /// Messages that were left as they were since their record changed hands whenever it was read.
    pub torn: u64,
    /// Datagrams of which a part was left as it was since it makes no sense.
    pub malformed: u64,
}

impl Counters {
    const fn words(self) -> [u64; 6] {
        [self.datagrams, self.messages, self.changed, self.no_room, self.torn, self.malformed]
    }

    pub(crate) fn read(words: &[AtomicU64]) -> Self {
        let word = |place: usize| words.get(place).map_or(0, |word| word.load(Ordering::Relaxed));
        Self {
            datagrams: word(0),
            messages: word(1),
            changed: word(2),
            no_room: word(3),
            torn: word(4),
            malformed: word(5),
        }
    }

    pub(crate) fn add_to(self, words: &[AtomicU64]) {
        for (word, more) in words.iter().zip(self.words()) {
            if more > 0 {
                word.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
}
