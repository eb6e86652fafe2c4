//! Answers of the device, told to who asked.

use super::count::Count;

/// What was asked for is known, or never will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The counters of a bulk.
    Bulk {
        /// The number that the reader gave.
        reader: u64,
        /// The bulk.
        bulk: usize,
        /// Whether the device has told them.
        is_done: bool,
    },
    /// All that rules of a batch have counted which were removed; each batch is told in one or more parts.
    Last {
        /// The number that the batch was given.
        batch: u64,
        /// Places in the batch, with what was counted if the device has told it.
        counts: Vec<(usize, Option<Count>)>,
    },
}
