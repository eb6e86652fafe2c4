//! The entries of a shard, one row each: the rule, and the halves of the words of the key that the mask touches and in which
//! rules differ.
//!
//! Rows lie in chunks that are made when they are needed and never move, so that a table that grows takes them with it
//! as they are, and what is allocated but not used is less than a chunk.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use sluice_flow::key::Key;

use super::layout::Layout;
use super::table::Word;
use crate::chunks::Chunks;

/// Of two rows less than a power of two, so that with the counts of an [`Arc`] most chunks fill what an allocator gives for them, and need not
/// be given the next greater piece, which is a quarter or an eighth longer.
const CHUNKS: Chunks = Chunks { first: 8, doubling: 128, further: 126 };

/// Places for rows. Cloning it shares them.
#[derive(Clone)]
pub(super) struct Rows {
    chunks: Arc<[OnceLock<Arc<[AtomicU32]>>]>,
    /// What they leave out, if they do.
    layout: Option<Arc<Layout>>,
    /// Numbers in a row.
    width: usize,
}

impl Rows {
    /// Room for at least so many rows of a mask.
    pub(super) fn with_capacity(rows: u32, words: &[Word], layout: Option<Arc<Layout>>) -> Self {
        let halves = |word: &Word| halves(word.mask).into_iter().filter(|half| *half != 0).count();
        let width = 1 + own(layout.as_deref(), words).iter().map(halves).sum::<usize>();
        Self { chunks: (0..CHUNKS.needed(rows)).map(|_| OnceLock::new()).collect(), layout, width }
    }

    /// The same rows, and room for at least so many.
    pub(super) fn grown(&self, rows: u32) -> Self {
        let chunks = CHUNKS.needed(rows).max(self.chunks.len());
        let chunks = self.chunks.iter().cloned().chain(std::iter::repeat_with(OnceLock::new)).take(chunks).collect();
        Self { chunks, ..self.clone() }
    }

    /// What they leave out, if they do.
    pub(super) fn layout(&self) -> Option<&Arc<Layout>> {
        self.layout.as_ref()
    }

    /// Whether they can hold a key.
    #[inline]
    pub(super) fn suit(&self, key: &Key) -> bool {
        self.layout.as_ref().is_none_or(|layout| layout.suits(key))
    }

    /// Rows that there is room for.
    pub(super) fn capacity(&self) -> u32 {
        (0..self.chunks.len()).map(|chunk| CHUNKS.length(chunk)).sum()
    }

    /// The rule of a row whose key has the bits of the packet's that the mask touches.
    #[inline]
    pub(super) fn rule_if_equal(&self, row: u32, words: &[Word], key: &Key) -> Option<u32> {
        let (rule, mut values) = self.get(row)?.split_first()?;
        for word in self.own(words) {
            for (half, mask) in halves(key.words[word.index] & word.mask).into_iter().zip(halves(word.mask)) {
                if mask != 0 {
                    let (value, rest) = values.split_first()?;
                    if value.load(Ordering::Relaxed) != half {
                        return None;
                    }
                    values = rest;
                }
            }
        }
        self.suit(key).then(|| rule.load(Ordering::Relaxed))
    }

    /// The rule of a row.
    pub(super) fn rule(&self, row: u32) -> Option<u32> {
        Some(self.get(row)?.first()?.load(Ordering::Relaxed))
    }

    /// Reads where a row lies, so that it is found at once when it is read.
    #[inline]
    pub(super) fn touch_chunk(&self, row: u32) -> u64 {
        let (chunk, _) = CHUNKS.place(row);
        self.chunks.get(chunk).and_then(OnceLock::get).map_or(0, |values| values.len() as u64)
    }

    /// Reads the ends of a row, which may be on two cache lines, so that it is at hand when it is compared.
    #[inline]
    pub(super) fn touch(&self, row: u32) -> u64 {
        let values = self.get(row).unwrap_or_default();
        let ends = values.first().into_iter().chain(values.last());
        ends.fold(0, |sum, value| sum ^ u64::from(value.load(Ordering::Relaxed)))
    }

    /// The key of a row.
    pub(super) fn read(&self, row: u32, words: &[Word]) -> Key {
        let mut key = Key::ZERO;
        let mut values = self.get(row).unwrap_or_default().iter().skip(1);
        for word in self.own(words) {
            for (mask, shift) in halves(word.mask).into_iter().zip([0, 32]).filter(|(mask, _)| *mask != 0) {
                let value = values.next().map_or(0, |value| value.load(Ordering::Relaxed)) & mask;
                key.words[word.index] |= u64::from(value) << shift;
            }
        }
        match &self.layout {
            Some(layout) => layout.complete(key),
            None => key,
        }
    }

    /// Fills a row that no reader has with a key that they [can hold](Rows::suit).
    pub(super) fn write(&self, row: u32, words: &[Word], key: &Key, rule: u32) {
        let (chunk, _) = CHUNKS.place(row);
        self.chunks[chunk]
            .get_or_init(|| (0..CHUNKS.length(chunk) as usize * self.width).map(|_| AtomicU32::new(0)).collect());
        let words = self.own(words).iter();
        let touched =
            words.flat_map(|word| halves(key.words[word.index] & word.mask).into_iter().zip(halves(word.mask)));
        let halves = touched.filter(|(_, mask)| *mask != 0).map(|(half, _)| half);
        for (place, value) in self.get(row).unwrap_or_default().iter().zip(std::iter::once(rule).chain(halves)) {
            place.store(value, Ordering::Relaxed);
        }
    }

    /// What they hold of the words of the mask.
    #[inline]
    fn own<'a>(&'a self, words: &'a [Word]) -> &'a [Word] {
        own(self.layout.as_deref(), words)
    }

    #[inline]
    fn get(&self, row: u32) -> Option<&[AtomicU32]> {
        let (chunk, offset) = CHUNKS.place(row);
        let start = offset * self.width;
        self.chunks.get(chunk)?.get()?.get(start..start + self.width)
    }
}

#[inline]
fn own<'a>(layout: Option<&'a Layout>, words: &'a [Word]) -> &'a [Word] {
    layout.map_or(words, |layout| &layout.own)
}

/// The lower half of a word, and the upper one.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of the number")]
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
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
        let rows = Rows::with_capacity(1, &words, None);
        rows.write(0, &words, &key(7), 70);
        let more = rows.grown(1000);
        more.write(999, &words, &key(9), 90);
        assert_eq!(more.rule_if_equal(0, &words, &key(7)), Some(70));
        assert_eq!(more.rule_if_equal(999, &words, &key(9)), Some(90));
        assert_eq!(more.rule_if_equal(999, &words, &key(7)), None);
        more.write(0, &words, &key(8), 80);
        assert_eq!(rows.rule_if_equal(0, &words, &key(8)), Some(80), "an old reader sees the same row");
        assert_eq!((more.read(999, &words), more.rule(999)), (key(9), Some(90)));
    }

    #[test]
    fn a_row_holds_the_halves_in_which_keys_differ_and_no_others() {
        let words =
            [Word { index: 0, mask: 0xff << 32 }, Word { index: 1, mask: u64::MAX }, Word { index: 2, mask: 1 }];
        let mut key = Key { words: [u64::MAX; sluice_flow::field::KEY_WORDS] };
        key.words[1] = 0x0123_4567_89ab_cdef;
        let mut next = key;
        next.words[1] += 1;
        let narrow = Layout::of(&words, [key, next].into_iter());
        for (layout, width) in [(None, 1 + 1 + 2 + 1), (narrow.map(Arc::new), 1 + 1)] {
            let rows = Rows::with_capacity(1, &words, layout);
            assert_eq!(rows.width, width);
            rows.write(0, &words, &key, 5);
            assert_eq!(rows.rule_if_equal(0, &words, &key), Some(5));
            let read = rows.read(0, &words);
            assert_eq!(read.words[..3], [0xff << 32, 0x0123_4567_89ab_cdef, 1]);
            for (word, bit) in [(0, 32), (1, 0), (1, 63), (2, 0)] {
                let mut other = key;
                other.words[word] ^= 1 << bit;
                assert_eq!(rows.rule_if_equal(0, &words, &other), None);
            }
        }
    }

    #[test]
    fn chunks_of_rows_fill_the_pieces_that_an_allocator_gives() {
        // Those of jemalloc: four between a power of two and the next.
        let piece = |bytes: usize| bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16));
        let in_vain = |width: usize| {
            let bytes = 2 * size_of::<usize>() + CHUNKS.further as usize * width * size_of::<u32>();
            (piece(bytes) - bytes) / CHUNKS.further as usize
        };
        assert!((1..=8).all(|width| in_vain(width) == 0), "{:?}", (1..=16).map(in_vain).collect::<Vec<_>>());
        assert!((9..=16).all(|width| in_vain(width) < size_of::<u32>() + 1));
    }
}
