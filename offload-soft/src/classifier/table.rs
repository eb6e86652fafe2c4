//! One shard of a subtable: a hash table that is read without locks while one writer at a time changes it.
//!
//! A bucket is half a cache line: a word of six tags of eight bits, and six cells. A miss is one cache line and one
//! comparison of all tags at once; a hit is that and the line of the row, which has the masked key and the rule. Every place is an atomic number, and
//! what they refer to never moves: growing makes new buckets for the same rows. Only once it is clear what rules have in common, and when one
//! comes that has not, they are copied to rows that hold less or more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sluice_flow::key::Key;

use super::layout::Layout;
use super::rows::Rows;
use crate::free_list::FreeList;

/// Cells in a bucket.
const CELLS: usize = 6;
/// Entries in a bucket, on average, at which the table is full.
const FULL: usize = 4;
/// Entries from which on rows are worth a look at what they have in common.
const MANY: usize = 128;
/// The byte of the control word that counts the entries that found the bucket full and went on.
const PASSED_SHIFT: u32 = 56;
const TAGS: u64 = 0x0000_ffff_ffff_ffff;
/// One in every byte that has a tag.
const EACH: u64 = 0x0000_0101_0101_0101;

/// A word of the key and the bits of it that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Word {
    /// Which word of the key.
    pub(super) index: usize,
    /// Which bits.
    pub(super) mask: u64,
}

/// The words that a mask touches.
pub(super) fn words(mask: &Key) -> impl Iterator<Item = Word> {
    let words = mask.words.iter().enumerate();
    words.filter(|(_, mask)| **mask != 0).map(|(index, mask)| Word { index, mask: *mask })
}

/// The same in a list.
pub(super) fn listed_words(mask: &Key) -> Vec<Word> {
    // More than almost all masks touch: a list that grows is moved with each doubling.
    const MANY: usize = 16;
    let mut list = Vec::with_capacity(MANY);
    list.extend(words(mask));
    list
}

/// The hash of a masked key, and how its bits are used.
#[derive(Clone, Copy)]
pub(super) struct Hash(pub(super) u64);

impl Hash {
    /// The tag in every byte of a control word that has one. Never zero, which stands for an empty cell.
    fn pattern(self) -> u64 {
        let tag = (self.0 >> 52 & 0xff).max(1);
        tag * EACH
    }

    fn bucket(self, buckets: usize) -> usize {
        (((self.0 & u64::from(u32::MAX)) * buckets as u64) >> 32) as usize
    }
}

/// The places of a table. Cloning it shares them.
#[derive(Clone)]
pub(super) struct Table {
    /// One less than a power of two, so that with the counts of the [`Arc`] they take as many bytes as an allocator gives for them.
    buckets: Arc<[Bucket]>,
    rows: Rows,
}

#[repr(align(32))]
#[derive(Default)]
struct Bucket {
    /// Six tags, lowest byte first, and in the highest byte how many entries passed by.
    control: AtomicU64,
    /// Rows.
    cells: [AtomicU32; CELLS],
}

/// An entry that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// The rule.
    pub(super) rule: u32,
    row: u32,
}

impl Table {
    /// A table with so many buckets.
    fn with_buckets(buckets: usize, rows: Rows) -> Self {
        Self { buckets: (0..buckets).map(|_| Bucket::default()).collect(), rows }
    }

    /// Entries that there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.buckets.len() * FULL
    }

    /// Reads where the buckets are, so that they are found at once.
    #[inline]
    pub(super) fn touch_places(&self) -> u64 {
        self.buckets.len() as u64
    }

    /// The control word that a lookup begins with.
    #[inline]
    pub(super) fn control(&self, hash: Hash) -> u64 {
        self.buckets[hash.bucket(self.buckets.len())].control.load(Ordering::SeqCst)
    }

    /// The row of the first entry whose tag is that of the packet, by a control word that was read before.
    #[inline]
    pub(super) fn candidate(&self, hash: Hash, control: u64) -> Option<u32> {
        let candidates = equal_tags(control, hash.pattern());
        let bucket = &self.buckets[hash.bucket(self.buckets.len())];
        (candidates != 0).then(|| bucket.cells[first_cell(candidates)].load(Ordering::SeqCst))
    }

    /// Reads where a row is, so that it is found at once.
    #[inline]
    pub(super) fn touch_chunk(&self, row: u32) -> u64 {
        self.rows.touch_chunk(row)
    }

    /// Reads something of a row, so that it is at hand when it is compared.
    #[inline]
    pub(super) fn touch(&self, row: u32) -> u64 {
        self.rows.touch(row)
    }

    /// The entry of a row if its masked key is that of the packet.
    #[inline]
    pub(super) fn found_in(&self, row: u32, words: &[Word], key: &Key) -> Option<Found> {
        self.rows.rule_if_equal(row, words, key).map(|rule| Found { rule, row })
    }

    /// The entry whose masked key is that of the packet.
    #[inline]
    pub(super) fn find(&self, hash: Hash, words: &[Word], key: &Key) -> Option<Found> {
        let pattern = hash.pattern();
        let mut index = hash.bucket(self.buckets.len());
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[index];
            let control = bucket.control.load(Ordering::SeqCst);
            let mut candidates = equal_tags(control, pattern);
            while candidates != 0 {
                let row = bucket.cells[first_cell(candidates)].load(Ordering::SeqCst);
                if let Some(found) = self.found_in(row, words, key) {
                    return Some(found);
                }
                candidates &= candidates - 1;
            }
            if control >> PASSED_SHIFT == 0 {
                return None;
            }
            index = self.after(index);
        }
        None
    }

    /// The bucket that is next to one.
    #[inline]
    fn after(&self, index: usize) -> usize {
        if index + 1 == self.buckets.len() { 0 } else { index + 1 }
    }

    /// Any rule.
    pub(super) fn any(&self) -> Option<u32> {
        self.linked_rows().find_map(|row| self.rows.rule(row))
    }

    /// The rows that lookups find.
    fn linked_rows(&self) -> impl Iterator<Item = u32> {
        self.buckets.iter().flat_map(|bucket| {
            let mut taken = taken_cells(bucket.control.load(Ordering::SeqCst));
            std::iter::from_fn(move || {
                let place = (taken != 0).then(|| first_cell(taken))?;
                taken &= taken - 1;
                Some(bucket.cells[place].load(Ordering::SeqCst))
            })
        })
    }
}

/// A row that no new reader can find, but an old one may still read.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadRow(u32);

/// The writer's side of a table.
pub(super) struct Writer {
    table: Table,
    live: usize,
    /// Rows that were given back.
    free: FreeList,
    /// Rows from here on were never used.
    fresh: u32,
}

impl Writer {
    /// That of a table with room for a few entries of a mask.
    pub(super) fn new(words: &[Word]) -> Self {
        Self::empty(words, None)
    }

    /// One whose rows leave out what those of another one do.
    pub(super) fn like(other: &Self, words: &[Word]) -> Self {
        Self::empty(words, other.table.rows.layout().cloned())
    }

    fn empty(words: &[Word], layout: Option<Arc<Layout>>) -> Self {
        let table = Table::with_buckets(1, Rows::with_capacity(1, words, layout));
        Self { table, live: 0, free: FreeList::default(), fresh: 0 }
    }

    /// The table, for readers.
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Entries that lookups find.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Their keys, and their rules.
    pub(super) fn entries(&self, words: &[Word]) -> impl Iterator<Item = (Key, u32)> {
        let rows = &self.table.rows;
        self.table.linked_rows().filter_map(move |row| Some((rows.read(row, words), rows.rule(row)?)))
    }

    pub(super) fn find(&self, hash: Hash, words: &[Word], key: &Key) -> Option<Found> {
        self.table.find(hash, words, key)
    }

    /// Whether one more entry, with this key, needs no new table.
    pub(super) fn takes(&self, key: &Key) -> bool {
        let has_row = !self.free.is_empty() || self.fresh < self.table.rows.capacity();
        self.live < self.table.capacity() && has_row && self.table.rows.suit(key)
    }

    /// Makes a new table that takes one more entry, with this key; the caller has to let the readers know it.
    pub(super) fn rebuild(&mut self, words: &[Word], key: &Key, hash: impl Fn(&Key) -> Hash) -> &Table {
        let buckets = ((self.live + 1).div_ceil(FULL) + 1).next_power_of_two() - 1;
        let entries = u32::try_from(buckets * FULL).unwrap_or(u32::MAX);
        let room = entries.max(self.fresh.saturating_add(1));
        let other_rows =
            self.other_layout(words, key).map(|layout| Rows::with_capacity(room, words, layout.map(Arc::new)));
        let is_copied = other_rows.is_some();
        let rows = other_rows.unwrap_or_else(|| self.table.rows.grown(room));
        let old = std::mem::replace(&mut self.table, Table::with_buckets(buckets, rows));
        for row in old.linked_rows() {
            let key = old.rows.read(row, words);
            if is_copied {
                self.table.rows.write(row, words, &key, old.rows.rule(row).unwrap_or_default());
            }
            self.link(hash(&key), row);
        }
        &self.table
    }

    /// What rows should leave out, if anything, once there is an entry with this key; `None` if they are right as they are.
    fn other_layout(&self, words: &[Word], key: &Key) -> Option<Option<Layout>> {
        match self.table.rows.layout() {
            Some(layout) if layout.suits(key) => None,
            Some(layout) => Some(layout.suiting(words, key)),
            None if self.live < MANY => None,
            None => Layout::of(words, std::iter::once(*key).chain(self.entries(words).map(|(key, _)| key))).map(Some),
        }
    }

    /// Puts an entry in, which the table must [take](Writer::takes).
    pub(super) fn insert(&mut self, hash: Hash, words: &[Word], key: &Key, rule: u32) {
        let row = self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        });
        self.table.rows.write(row, words, key, rule);
        self.link(hash, row);
        self.live += 1;
    }

    /// Lets lookups find an entry.
    fn link(&self, hash: Hash, row: u32) {
        let buckets = &self.table.buckets;
        let mut index = hash.bucket(buckets.len());
        loop {
            let bucket = &buckets[index];
            let control = bucket.control.load(Ordering::SeqCst);
            let empty = equal_tags(control, 0);
            if empty != 0 {
                let place = first_cell(empty);
                // Who sees the tag sees the cell, and the row that it names.
                bucket.cells[place].store(row, Ordering::Release);
                let tag = hash.pattern() & 0xff << (8 * place);
                bucket.control.store(control | tag, Ordering::Release);
                return;
            }
            bucket.control.store(passed(control, u64::saturating_add), Ordering::SeqCst);
            index = self.table.after(index);
        }
    }

    /// Takes the entry of a rule out; the row can be given back once no reader can see it any more.
    pub(super) fn remove(&mut self, hash: Hash, words: &[Word], key: &Key, rule: u32) -> Option<DeadRow> {
        let found = self.table.find(hash, words, key).filter(|found| found.rule == rule)?;
        let buckets = &self.table.buckets;
        let mut index = hash.bucket(buckets.len());
        loop {
            let bucket = &buckets[index];
            let control = bucket.control.load(Ordering::SeqCst);
            let mut candidates = equal_tags(control, hash.pattern());
            while candidates != 0 {
                let place = first_cell(candidates);
                if bucket.cells[place].load(Ordering::SeqCst) == found.row {
                    bucket.control.store(control & !(0xff << (8 * place)), Ordering::SeqCst);
                    self.live -= 1;
                    return Some(DeadRow(found.row));
                }
                candidates &= candidates - 1;
            }
            // What passed by here on its way in is gone. A count that ran over stays.
            if control >> PASSED_SHIFT != 0xff {
                bucket.control.store(passed(control, u64::saturating_sub), Ordering::SeqCst);
            }
            index = self.table.after(index);
        }
    }

    /// Gives a row back.
    pub(super) fn free(&mut self, dead: DeadRow) {
        self.free.push(dead.0);
    }
}

/// The control word with the count of entries that passed by changed by one, within a byte.
fn passed(control: u64, change: fn(u64, u64) -> u64) -> u64 {
    control & TAGS | change(control >> PASSED_SHIFT, 1).min(0xff) << PASSED_SHIFT
}

/// The lowest bit of each byte whose tag equals that of the pattern; exact, unlike the shorter ways of doing it.
#[inline]
fn equal_tags(control: u64, pattern: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let difference = (control ^ pattern) & TAGS;
    let zero = !((difference & LOW).wrapping_add(LOW) | difference | LOW);
    (zero & TAGS) >> 7
}

/// The lowest bit of each byte that has a tag.
fn taken_cells(control: u64) -> u64 {
    equal_tags(control, 0) ^ EACH
}

#[inline]
fn first_cell(bits: u64) -> usize {
    // At most 40 / 8, as the highest bytes are never among the bits.
    (bits.trailing_zeros() / 8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_exactly() {
        let control = 0x02_00_07_08_00_01_06_07;
        assert_eq!(equal_tags(control, 7 * EACH), 0x00_00_01_00_00_00_00_01);
        assert_eq!(equal_tags(control, 0), 0x00_00_00_00_01_00_00_00);
        assert_eq!(taken_cells(control), 0x00_00_01_01_00_01_01_01);
    }

    #[test]
    fn entries_that_share_everything_but_the_key_are_told_apart() {
        let words = [Word { index: 3, mask: u64::MAX }];
        let key = |value| {
            let mut key = Key::ZERO;
            key.words[3] = value;
            key
        };
        // All in one bucket with one tag, so that most overflow.
        let hash = |_: &Key| Hash(0x0550_0000_0000_0000);
        let mut writer = Writer::new(&words);
        for rule in 0..100 {
            let key = key(u64::from(rule));
            if !writer.takes(&key) {
                writer.rebuild(&words, &key, hash);
            }
            writer.insert(hash(&key), &words, &key, rule);
        }
        for rule in (0..100).step_by(2) {
            let dead = writer.remove(hash(&Key::ZERO), &words, &key(u64::from(rule)), rule).unwrap();
            writer.free(dead);
        }
        for rule in 0..100 {
            let found = writer.find(hash(&Key::ZERO), &words, &key(u64::from(rule))).map(|found| found.rule);
            assert_eq!(found, (rule % 2 == 1).then_some(rule));
        }
    }

    #[test]
    fn rows_leave_out_what_many_rules_have_alike_until_one_has_it_not() {
        const PROTOCOL: u64 = 6;
        let words = [Word { index: 3, mask: u64::MAX }, Word { index: 5, mask: 0xff }];
        let key = |third, fifth| {
            let mut key = Key::ZERO;
            (key.words[3], key.words[5]) = (third, fifth);
            key
        };
        let hash = |key: &Key| Hash(key.words[3].wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.words[5]);
        let mut writer = Writer::new(&words);
        let put = |writer: &mut Writer, key: Key, rule: u32| {
            if !writer.takes(&key) {
                writer.rebuild(&words, &key, hash);
            }
            assert!(writer.takes(&key));
            writer.insert(hash(&key), &words, &key, rule);
        };
        let rule_of = |writer: &Writer, key: Key| writer.find(hash(&key), &words, &key).map(|found| found.rule);
        (0..1_000).for_each(|rule| put(&mut writer, key(rule.into(), PROTOCOL), rule));
        let held = |writer: &Writer| writer.table().rows.layout().map(|layout| layout.own.to_vec());
        let lower_half = Word { index: 3, mask: u32::MAX.into() };
        assert_eq!(held(&writer), Some(vec![lower_half]), "the protocol and the upper half are left out");
        assert_eq!(rule_of(&writer, key(7, 17)), None);
        let before = writer.table().clone();
        let dead = writer.remove(hash(&key(8, PROTOCOL)), &words, &key(8, PROTOCOL), 8).unwrap();

        put(&mut writer, key(7, 17), 2_000);
        writer.free(dead);
        assert_eq!(held(&writer), Some(vec![lower_half, words[1]]));
        put(&mut writer, key(1 << 40, PROTOCOL), 2_001);
        assert_eq!(held(&writer), None);
        for rule in (0..1_000).filter(|rule| *rule != 8) {
            assert_eq!(rule_of(&writer, key(rule.into(), PROTOCOL)), Some(rule));
        }
        assert_eq!(rule_of(&writer, key(7, 17)), Some(2_000));
        assert_eq!(rule_of(&writer, key(1 << 40, PROTOCOL)), Some(2_001), "where the rule was that is gone");
        let key = key(9, PROTOCOL);
        assert_eq!(
            before.find(hash(&key), &words, &key).map(|found| found.rule),
            Some(9),
            "an old reader still has its rows"
        );
    }
}
