//! Tuple-space search: which rule a packet matches.
//!
//! Rules with the same priority and mask form a subtable, in which a lookup hashes the masked words of the packet's
//! key. Subtables are tried by priority, the higher first, and then by how often they were hit. A lookup takes no lock
//! and allocates nothing: it walks a snapshot of the list of subtables, and the tables themselves are atomics. Changes
//! to a subtable take the lock of one of its shards; only a new subtable, an empty one that goes, and a shard that
//! grows change the list.

mod table;

use std::cmp::Reverse;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use sluice_flow::key::{Key, Match};
use sluice_flow::priority::Priority;

use crate::quiescence::Pin;
use table::{DeadRow, Hash, Table, Word, Writer};

/// Locks, and tables, in a subtable.
const SHARDS: usize = 16;

/// The rules of one chain.
pub struct Classifier {
    list: ArcSwap<Vec<Entry>>,
    /// Held to change the list; taken after a shard's lock where both are.
    structure: Mutex<()>,
    hasher: RandomState,
    empty: Arc<[Table; SHARDS]>,
}

/// A subtable as lookups see it.
#[derive(Clone)]
struct Entry {
    words: Arc<[Word]>,
    tables: Arc<[Table; SHARDS]>,
    subtable: Arc<Subtable>,
}

struct Subtable {
    priority: Priority,
    words: Arc<[Word]>,
    /// Lookups that ended here. Lost updates do no harm: it only orders the list.
    hits: AtomicU64,
    /// Rules in it and being put in; [`GONE`] once it is off the list for good.
    users: AtomicI64,
    shards: [Mutex<Writer>; SHARDS],
}

const GONE: i64 = i64::MIN;

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

/// A snapshot to look packets up in.
pub struct View<'a> {
    list: arc_swap::Guard<Arc<Vec<Entry>>>,
    hasher: &'a RandomState,
}

impl View<'_> {
    /// The index of the rule that the packet matches: one of those with the highest priority.
    #[inline]
    pub fn lookup(&self, key: &Key) -> Option<u32> {
        for entry in self.list.iter() {
            let hash = hash(self.hasher, &entry.words, key);
            let (table, hash) = place(&entry.tables, hash);
            if let Some(found) = table.find(hash, &entry.words, key) {
                let hits = &entry.subtable.hits;
                hits.store(hits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                return Some(found.rule);
            }
        }
        None
    }
}

impl View<'_> {
    /// The subtables that [`View::lookup`] tries for the packet, the one that it hits last; and the rule.
    pub fn trace(&self, key: &Key) -> (Vec<Tried>, Option<u32>) {
        let mut tried = Vec::new();
        for entry in self.list.iter() {
            tried.push(Tried {
                priority: entry.subtable.priority,
                rules: u64::try_from(entry.subtable.users.load(Ordering::Relaxed)).unwrap_or(0),
                example: entry.tables.iter().find_map(Table::any),
            });
            let (table, hash) = place(&entry.tables, hash(self.hasher, &entry.words, key));
            if let Some(found) = table.find(hash, &entry.words, key) {
                return (tried, Some(found.rule));
            }
        }
        (tried, None)
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

#[inline]
fn hash(hasher: &RandomState, words: &[Word], key: &Key) -> u64 {
    let mut hasher = hasher.build_hasher();
    for word in words {
        hasher.write_u64(key.words[word.index] & word.mask);
    }
    hasher.finish()
}

#[inline]
fn place(tables: &[Table; SHARDS], hash: u64) -> (&Table, Hash) {
    (&tables[shard_of(hash)], Hash(hash))
}

#[inline]
fn shard_of(hash: u64) -> usize {
    // The highest four bits; table and tag use others.
    (hash >> 60) as usize % SHARDS
}

impl Classifier {
    /// A classifier without rules.
    pub fn new() -> Self {
        Self {
            list: ArcSwap::from_pointee(Vec::new()),
            structure: Mutex::new(()),
            hasher: RandomState::default(),
            empty: Arc::new(std::array::from_fn(|_| Table::empty())),
        }
    }

    /// The rules as they are now, for lookups while the pin is held.
    #[inline]
    pub fn view<'a>(&'a self, _pin: &'a Pin<'_>) -> View<'a> {
        View { list: self.list.load(), hasher: &self.hasher }
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.list.load().is_empty()
    }

    /// How many subtables there are.
    pub fn subtables(&self) -> usize {
        self.list.load().len()
    }

    /// Links a rule. Lookups that begin from now on find it.
    pub fn insert(&self, matching: &Match, priority: Priority, rule: u32) -> Result<(), Occupied> {
        let words = words_of(matching);
        let hash = hash(&self.hasher, &words, &matching.key);
        let subtable = self.enter(priority, words);
        let words = &subtable.words;
        let mut writer = subtable.shards[shard_of(hash)].lock();
        if let Some(found) = writer.find(Hash(hash), words, &matching.key) {
            drop(writer);
            self.leave(&subtable);
            return Err(Occupied { rule: found.rule });
        }
        if writer.is_full(words) {
            let table = writer.rebuild(words, |key| Hash(self::hash(&self.hasher, words, key)));
            self.publish(&subtable, shard_of(hash), &table);
        }
        writer.insert(Hash(hash), words, &matching.key, rule);
        Ok(())
    }

    /// Unlinks a rule. Lookups that begin from now on do not find it; `None` if it is not linked.
    pub fn remove(&self, matching: &Match, priority: Priority, rule: u32) -> Option<Unlinked> {
        let words = words_of(matching);
        let hash = hash(&self.hasher, &words, &matching.key);
        let subtable = Arc::clone(&find(&self.list.load(), priority, &words)?.subtable);
        let shard = shard_of(hash);
        let dead = subtable.shards[shard].lock().remove(Hash(hash), &words, &matching.key, rule)?;
        self.leave(&subtable);
        Some(Unlinked { subtable, shard, dead })
    }

    /// Orders the subtables of equal priority by how often they were hit lately. Readers are not held up.
    pub fn sort(&self) {
        let _changing = self.structure.lock();
        let list = self.list.load();
        let rank =
            |entry: &Entry| (Reverse(entry.subtable.priority), Reverse(entry.subtable.hits.load(Ordering::Relaxed)));
        if !list.is_sorted_by_key(rank) {
            let mut sorted = Vec::clone(&list);
            sorted.sort_by_cached_key(rank);
            self.list.store(Arc::new(sorted));
        }
        // What was long ago shall weigh less than what is now.
        for entry in list.iter() {
            let hits = &entry.subtable.hits;
            hits.store(hits.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    /// The subtable of a priority and mask, made if need be, and kept from going until [`Classifier::leave`].
    fn enter(&self, priority: Priority, words: Vec<Word>) -> Arc<Subtable> {
        loop {
            if let Some(entry) = find(&self.list.load(), priority, &words) {
                if entry.subtable.join() {
                    return Arc::clone(&entry.subtable);
                }
                std::thread::yield_now();
                continue;
            }
            let _changing = self.structure.lock();
            let list = self.list.load();
            if find(&list, priority, &words).is_some() {
                continue;
            }
            let words: Arc<[Word]> = words.into();
            let subtable = Arc::new(Subtable {
                priority,
                words: Arc::clone(&words),
                hits: AtomicU64::new(0),
                users: AtomicI64::new(1),
                shards: std::array::from_fn(|shard| Mutex::new(Writer::new(self.empty[shard].clone()))),
            });
            let entry = Entry { words, tables: Arc::clone(&self.empty), subtable: Arc::clone(&subtable) };
            let at = list.partition_point(|other| other.subtable.priority >= priority);
            let mut longer = Vec::with_capacity(list.len() + 1);
            longer.extend_from_slice(&list[..at]);
            longer.push(entry);
            longer.extend_from_slice(&list[at..]);
            self.list.store(Arc::new(longer));
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
            let mut shorter = Vec::clone(&self.list.load());
            shorter.retain(|entry| !Arc::ptr_eq(&entry.subtable, subtable));
            self.list.store(Arc::new(shorter));
        }
    }

    /// Shows readers the new table of a shard.
    fn publish(&self, subtable: &Arc<Subtable>, shard: usize, table: &Table) {
        let _changing = self.structure.lock();
        let mut list = Vec::clone(&self.list.load());
        if let Some(entry) = list.iter_mut().find(|entry| Arc::ptr_eq(&entry.subtable, subtable)) {
            let mut tables = <[Table; SHARDS]>::clone(&entry.tables);
            tables[shard] = table.clone();
            entry.tables = Arc::new(tables);
        }
        self.list.store(Arc::new(list));
    }
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Subtable {
    /// One rule more, unless the subtable is gone.
    fn join(&self) -> bool {
        let more = |users: i64| (users >= 0).then_some(users + 1);
        self.users.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }
}

fn find<'a>(list: &'a [Entry], priority: Priority, words: &[Word]) -> Option<&'a Entry> {
    list.iter().find(|entry| entry.subtable.priority == priority && *entry.words == *words)
}

fn words_of(matching: &Match) -> Vec<Word> {
    let words = matching.mask.words.iter().enumerate();
    words.filter(|(_, mask)| **mask != 0).map(|(index, mask)| Word { index, mask: *mask }).collect()
}
