//! How packets are looked up in a snapshot of the subtables.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use sluice_flow::key::Key;
use sluice_flow::priority::Priority;

use super::hints::Hints;
use super::list::{Entry, List};
use super::table::{Found, Hash, Table, Word};

/// Packets that are looked up together, so that the memory that they need is fetched together (`NETDEV_MAX_BURST`).
pub const BATCH: usize = 32;

/// A snapshot to look packets up in.
pub struct View<'a> {
    pub(super) list: arc_swap::Guard<Arc<List>>,
    pub(super) hasher: &'a RandomState,
}

impl View<'_> {
    /// The index of the rule that the packet matches: one of those with the highest priority.
    #[inline]
    pub fn lookup(&self, key: &Key) -> Option<u32> {
        let hint = self.hint(key);
        if let Some((hints, hash)) = hint
            && let Some(place) = self.list.hinted(hints, hash)
            && let Some(found) = self.find(&self.list.entries[place], key)
        {
            return Some(found.rule);
        }
        self.walk(key, None, hint)
    }

    /// Looks up to [`BATCH`] packets up at once: what [`View::lookup`] finds for each. Keys beyond that, or beyond the
    /// places for what is found, are left out.
    pub fn lookup_batch(&self, keys: &[Key], found: &mut [Option<u32>]) {
        let Some(first) = self.list.entries.first() else {
            return found.fill(None);
        };
        let count = keys.len().min(found.len()).min(BATCH);
        let keys = &keys[..count];
        // Each step is made for all packets before the next one, and does not depend on what the same step of another
        // packet fetches: the processor waits for many cache lines at a time.
        let mut hashes = [0; BATCH];
        let mut tried = [0; BATCH];
        let mut touched = 0;
        let hints = self.list.hints.as_deref();
        if let Some(hints) = hints {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self::hash(self.hasher, self.list.union(), key);
            }
            for (place, hash) in tried.iter_mut().zip(&hashes[..count]) {
                *place = self.list.hinted(hints, *hash).unwrap_or(0);
            }
            // Of many subtables not even what describes them is at hand.
            touched ^= tried[..count].iter().fold(0, |sum, place| sum ^ self.list.entries[*place].touch());
        }
        let mut probes = [(first, &first.tables[0], Hash(0)); BATCH];
        for ((probe, place), key) in probes.iter_mut().zip(&tried).zip(keys) {
            let entry = &self.list.entries[*place];
            let (table, hash) = entry.table(self.hasher, key);
            *probe = (entry, table, hash);
        }
        let probes = &probes[..count];
        if hints.is_some() {
            touched ^= probes.iter().fold(0, |sum, (_, table, _)| sum ^ table.touch_places());
        }
        let mut controls = [0; BATCH];
        for (control, (_, table, hash)) in controls.iter_mut().zip(probes) {
            *control = table.control(*hash);
        }
        let mut candidates = [None; BATCH];
        for ((candidate, control), (_, table, hash)) in candidates.iter_mut().zip(&controls).zip(probes) {
            *candidate = table.candidate(*hash, *control);
        }
        if hints.is_some() {
            for (candidate, (_, table, _)) in candidates.iter().zip(probes) {
                touched ^= candidate.map_or(0, |candidate| table.touch_chunk(candidate));
            }
        }
        for (candidate, (_, table, _)) in candidates.iter().zip(probes) {
            touched ^= candidate.map_or(0, |row| table.touch(row));
        }
        std::hint::black_box(touched);
        for (index, (key, (entry, table, hash))) in keys.iter().zip(probes).enumerate() {
            let first = candidates[index].and_then(|row| table.found_in(row, &entry.words, key));
            found[index] = match first.or_else(|| table.find(*hash, &entry.words, key)) {
                Some(found) => {
                    entry.hit();
                    Some(found.rule)
                }
                None => self.walk(key, Some(tried[index]), hints.map(|hints| (hints, hashes[index]))),
            };
        }
    }

    /// The subtables that a packet is tried in when nothing is remembered of packets like it, the one that it hits last;
    /// and the rule.
    pub fn trace(&self, key: &Key) -> (Vec<Tried>, Option<u32>) {
        let mut tried = Vec::new();
        for entry in self.list.entries.iter() {
            tried.push(Tried {
                priority: entry.subtable.priority,
                rules: u64::try_from(entry.subtable.users.load(Ordering::Relaxed)).unwrap_or(0),
                example: entry.tables.iter().find_map(Table::any),
            });
            let (table, hash) = entry.table(self.hasher, key);
            if let Some(found) = table.find(hash, &entry.words, key) {
                return (tried, Some(found.rule));
            }
        }
        (tried, None)
    }

    /// Tries all subtables but one, and remembers the one that has the packet.
    fn walk(&self, key: &Key, but: Option<usize>, hint: Option<(&Hints, u64)>) -> Option<u32> {
        for (place, entry) in self.list.entries.iter().enumerate() {
            if but == Some(place) {
                continue;
            }
            if entry.subtable.agreement.admits(key)
                && let Some(found) = self.find(entry, key)
            {
                if let (1.., Some((hints, hash)), Ok(number)) = (place, hint, u16::try_from(entry.subtable.number)) {
                    hints.remember(hash, number);
                }
                return Some(found.rule);
            }
        }
        None
    }

    #[inline]
    fn find(&self, entry: &Entry, key: &Key) -> Option<Found> {
        let (table, hash) = entry.table(self.hasher, key);
        let found = table.find(hash, &entry.words, key);
        if found.is_some() {
            entry.hit();
        }
        found
    }

    /// The hints, and the hash to ask them with.
    #[inline]
    fn hint(&self, key: &Key) -> Option<(&Hints, u64)> {
        let hints = self.list.hints.as_deref()?;
        Some((hints, hash(self.hasher, self.list.union(), key)))
    }
}

/// A subtable that a lookup tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The priority of its rules.
    pub priority: Priority,
    /// How many there are.
    pub rules: u64,
    /// One of them; none if the last has just gone.
    pub example: Option<u32>,
}

/// The hash of a packet's key under a mask.
#[inline]
pub(super) fn hash(hasher: &RandomState, words: &[Word], key: &Key) -> u64 {
    let mut hasher = hasher.build_hasher();
    for word in words {
        hasher.write_u64(key.words[word.index] & word.mask);
    }
    hasher.finish()
}

/// Which of so many shards, a power of two and sixteen at the most, a masked key is in.
#[inline]
pub(super) fn shard_of(hash: u64, shards: usize) -> usize {
    // The highest four bits; table and tag use others.
    (hash >> 60) as usize & (shards - 1)
}
