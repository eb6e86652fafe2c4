//! Tuple-space search: which rule a packet matches.
//!
//! Rules with the same priority and mask form a subtable, in which a lookup hashes the masked words of the packet's
//! key. Subtables are tried by priority, the higher first, and then by how often they were hit; among many, the one that
//! the last packet of the same flow was found in comes first, and those whose rules all share a value that the packet does
//! not have are left out. A lookup takes no lock and allocates nothing: it walks a
//! snapshot of the list of subtables, and the tables themselves are atomics. Changes to a subtable take the lock of one
//! of its shards; the list changes only for a new subtable, one that is divided into more shards, an empty one that goes,
//! and a shard that grows or whose rows come to hold more or less.

mod agreement;
mod entries;
mod hints;
mod layout;
mod list;
mod rows;
mod subtable;
mod table;
mod view;

use std::hash::{BuildHasher, Hash as _, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use sluice_flow::key::{Key, Match};
use sluice_flow::priority::Priority;

use crate::quiescence::Pin;
use list::List;
use subtable::{GONE, Subtable};
use table::{DeadRow, Hash, Table, Word, Writer, listed_words};
use view::{hash, shard_of};

pub use view::{BATCH, Tried, View};

/// The rules of one chain.
pub struct Classifier {
    list: ArcSwap<List>,
    /// Held to change the list; taken after a shard's lock where both are.
    structure: Mutex<()>,
    hasher: RandomState,
}

/// Where rules of one mask were put or found lately, for one caller.
#[derive(Default)]
pub(crate) struct Hint(Weak<Subtable>);

/// Another rule has the same match and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied {
    /// The index of that rule.
    pub rule: u32,
}

/// A rule that new lookups do not find. To be [given back](Unlinked::give_back) once old ones cannot either.
#[must_use]
pub struct Unlinked {
    subtable: Arc<Subtable>,
    shard: usize,
    dead: DeadRow,
}

impl Unlinked {
    /// Lets what the rule took up be used again. Only after [`Quiescence::wait`](crate::quiescence::Quiescence::wait).
    pub fn give_back(self) {
        self.subtable.shards[self.shard].lock().free(self.dead);
    }
}

impl Classifier {
    /// A classifier without rules.
    pub fn new() -> Self {
        Self { list: ArcSwap::from_pointee(List::default()), structure: Mutex::new(()), hasher: RandomState::default() }
    }

    /// The rules as they are now, for lookups while the pin is held.
    #[inline]
    pub fn view<'a>(&'a self, _pin: &'a Pin<'_>) -> View<'a> {
        View { list: self.list.load(), hasher: &self.hasher }
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.list.load().entries.is_empty()
    }

    /// How many subtables there are.
    pub fn subtables(&self) -> usize {
        self.list.load().entries.len()
    }

    /// Links a rule. Lookups that begin from now on find it.
    pub fn insert(&self, matching: &Match, priority: Priority, rule: u32) -> Result<(), Occupied> {
        self.insert_near(&mut Hint::default(), &matching.key, || matching.mask, priority, rule)
    }

    /// The same for one of many rules with the same mask, with the hint that all of them have and no others. Bits of the key
    /// that the mask does not touch do not count.
    pub(crate) fn insert_near(
        &self,
        hint: &mut Hint,
        key: &Key,
        mask: impl FnOnce() -> Key,
        priority: Priority,
        rule: u32,
    ) -> Result<(), Occupied> {
        let near = hint.0.upgrade().filter(|subtable| subtable.priority == priority && subtable.join());
        if let Some(subtable) = near {
            subtable.agreement.narrow(key);
            if let Some(linked) = self.link(&subtable, key, rule) {
                return linked;
            }
        }
        let words = listed_words(&mask());
        loop {
            let subtable = self.enter(priority, &words, key);
            hint.0 = Arc::downgrade(&subtable);
            if let Some(linked) = self.link(&subtable, key, rule) {
                return linked;
            }
        }
    }

    /// Links a rule in a subtable that was [entered](Classifier::enter) for it; `None` if another one is in its place by now.
    fn link(&self, subtable: &Arc<Subtable>, key: &Key, rule: u32) -> Option<Result<(), Occupied>> {
        let words = &subtable.words;
        let hash = |key: &Key| hash(&self.hasher, words, key);
        let hashed = hash(key);
        let shard = shard_of(hashed, subtable.shards.len());
        let mut writer = subtable.shards[shard].lock();
        if subtable.is_gone() {
            return None;
        }
        if let Some(found) = writer.find(Hash(hashed), words, key) {
            drop(writer);
            self.leave(subtable);
            return Some(Err(Occupied { rule: found.rule }));
        }
        if !writer.takes(key) {
            if subtable.is_crowded(&writer) {
                self.divide(subtable, &writer, hash);
                return None;
            }
            let table = writer.rebuild(words, key, |key| Hash(hash(key)));
            self.publish(subtable, shard, table);
        }
        writer.insert(Hash(hashed), words, key, rule);
        Some(Ok(()))
    }

    /// Has one with more locks take the place of a subtable, whose only one is held.
    fn divide(&self, subtable: &Subtable, writer: &Writer, hash: impl Fn(&Key) -> u64) {
        let divided = Arc::new(subtable.divided(writer, hash));
        let _changing = self.structure.lock();
        // Whoever has joined it meanwhile has linked nothing yet, and whoever is about to leave has unlinked: neither counts.
        subtable.users.store(GONE, Ordering::SeqCst);
        self.list.store(Arc::new(self.list.load().with_another(divided)));
    }

    /// Unlinks a rule. Lookups that begin from now on do not find it; `None` if it is not linked.
    pub fn remove(&self, matching: &Match, priority: Priority, rule: u32) -> Option<Unlinked> {
        self.remove_near(&mut Hint::default(), &matching.key, || matching.mask, priority, rule)
    }

    /// The same for one of many rules with the same mask, as [`Classifier::insert_near`] is for their coming.
    pub(crate) fn remove_near(
        &self,
        hint: &mut Hint,
        key: &Key,
        mask: impl FnOnce() -> Key,
        priority: Priority,
        rule: u32,
    ) -> Option<Unlinked> {
        let near = hint.0.upgrade().filter(|subtable| subtable.priority == priority);
        // One that has gone meanwhile has no rule, and the mask may have another one by now.
        if let Some(unlinked) = near.and_then(|subtable| self.unlink(&subtable, key, rule)) {
            return Some(unlinked);
        }
        let words = listed_words(&mask());
        let mask_hash = self.mask_hash(priority, &words);
        loop {
            let list = self.list.load();
            let subtable = &list.find(mask_hash, priority, &words)?.subtable;
            hint.0 = Arc::downgrade(subtable);
            let unlinked = self.unlink(subtable, key, rule);
            if unlinked.is_some() || !subtable.is_gone() {
                return unlinked;
            }
        }
    }

    /// Unlinks a rule of a subtable, if it is linked there and the subtable has not gone.
    fn unlink(&self, subtable: &Arc<Subtable>, key: &Key, rule: u32) -> Option<Unlinked> {
        let hash = hash(&self.hasher, &subtable.words, key);
        let shard = shard_of(hash, subtable.shards.len());
        let mut writer = subtable.shards[shard].lock();
        if subtable.is_gone() {
            return None;
        }
        let dead = writer.remove(Hash(hash), &subtable.words, key, rule)?;
        drop(writer);
        self.leave(subtable);
        Some(Unlinked { subtable: Arc::clone(subtable), shard, dead })
    }

    /// Orders the subtables of equal priority by how often they were hit lately. Readers are not held up.
    pub fn sort(&self) {
        let _changing = self.structure.lock();
        if let Some(sorted) = self.list.load().sorted() {
            self.list.store(Arc::new(sorted));
        }
        // What was long ago shall weigh less than what is now.
        for entry in self.list.load().entries.iter() {
            let hits = &entry.subtable.hits;
            hits.store(hits.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    /// The subtable of a priority and mask, made if need be, which lets packets of the key in, and is kept from going
    /// until [`Classifier::leave`].
    fn enter(&self, priority: Priority, words: &[Word], key: &Key) -> Arc<Subtable> {
        let hash = self.mask_hash(priority, words);
        loop {
            if let Some(entry) = self.list.load().find(hash, priority, words) {
                if entry.subtable.join() {
                    entry.subtable.agreement.narrow(key);
                    return Arc::clone(&entry.subtable);
                }
                std::thread::yield_now();
                continue;
            }
            let _changing = self.structure.lock();
            let list = self.list.load();
            if list.find(hash, priority, words).is_some() {
                continue;
            }
            let subtable = Arc::new(Subtable::new(priority, words, key, (hash, list.free_number())));
            self.list.store(Arc::new(list.with(Arc::clone(&subtable))));
            return subtable;
        }
    }

    /// One rule less in a subtable, which goes if it was the last.
    fn leave(&self, subtable: &Arc<Subtable>) {
        if subtable.users.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        let _changing = self.structure.lock();
        if subtable.users.compare_exchange(0, GONE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            let shorter = self.list.load().without(subtable);
            self.list.store(Arc::new(shorter));
        }
    }

    /// Shows readers the new table of a shard.
    fn publish(&self, subtable: &Subtable, shard: usize, table: &Table) {
        let _changing = self.structure.lock();
        let list = self.list.load().with_table(subtable, shard, table);
        self.list.store(Arc::new(list));
    }

    fn mask_hash(&self, priority: Priority, words: &[Word]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        priority.hash(&mut hasher);
        words.hash(&mut hasher);
        hasher.finish()
    }
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::Field;

    use crate::quiescence::Quiescence;

    use super::*;

    #[test]
    fn a_rule_is_found_by_a_hint_also_if_the_subtable_of_its_mask_is_another_one_by_now() {
        let mut matching = Match::default();
        matching.set_exact(Field::Ipv4Dst, 0x0a00_0001);
        let (Match { key, mask }, priority) = (matching, Priority::default());
        let (classifier, mut hint) = (Classifier::new(), Hint::default());
        classifier.insert_near(&mut hint, &key, || mask, priority, 1).unwrap();
        let first = classifier.remove_near(&mut hint, &key, || mask, priority, 1);
        assert!(first.is_some() && classifier.is_empty());
        // What was unlinked keeps its subtable, which has gone, in memory.
        classifier.insert(&matching, priority, 2).unwrap();
        let second = classifier.remove_near(&mut hint, &key, || mask, priority, 2);
        assert!(second.is_some() && classifier.is_empty());
        assert!(classifier.remove_near(&mut hint, &key, || mask, priority, 2).is_none(), "it is not there any more");
    }

    #[test]
    fn rules_that_come_and_go_while_their_subtable_is_divided_are_there_and_gone() {
        const CALLERS: u32 = 3;
        const RULES: u32 = 1_500;
        let matching = |rule: u32| {
            let mut matching = Match::default();
            matching.set_exact(Field::Ipv4Dst, rule.into());
            matching
        };
        let is_removed = |rule: u32| rule.is_multiple_of(4);
        let mask = matching(0).mask;
        let priority = Priority::default();
        for _ in 0..20 {
            let (classifier, quiescence) = (Classifier::new(), Quiescence::new());
            let look_up = |rule: u32| classifier.view(&quiescence.pin()).lookup(&matching(rule).key);
            let come_and_go = |first: u32| {
                let (mut hint, mut hint_of_removal) = (Hint::default(), Hint::default());
                for rule in (first..RULES * CALLERS).step_by(CALLERS as usize) {
                    classifier.insert_near(&mut hint, &matching(rule).key, || mask, priority, rule).unwrap();
                    assert_eq!(look_up(rule), Some(rule));
                    // One that came a while ago, so that some are in a subtable and others in the one before.
                    let Some(old) = rule.checked_sub(CALLERS * 50).filter(|old| is_removed(*old)) else { continue };
                    let unlinked =
                        classifier.remove_near(&mut hint_of_removal, &matching(old).key, || mask, priority, old);
                    assert_eq!((unlinked.is_some(), look_up(old)), (true, None));
                    quiescence.wait();
                    unlinked.unwrap().give_back();
                }
            };
            std::thread::scope(|scope| {
                (0..CALLERS).for_each(|first| {
                    scope.spawn(move || come_and_go(first));
                });
            });
            let list = classifier.list.load();
            let subtable = &list.entries[0].subtable;
            assert_eq!((list.entries.len(), subtable.shards.len()), (1, 16));
            let is_to_be_there = |rule: u32| !is_removed(rule) || rule >= (RULES - 50) * CALLERS;
            let wrong = (0..RULES * CALLERS).find(|rule| look_up(*rule).is_some() != is_to_be_there(*rule));
            assert_eq!(wrong, None);
            let there = (0..RULES * CALLERS).filter(|rule| is_to_be_there(*rule)).count();
            assert_eq!(subtable.users.load(Ordering::SeqCst), i64::try_from(there).unwrap());
        }
    }
}
