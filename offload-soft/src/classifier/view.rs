//! What lookups see: a snapshot of the subtables, and how packets are looked up in it.

use std::cmp::Reverse;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use sluice_flow::key::Key;
use sluice_flow::priority::Priority;

use super::hints::Hints;
use super::subtable::{SHARDS, Subtable};
use super::table::{Found, Hash, Table, Word, words};

/// Packets that are looked up together, so that the memory that they need is fetched together (`NETDEV_MAX_BURST`).
pub const BATCH: usize = 32;
/// Subtables from which on it is worth the time and the memory to remember where packets were found.
const MANY: usize = 3;

/// A snapshot to look packets up in.
pub struct View<'a> {
    pub(super) list: arc_swap::Guard<Arc<List>>,
    pub(super) hasher: &'a RandomState,
}

/// The subtables in the order in which they are tried.
#[derive(Clone, Default)]
pub(super) struct List {
    pub(super) entries: Vec<Entry>,
    /// Hash of priority and mask, and number, of each subtable, in order.
    by_mask: Vec<(u64, u32)>,
    /// The place of each subtable among the entries, by number.
    places: Vec<u32>,
    /// Every bit that any mask looks at.
    union: Vec<Word>,
    /// Subtables of the highest priority that there is: the first ones.
    highest: usize,
    /// If there are many subtables.
    hints: Option<Arc<Hints>>,
}

/// A subtable as lookups see it.
#[derive(Clone)]
pub(super) struct Entry {
    words: Arc<[Word]>,
    pub(super) tables: Arc<[Table; SHARDS]>,
    pub(super) subtable: Arc<Subtable>,
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
                *hash = self::hash(self.hasher, &self.list.union, key);
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
        for entry in &self.list.entries {
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
        Some((hints, hash(self.hasher, &self.list.union, key)))
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

impl List {
    /// The subtable of this priority and mask.
    pub(super) fn find(&self, hash: u64, priority: Priority, words: &[Word]) -> Option<&Entry> {
        let start = self.by_mask.partition_point(|(other, _)| *other < hash);
        let same = self.by_mask[start..].iter().take_while(|(other, _)| *other == hash);
        let mut entries = same.map(|(_, number)| &self.entries[self.places[*number as usize] as usize]);
        entries.find(|entry| entry.subtable.priority == priority && *entry.words == *words)
    }

    /// A number that no subtable has.
    pub(super) fn free_number(&self) -> u32 {
        let mut taken: Vec<_> = self.by_mask.iter().map(|(_, number)| *number).collect();
        taken.sort_unstable();
        let free = taken.iter().zip(0..).position(|(taken, number)| *taken != number).unwrap_or(taken.len());
        u32::try_from(free).unwrap_or(u32::MAX)
    }

    /// The list with one subtable more, behind those of the same priority.
    pub(super) fn with(&self, subtable: Arc<Subtable>, tables: [Table; SHARDS]) -> Self {
        let mut list = self.clone();
        let at = list.entries.partition_point(|other| other.subtable.priority >= subtable.priority);
        let sorted = list.by_mask.partition_point(|(hash, _)| *hash < subtable.hash);
        list.by_mask.insert(sorted, (subtable.hash, subtable.number));
        list.entries.insert(at, Entry { words: Arc::clone(&subtable.words), tables: Arc::new(tables), subtable });
        list.settle();
        list
    }

    /// The list without a subtable.
    pub(super) fn without(&self, subtable: &Arc<Subtable>) -> Self {
        let mut list = self.clone();
        list.entries.retain(|entry| !Arc::ptr_eq(&entry.subtable, subtable));
        list.by_mask.retain(|(_, number)| *number != subtable.number);
        list.settle();
        list
    }

    /// The list with another table in a shard of a subtable.
    pub(super) fn with_table(&self, subtable: &Subtable, shard: usize, table: &Table) -> Self {
        let mut list = self.clone();
        if let Some(place) = list.places.get(subtable.number as usize) {
            let entry = &mut list.entries[*place as usize];
            let mut tables = <[Table; SHARDS]>::clone(&entry.tables);
            tables[shard] = table.clone();
            entry.tables = Arc::new(tables);
        }
        list.fit_hints();
        list
    }

    /// The list by priority, and then by how often a packet was found; `None` if that is how it is.
    pub(super) fn sorted(&self) -> Option<Self> {
        let rank =
            |entry: &Entry| (Reverse(entry.subtable.priority), Reverse(entry.subtable.hits.load(Ordering::Relaxed)));
        if self.entries.is_sorted_by_key(rank) {
            return None;
        }
        let mut list = self.clone();
        list.entries.sort_by_cached_key(rank);
        list.settle();
        Some(list)
    }

    /// Brings what follows from the entries up to date.
    fn settle(&mut self) {
        self.places = vec![0; self.entries.iter().map(|entry| entry.subtable.number as usize + 1).max().unwrap_or(0)];
        let mut union = Key::ZERO;
        for (place, entry) in (0..).zip(&self.entries) {
            self.places[entry.subtable.number as usize] = place;
            entry.words.iter().for_each(|word| union.words[word.index] |= word.mask);
        }
        self.union = words(&union).collect();
        let highest = self.entries.first().map(|entry| entry.subtable.priority);
        self.highest = self.entries.partition_point(|entry| Some(entry.subtable.priority) == highest);
        self.fit_hints();
    }

    /// Makes or gives up hints as the number of subtables asks for, and more of them as that of rules does.
    fn fit_hints(&mut self) {
        if self.entries.len() < MANY {
            self.hints = None;
            return;
        }
        let rules: i64 = self.entries.iter().map(|entry| entry.subtable.users.load(Ordering::Relaxed).max(0)).sum();
        let rules = usize::try_from(rules).unwrap_or(usize::MAX);
        if self.hints.as_ref().is_none_or(|hints| hints.are_too_few(rules)) {
            self.hints = Some(Arc::new(Hints::for_rules(rules)));
        }
    }

    /// The place of the subtable that the packet may be in: of the highest priority that there is, so that no other one
    /// has to be tried before it.
    #[inline]
    fn hinted(&self, hints: &Hints, hash: u64) -> Option<usize> {
        // A number may be that of a subtable that is gone, or by now of another one: the place is then any.
        let place = *self.places.get(usize::from(hints.get(hash)?))? as usize;
        (place < self.highest).then_some(place)
    }
}

impl Entry {
    /// The table that the packet is in if the subtable has it, and the hash to find it by.
    #[inline]
    fn table(&self, hasher: &RandomState, key: &Key) -> (&Table, Hash) {
        let hash = hash(hasher, &self.words, key);
        (&self.tables[shard_of(hash)], Hash(hash))
    }

    /// Reads what describes the subtable, so that it is at hand.
    #[inline]
    fn touch(&self) -> u64 {
        self.words.last().map_or(0, |word| word.mask)
    }

    #[inline]
    fn hit(&self) {
        let hits = &self.subtable.hits;
        hits.store(hits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
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

#[inline]
pub(super) fn shard_of(hash: u64) -> usize {
    // The highest four bits; table and tag use others.
    (hash >> 60) as usize % SHARDS
}
