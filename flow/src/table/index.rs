//! Slots by a name, which is kept in the slot and not here.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::sync::{Mutex, MutexGuard};

/// Shards of an index.
pub(super) const SHARDS: usize = if cfg!(feature = "model") { 2 } else { 64 };

/// Slots by name. No lock is shared by all.
pub(super) struct Index {
    hasher: RandomState,
    shards: [Mutex<HashTable<Entry>>; SHARDS],
}

#[derive(Clone, Copy)]
struct Entry {
    /// So much of the name's hash that entries are moved when the table grows, and most others passed over, without a
    /// look at the slot.
    tag: u32,
    slot: u32,
}

/// The shard that a name is in, locked.
pub(super) struct Shard<'a> {
    entries: MutexGuard<'a, HashTable<Entry>>,
    tag: u32,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::default(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Locks the shard of a name.
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a hash")]
    pub(super) fn lock(&self, name: impl Hash) -> Shard<'_> {
        let hash = self.hasher.hash_one(name);
        Shard { entries: self.shards[shard_of((hash >> 32) as u32)].lock(), tag: hash as u32 }
    }
}

impl Shard<'_> {
    /// The slot with this name; `is_it` looks whether a slot has it.
    pub(super) fn find(&self, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.entries.find(spread(self.tag), |entry| entry.tag == self.tag && is_it(entry.slot)).map(|entry| entry.slot)
    }

    /// Has the name lead to `slot` and no longer to `before`.
    pub(super) fn put(&mut self, before: Option<u32>, slot: u32) {
        let tag = self.tag;
        let is_before = |entry: &Entry| entry.tag == tag && Some(entry.slot) == before;
        match self.entries.find_mut(spread(tag), is_before) {
            Some(entry) => entry.slot = slot,
            None => drop(self.entries.insert_unique(spread(tag), Entry { tag, slot }, |entry| spread(entry.tag))),
        }
    }

    /// Takes the name out if it leads to `slot`.
    pub(super) fn remove(&mut self, slot: u32) {
        let tag = self.tag;
        if let Ok(entry) = self.entries.find_entry(spread(tag), |entry| entry.tag == tag && entry.slot == slot) {
            entry.remove();
        }
    }
}

/// The table takes its place from the lowest bits and its marks from the highest.
const fn spread(tag: u32) -> u64 {
    (tag as u64) << 32 | tag as u64
}

/// Shards get unequal parts, the last about twice that of the first: they do not all double at the same number of flows, so that at
/// any number about as much room is unused, and no caller meets many that grow.
fn shard_of(hash: u32) -> usize {
    let place = (u64::from(hash) * PARTS.1) >> 32;
    PARTS.0.partition_point(|end| *end <= place).min(SHARDS - 1)
}

/// Where each shard ends, and all of them.
const PARTS: ([u64; SHARDS], u64) = {
    let mut ends = [0; SHARDS];
    let mut end = 0;
    let mut shard = 0;
    while shard < SHARDS {
        end += (SHARDS + shard) as u64;
        ends[shard] = end;
        shard += 1;
    }
    (ends, end)
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_the_slot_that_was_put_last_and_to_none_once_that_is_gone() {
        let index = Index::new();
        let names: Vec<u128> = (0..10_000).map(|number| number * 0x1_0000_0001).collect();
        let find = |name: u128| index.lock(name).find(|slot| names[slot as usize % names.len()] == name);
        for (slot, name) in (0..).zip(&names) {
            index.lock(*name).put(None, slot);
        }
        for (slot, name) in (0..).zip(&names) {
            assert_eq!(find(*name), Some(slot));
        }
        index.lock(names[7]).put(Some(7), 10_007);
        index.lock(names[7]).remove(7);
        assert_eq!(find(names[7]), Some(10_007));
        index.lock(names[7]).remove(10_007);
        assert_eq!(find(names[7]), None);
    }

    #[test]
    fn at_no_number_of_flows_is_much_more_room_unused_than_at_another() {
        let index = Index::new();
        let mut room = Vec::new();
        for number in 0..400_000u32 {
            index.lock(number).put(None, number);
            if number >= 50_000 && number % 10_000 == 0 {
                let buckets: usize = index.shards.iter().map(|shard| shard.lock().capacity()).sum();
                room.push(buckets as f64 / f64::from(number));
            }
        }
        let most = room.iter().copied().fold(0.0, f64::max);
        let least = room.iter().copied().fold(f64::MAX, f64::min);
        assert!(most < 1.6 && most - least < 0.35, "{least} to {most} places a flow");
    }
}
