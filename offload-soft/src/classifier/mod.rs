//! Tuple-space search: which rule a packet matches.
//!
//! Rules with the same priority and mask form a subtable, in which a lookup hashes the masked words of the packet's
//! key. Subtables are tried by priority, the higher first, and then by how often they were hit; among many, the one that
//! the last packet of the same flow was found in comes first, and those whose rules all share a value that the packet does
//! not have are left out. A lookup takes no lock and allocates nothing: it walks a
//! snapshot of the list of subtables, and the tables themselves are atomics. Changes to a subtable take the lock of one
//! of its shards; only a new subtable, an empty one that goes, and a shard that grows change the list.

mod agreement;
mod entries;
mod hints;
mod list;
mod rows;
mod subtable;
mod table;
mod view;

use std::hash::{BuildHasher, Hash as _, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use sluice_flow::key::{Key, Match};
use sluice_flow::priority::Priority;

use crate::quiescence::Pin;
use agreement::Agreement;
use list::List;
use subtable::{GONE, SHARDS, Subtable};
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
        let words = listed_words(&matching.mask);
        let subtable = self.enter(priority, words, &matching.key);
        self.link(&subtable, &matching.key, rule)
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
        let subtable = match near {
            Some(subtable) => {
                subtable.agreement.narrow(key);
                subtable
            }
            None => {
                let subtable = self.enter(priority, listed_words(&mask()), key);
                hint.0 = Arc::downgrade(&subtable);
                subtable
            }
        };
        self.link(&subtable, key, rule)
    }

    /// Links a rule in a subtable that was [entered](Classifier::enter) for it.
    fn link(&self, subtable: &Arc<Subtable>, key: &Key, rule: u32) -> Result<(), Occupied> {
        let words = &subtable.words;
        let hash = hash(&self.hasher, words, key);
        let mut writer = subtable.shards[shard_of(hash)].lock();
        if let Some(found) = writer.find(Hash(hash), words, key) {
            drop(writer);
            self.leave(subtable);
            return Err(Occupied { rule: found.rule });
        }
        if writer.is_full() {
            let table = writer.rebuild(words, |key| Hash(self::hash(&self.hasher, words, key)));
            self.publish(subtable, shard_of(hash), table);
        }
        writer.insert(Hash(hash), words, key, rule);
        Ok(())
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
        if let Some(unlinked) = near.and_then(|subtable| self.unlink(subtable, key, rule)) {
            return Some(unlinked);
        }
        let words = listed_words(&mask());
        let list = self.list.load();
        let subtable = &list.find(self.mask_hash(priority, &words), priority, &words)?.subtable;
        hint.0 = Arc::downgrade(subtable);
        self.unlink(Arc::clone(subtable), key, rule)
    }

    /// Unlinks a rule of a subtable, if it is linked there.
    fn unlink(&self, subtable: Arc<Subtable>, key: &Key, rule: u32) -> Option<Unlinked> {
        let hash = hash(&self.hasher, &subtable.words, key);
        let shard = shard_of(hash);
        let dead = subtable.shards[shard].lock().remove(Hash(hash), &subtable.words, key, rule)?;
        self.leave(&subtable);
        Some(Unlinked { subtable, shard, dead })
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
    fn enter(&self, priority: Priority, words: Vec<Word>, key: &Key) -> Arc<Subtable> {
        let hash = self.mask_hash(priority, &words);
        loop {
            if let Some(entry) = self.list.load().find(hash, priority, &words) {
                if entry.subtable.join() {
                    entry.subtable.agreement.narrow(key);
                    return Arc::clone(&entry.subtable);
                }
                std::thread::yield_now();
                continue;
            }
            let _changing = self.structure.lock();
            let list = self.list.load();
            if list.find(hash, priority, &words).is_some() {
                continue;
            }
            let writers: [Writer; SHARDS] = std::array::from_fn(|_| Writer::new(&words));
            let tables: [Table; SHARDS] = std::array::from_fn(|shard| writers[shard].table().clone());
            let subtable = Arc::new(Subtable {
                priority,
                agreement: Agreement::of(&words, key),
                words: words.into(),
                hash,
                number: list.free_number(),
                hits: AtomicU64::new(0),
                users: AtomicI64::new(1),
                shards: writers.map(Mutex::new),
            });
            self.list.store(Arc::new(list.with(Arc::clone(&subtable), tables)));
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
}
