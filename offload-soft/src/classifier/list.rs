//! What lookups see: a snapshot of the subtables.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use sluice_flow::key::Key;
use sluice_flow::priority::Priority;

use super::entries::Entries;
use super::hints::Hints;
use super::subtable::Subtable;
use super::table::{Hash, Table, Word, words};
use super::view::{hash, shard_of};

/// Subtables from which on it is worth the time and the memory to remember where packets were found.
const MANY: usize = 3;

/// The subtables in the order in which they are tried.
#[derive(Clone, Default)]
pub(super) struct List {
    pub(super) entries: Entries<Entry>,
    index: Arc<Index>,
    /// Rules that the tables of all entries have room for.
    room: usize,
    /// If there are many subtables.
    pub(super) hints: Option<Arc<Hints>>,
}

/// A subtable as lookups see it.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) words: Arc<[Word]>,
    pub(super) tables: Arc<[Table]>,
    pub(super) subtable: Arc<Subtable>,
}

/// What changes only as subtables come and go.
#[derive(Clone, Default)]
struct Index {
    /// Hash of priority and mask, and number, of each subtable, in order.
    by_mask: Vec<(u64, u32)>,
    /// The place of each subtable among the entries, by number.
    places: Vec<u32>,
    /// Numbers below the length of that which no subtable has.
    free: Vec<u32>,
    /// Every bit that any mask looks at, and perhaps some at which one did that is gone.
    union: Vec<Word>,
    /// The masks of which that was made.
    united: usize,
    /// Subtables of the highest priority that there is: the first ones.
    highest: usize,
}

impl List {
    /// The subtable of this priority and mask.
    pub(super) fn find(&self, hash: u64, priority: Priority, words: &[Word]) -> Option<&Entry> {
        let Index { by_mask, places, .. } = &*self.index;
        let start = by_mask.partition_point(|(other, _)| *other < hash);
        let same = by_mask[start..].iter().take_while(|(other, _)| *other == hash);
        let mut entries = same.map(|(_, number)| &self.entries[places[*number as usize] as usize]);
        entries.find(|entry| entry.subtable.priority == priority && *entry.words == *words)
    }

    /// Every bit that any mask looks at, and perhaps some more.
    #[inline]
    pub(super) fn union(&self) -> &[Word] {
        &self.index.union
    }

    /// A number that no subtable has.
    pub(super) fn free_number(&self) -> u32 {
        let Index { places, free, .. } = &*self.index;
        free.last().copied().unwrap_or_else(|| u32::try_from(places.len()).unwrap_or(u32::MAX))
    }

    /// The list with one subtable more, which has the number that was [free](List::free_number), behind those of the same priority.
    pub(super) fn with(&self, subtable: Arc<Subtable>) -> Self {
        let mut list = self.clone();
        let at = list.entries.partition_point(|other| other.subtable.priority >= subtable.priority);
        let index = Arc::make_mut(&mut list.index);
        let sorted = index.by_mask.partition_point(|(hash, _)| *hash < subtable.hash);
        index.by_mask.insert(sorted, (subtable.hash, subtable.number));
        if index.free.pop().is_none() {
            index.places.push(0);
        }
        index.union = words(&union([&index.union[..], &subtable.words])).collect();
        index.united += 1;
        let entry = Entry::of(subtable);
        list.room += entry.room();
        list.entries.insert(at, entry);
        list.place(at..list.entries.len());
        list.fit_hints();
        list
    }

    /// The list without a subtable.
    pub(super) fn without(&self, subtable: &Arc<Subtable>) -> Self {
        let mut list = self.clone();
        let index = Arc::make_mut(&mut list.index);
        let at = index.places[subtable.number as usize] as usize;
        let sorted = index.by_mask.partition_point(|(hash, _)| *hash < subtable.hash);
        if let Some(behind) = index.by_mask[sorted..].iter().position(|(_, number)| *number == subtable.number) {
            index.by_mask.remove(sorted + behind);
        }
        index.free.push(subtable.number);
        list.room -= list.entries[at].room();
        let last = list.entries.len() - 1;
        if list.entries[last].subtable.priority == subtable.priority {
            list.entries.swap_remove(at);
            list.place(at..(at + 1).min(last));
        } else {
            list.entries.remove(at);
            list.place(at..last);
        }
        list.shrink_union();
        list.fit_hints();
        list
    }

    /// The list with another table in a shard of a subtable.
    pub(super) fn with_table(&self, subtable: &Subtable, shard: usize, table: &Table) -> Self {
        self.with_changed(subtable.number, |entry| {
            let tables = entry.tables.iter().enumerate();
            let tables = tables.map(|(place, before)| if place == shard { table } else { before }.clone()).collect();
            Entry { tables, ..entry.clone() }
        })
    }

    /// The list with another subtable in the place of the one that has its number.
    pub(super) fn with_another(&self, subtable: Arc<Subtable>) -> Self {
        self.with_changed(subtable.number, |_| Entry::of(subtable))
    }

    fn with_changed(&self, number: u32, change: impl FnOnce(&Entry) -> Entry) -> Self {
        let mut list = self.clone();
        if let Some(place) = list.index.places.get(number as usize) {
            let before = &self.entries[*place as usize];
            let changed = change(before);
            list.room = list.room - before.room() + changed.room();
            list.entries.replace(*place as usize, changed);
        }
        list.fit_hints();
        list
    }

    /// The list by priority, and then by how often a packet was found; `None` if that is how it is.
    pub(super) fn sorted(&self) -> Option<Self> {
        let rank =
            |entry: &Entry| (Reverse(entry.subtable.priority), Reverse(entry.subtable.hits.load(Ordering::Relaxed)));
        if self.entries.iter().is_sorted_by_key(rank) {
            return None;
        }
        let mut entries: Vec<_> = self.entries.iter().cloned().collect();
        entries.sort_by_cached_key(rank);
        let mut list = Self { entries: entries.into_iter().collect(), ..self.clone() };
        list.place(0..list.entries.len());
        Some(list)
    }

    /// Notes that these entries are where they are, and how many have the highest priority.
    fn place(&mut self, places: Range<usize>) {
        let index = Arc::make_mut(&mut self.index);
        for place in places {
            let number = self.entries[place].subtable.number;
            index.places[number as usize] = u32::try_from(place).unwrap_or(u32::MAX);
        }
        let highest = self.entries.first().map(|entry| entry.subtable.priority);
        index.highest = self.entries.partition_point(|entry| Some(entry.subtable.priority) == highest);
    }

    /// Leaves bits out of the union at which no mask looks any more, once half of the masks are gone that it was made of: until then they
    /// only tell packets apart that need not be.
    fn shrink_union(&mut self) {
        let index = Arc::make_mut(&mut self.index);
        if self.entries.len() <= index.united / 2 {
            index.united = self.entries.len();
            index.union = words(&union(self.entries.iter().map(|entry| &*entry.words))).collect();
        }
    }

    /// Makes or gives up hints as the number of subtables asks for, and more of them as that of rules does.
    fn fit_hints(&mut self) {
        if self.entries.len() < MANY {
            self.hints = None;
            return;
        }
        // A table that grows has twice the room, so that on average a quarter of it is free.
        let rules = self.room - self.room / 4;
        if self.hints.as_ref().is_none_or(|hints| hints.are_too_few(rules)) {
            self.hints = Some(Arc::new(Hints::for_rules(rules)));
        }
    }

    /// The place of the subtable that the packet may be in: of the highest priority that there is, so that no other one
    /// has to be tried before it.
    #[inline]
    pub(super) fn hinted(&self, hints: &Hints, hash: u64) -> Option<usize> {
        // A number may be that of a subtable that is gone, or by now of another one: the place is then any.
        let place = *self.index.places.get(usize::from(hints.get(hash)?))? as usize;
        (place < self.index.highest).then_some(place)
    }
}

impl Entry {
    fn of(subtable: Arc<Subtable>) -> Self {
        Self { words: subtable.words.clone(), tables: subtable.tables(), subtable }
    }

    /// Rules that its tables have room for.
    fn room(&self) -> usize {
        self.tables.iter().map(Table::capacity).sum()
    }

    /// The table that the packet is in if the subtable has it, and the hash to find it by.
    #[inline]
    pub(super) fn table(&self, hasher: &RandomState, key: &Key) -> (&Table, Hash) {
        let hash = hash(hasher, &self.words, key);
        (&self.tables[shard_of(hash, self.tables.len())], Hash(hash))
    }

    /// Reads what describes the subtable, so that it is at hand.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.words.last().map_or(0, |word| word.mask)
    }

    #[inline]
    pub(super) fn hit(&self) {
        let hits = &self.subtable.hits;
        hits.store(hits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Every bit that any of some masks looks at.
fn union<'a>(masks: impl IntoIterator<Item = &'a [Word]>) -> Key {
    let mut union = Key::ZERO;
    for word in masks.into_iter().flatten() {
        union.words[word.index] |= word.mask;
    }
    union
}

#[cfg(test)]
mod tests {
    use sluice_flow::Match;
    use sluice_flow::field::Field;

    use crate::classifier::Classifier;

    use super::*;

    #[test]
    fn there_are_hints_for_the_rules_of_many_masks_however_few_each_has() {
        const MASKS: u32 = 1_000;
        for of_each in [1, 4] {
            let classifier = Classifier::new();
            for rule in 0..MASKS * of_each {
                let mut matching = Match::default();
                matching.set_exact(Field::Ipv4Src, rule.into());
                matching.set(Field::EthDst, 0, (rule % MASKS + 1).into());
                classifier.insert(&matching, Priority::default(), rule).unwrap();
            }
            let list = classifier.list.load();
            let rules = (MASKS * of_each) as usize;
            assert!(!list.hints.as_ref().unwrap().are_too_few(rules), "{of_each} of each mask");
        }
    }
}
