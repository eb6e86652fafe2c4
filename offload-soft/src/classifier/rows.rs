//! The masked keys of a shard's entries, one row each.
//!
//! Rows lie in chunks that are made when they are needed and never move, so that a table that grows takes them with it
//! as they are, and what is allocated but not used is less than a chunk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sluice_flow::key::Key;

use super::table::Word;
use crate::chunks::Chunks;

const CHUNKS: Chunks = Chunks { first: 8, greatest: 128 };

/// Places for rows. Cloning it shares them.
#[derive(Clone)]
pub(super) struct Rows(Arc<[OnceLock<Arc<[AtomicU64]>>]>);

impl Rows {
    /// Room for at least so many rows.
    pub(super) fn with_capacity(rows: u32) -> Self {
        Self((0..CHUNKS.needed(rows)).map(|_| OnceLock::new()).collect())
    }

    /// The same rows, and room for at least so many.
    pub(super) fn grown(&self, rows: u32) -> Self {
        let chunks = CHUNKS.needed(rows).max(self.0.len());
        Self(self.0.iter().cloned().chain(std::iter::repeat_with(OnceLock::new)).take(chunks).collect())
    }

    /// Rows that there is room for.
    pub(super) fn capacity(&self) -> u32 {
        (0..self.0.len()).map(|chunk| CHUNKS.length(chunk)).sum()
    }

    /// Whether a row holds the bits of the packet's key that the mask touches.
    #[inline]
    pub(super) fn equals(&self, row: u32, words: &[Word], key: &Key) -> bool {
        self.get(row, words.len()).is_some_and(|values| {
            let mut pairs = values.iter().zip(words);
            pairs.all(|(value, word)| value.load(Ordering::Relaxed) == key.words[word.index] & word.mask)
        })
    }

    /// Reads where a row lies, so that it is found at once when it is read.
    #[inline]
    pub(super) fn touch_chunk(&self, row: u32) -> u64 {
        let (chunk, _) = CHUNKS.place(row);
        self.0.get(chunk).and_then(OnceLock::get).map_or(0, |values| values.len() as u64)
    }

    /// Reads the ends of a row, which may be on two cache lines, so that it is at hand when it is compared.
    #[inline]
    pub(super) fn touch(&self, row: u32, width: usize) -> u64 {
        let values = self.get(row, width).unwrap_or_default();
        let ends = values.first().into_iter().chain(values.last());
        ends.fold(0, |sum, value| sum ^ value.load(Ordering::Relaxed))
    }

    /// The key that a row holds.
    pub(super) fn read(&self, row: u32, words: &[Word]) -> Key {
        let mut key = Key::ZERO;
        for (value, word) in self.get(row, words.len()).unwrap_or_default().iter().zip(words) {
            key.words[word.index] = value.load(Ordering::Relaxed);
        }
        key
    }

    /// Fills a row that no reader has.
    pub(super) fn write(&self, row: u32, words: &[Word], key: &Key) {
        let (chunk, _) = CHUNKS.place(row);
        self.0[chunk]
            .get_or_init(|| (0..CHUNKS.length(chunk) as usize * words.len()).map(|_| AtomicU64::new(0)).collect());
        for (value, word) in self.get(row, words.len()).unwrap_or_default().iter().zip(words) {
            value.store(key.words[word.index] & word.mask, Ordering::Relaxed);
        }
    }

    #[inline]
    fn get(&self, row: u32, width: usize) -> Option<&[AtomicU64]> {
        let (chunk, offset) = CHUNKS.place(row);
        let start = offset * width;
        self.0.get(chunk)?.get()?.get(start..start + width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_where_they_are_when_there_is_room_for_more() {
        let words = [Word { index: 3, mask: 0xff }, Word { index: 70, mask: u64::MAX }];
        let key = |value| {
            let mut key = Key::ZERO;
            key.words[3] = value;
            key.words[70] = value << 32;
            key
        };
        let rows = Rows::with_capacity(1);
        rows.write(0, &words, &key(7));
        let more = rows.grown(1000);
        more.write(999, &words, &key(9));
        assert!(more.equals(0, &words, &key(7)) && more.equals(999, &words, &key(9)));
        assert!(!more.equals(999, &words, &key(7)));
        more.write(0, &words, &key(8));
        assert!(rows.equals(0, &words, &key(8)), "an old reader sees the same row");
        assert_eq!(more.read(999, &words), key(9));
    }
}
