//! Slots by a name, which is kept in the slot and not here.
//!
//! Each shard is an ordered array with gaps: an entry lies where its tag would be if all tags were evenly spread, or as
//! soon after that as there is a place. To look a name up is to read on from there up to the first greater tag; to grow is
//! to copy entries in their order. So little is moved at a time that the array can be kept seven eighths full.

use std::hash::{BuildHasher, Hash};

// The tags choose places by themselves, so they must be even for names that count up as well: in one of some hundred
// processes `fast` leaves a shard of such with twice the places.
use foldhash::quality::RandomState;

use super::sync::{Mutex, MutexGuard};

/// Shards of an index.
pub(super) const SHARDS: usize = if cfg!(feature = "model") { 2 } else { 64 };

/// Slots by name. No lock is shared by all.
pub(super) struct Index {
    hasher: RandomState,
    shards: [Mutex<Entries>; SHARDS],
}

/// A tag and a slot, 24 bits each, the tag first, so that entries are in the order of their tags.
///
/// The tag is so much of the name's hash that entries are moved, and most others passed over, without a look at the slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry([u8; 6]);

/// A shard.
#[derive(Default)]
struct Entries {
    /// So many places that tags choose, and some behind them for entries that find their own taken.
    places: Vec<Entry>,
    choices: usize,
    /// Entries that there are.
    count: usize,
}

/// The shard that a name is in, locked.
pub(super) struct Shard<'a> {
    entries: MutexGuard<'a, Entries>,
    tag: u32,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::default(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Locks the shard of a name.
    #[expect(clippy::cast_possible_truncation, reason = "parts of a hash")]
    pub(super) fn lock(&self, name: impl Hash) -> Shard<'_> {
        let hash = self.hasher.hash_one(name);
        let tag = (hash as u32 & Entry::MOST).min(Entry::GREATEST_TAG);
        Shard { entries: self.shards[(hash >> 32) as usize % SHARDS].lock(), tag }
    }
}

impl Shard<'_> {
    /// The slot with this name; `is_it` looks whether a slot has it.
    pub(super) fn find(&self, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.entries.same(self.tag).map(|(_, entry)| entry.slot()).find(|slot| is_it(*slot))
    }

    /// Has the name lead to `slot` and no longer to `before`.
    pub(super) fn put(&mut self, before: Option<u32>, slot: u32) {
        let known = before.and_then(|before| self.entries.place_of(self.tag, before));
        match known {
            Some(place) => self.entries.places[place] = Entry::new(self.tag, slot),
            None => self.entries.insert(Entry::new(self.tag, slot)),
        }
    }

    /// Takes the name out if it leads to `slot`.
    pub(super) fn remove(&mut self, slot: u32) {
        if let Some(place) = self.entries.place_of(self.tag, slot) {
            self.entries.remove(place);
        }
    }
}

impl Entry {
    const MOST: u32 = (1 << 24) - 1;
    /// One less than what fits, so that no entry looks like [`Entry::NONE`].
    const GREATEST_TAG: u32 = Self::MOST - 1;
    /// No entry. Greater than all others.
    const NONE: Self = Self([0xff; 6]);

    fn new(tag: u32, slot: u32) -> Self {
        let [_, a, b, c] = tag.to_be_bytes();
        let [_, d, e, f] = slot.to_be_bytes();
        Self([a, b, c, d, e, f])
    }

    fn tag(self) -> u32 {
        let [a, b, c, ..] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }

    fn slot(self) -> u32 {
        let [.., d, e, f] = self.0;
        u32::from_be_bytes([0, d, e, f])
    }
}

impl Entries {
    /// Places of the smallest shard that has any.
    const FEWEST: usize = 16;
    /// Places that are free behind the last entry when entries were spread anew.
    const END: usize = 16;

    /// The entries with a tag, and where they are.
    fn same(&self, tag: u32) -> impl Iterator<Item = (usize, Entry)> {
        let first = self.choice(tag);
        let entries = (first..).zip(self.places.iter().skip(first).copied());
        entries.take_while(move |(_, entry)| entry.tag() <= tag).filter(move |(_, entry)| entry.tag() == tag)
    }

    fn place_of(&self, tag: u32, slot: u32) -> Option<usize> {
        self.same(tag).find(|(_, entry)| entry.slot() == slot).map(|(place, _)| place)
    }

    fn insert(&mut self, entry: Entry) {
        if (self.count + 1) * 8 > self.choices * 7 || !self.try_insert(entry) {
            self.spread(self.choices + self.choices / 8);
            // There is room behind the last entry now.
            self.try_insert(entry);
        }
        self.count += 1;
    }

    /// False if everything from its place on is taken.
    fn try_insert(&mut self, entry: Entry) -> bool {
        let is_free = |other: &Entry| *other == Entry::NONE;
        let first = self.choice(entry.tag());
        let Some(before) = self.places[first..].iter().position(|other| *other > entry) else { return false };
        let place = first + before;
        let Some(run) = self.places[place..].iter().position(is_free) else { return false };
        self.places.copy_within(place..place + run, place + 1);
        self.places[place] = entry;
        true
    }

    fn remove(&mut self, place: usize) {
        // Those behind it that do not lie where they would be at best come one place nearer to that.
        let behind = (place + 1..).zip(&self.places[place + 1..]);
        let moved = behind.take_while(|(at, entry)| **entry != Entry::NONE && self.choice(entry.tag()) < *at).count();
        self.places.copy_within(place + 1..=place + moved, place);
        self.places[place + moved] = Entry::NONE;
        self.count -= 1;
        if self.count * 4 < self.choices && self.choices > Self::FEWEST {
            self.spread(self.count * 2);
        }
    }

    /// Spreads the entries over so many places, or the fewest that there are.
    fn spread(&mut self, choices: usize) {
        self.choices = choices.max(Self::FEWEST);
        let places = Vec::with_capacity(self.choices + 2 * Self::END);
        for entry in std::mem::replace(&mut self.places, places) {
            if entry != Entry::NONE {
                let place = self.choice(entry.tag()).max(self.places.len());
                self.places.resize(place, Entry::NONE);
                self.places.push(entry);
            }
        }
        let places = self.choices.max(self.places.len()) + Self::END;
        self.places.reserve_exact(places - self.places.len());
        self.places.resize(places, Entry::NONE);
    }

    /// Where an entry with this tag lies at best.
    fn choice(&self, tag: u32) -> usize {
        (tag as usize * self.choices) >> 24
    }
}

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
    fn names_come_and_go_in_any_order_and_those_that_are_there_are_found() {
        let index = Index::new();
        let (mut state, mut there) = (1u64, std::collections::BTreeMap::new());
        for step in 0..200_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // More come than go at first, and then more go than come.
            let (name, comes) = ((state >> 40) as u32 % 20_000, (state >> 20) % 100 < u64::from(90 - step / 2_500));
            let slot = there.get(&name).copied();
            assert_eq!(index.lock(name).find(|other| Some(other) == slot), slot);
            if comes {
                index.lock(name).put(slot, step);
                there.insert(name, step);
            } else if let Some(slot) = there.remove(&name) {
                index.lock(name).remove(slot);
            }
        }
        let entries: usize = index.shards.iter().map(|shard| shard.lock().count).sum();
        assert_eq!(entries, there.len());
        for (name, slot) in &there {
            assert_eq!(index.lock(*name).find(|other| other == *slot), Some(*slot));
        }
    }

    #[test]
    fn names_whose_tags_are_all_alike_or_the_greatest_find_a_place() {
        for tag in [0, 0x0012_3456, Entry::GREATEST_TAG] {
            let mut entries = Entries::default();
            (0..1_000).for_each(|slot| entries.insert(Entry::new(tag, slot)));
            assert!((0..1_000).all(|slot| entries.place_of(tag, slot).is_some()));
            for slot in 0..1_000 {
                entries.remove(entries.place_of(tag, slot).unwrap());
                assert_eq!(entries.same(tag).count(), 999 - slot as usize);
            }
        }
    }

    #[test]
    fn a_name_takes_few_bytes_at_any_number_and_gives_them_back() {
        let index = Index::new();
        let bytes =
            || index.shards.iter().map(|shard| shard.lock().places.capacity() * size_of::<Entry>()).sum::<usize>();
        // Names that count up in their upper half, of which a hash that is merely fast makes crowds.
        let name = |number: u32| u128::from(number) << 64;
        for number in 0..200_000u32 {
            index.lock(name(number)).put(None, number);
            if number >= 50_000 && number % 10_000 == 0 {
                // Six an entry, and at the worst all shards have just grown: seven ninths full, and their ends are free.
                assert!(bytes() < number as usize * 9, "{} bytes for {number}", bytes());
            }
        }
        (0..200_000u32).for_each(|number| index.lock(name(number)).remove(number));
        assert!(bytes() <= SHARDS * (Entries::FEWEST + 2 * Entries::END) * size_of::<Entry>());
    }
}
