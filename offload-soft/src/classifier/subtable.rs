//! What is put into and taken out of a subtable.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_flow::key::Key;
use sluice_flow::priority::Priority;

use super::agreement::Agreement;
use super::table::{Hash, Table, Word, Writer};
use super::view::shard_of;

/// Locks, and tables, in a subtable of many rules. One of few has one: what describes the tables is then itself in the cache, of
/// however many subtables.
const SHARDS: usize = 16;
/// Rules from which on they are many.
const MANY: usize = 1_000;

/// The rules of one priority and mask.
pub(super) struct Subtable {
    pub(super) priority: Priority,
    pub(super) words: Arc<[Word]>,
    pub(super) agreement: Agreement,
    /// Of priority and words.
    pub(super) hash: u64,
    /// No other subtable of the list has it.
    pub(super) number: u32,
    /// Lookups that ended here. Lost updates do no harm: it only orders the list.
    pub(super) hits: AtomicU64,
    /// Rules in it and being put in; [`GONE`] once it is off the list for good.
    pub(super) users: AtomicI64,
    pub(super) shards: Box<[Mutex<Writer>]>,
}

/// Stays negative whoever is still to leave.
pub(super) const GONE: i64 = i64::MIN / 2;

impl Subtable {
    /// One without rules, for one to be put in.
    pub(super) fn new(priority: Priority, words: &[Word], key: &Key, (hash, number): (u64, u32)) -> Self {
        Self {
            priority,
            agreement: Agreement::of(words, key),
            words: words.into(),
            hash,
            number,
            hits: AtomicU64::new(0),
            users: AtomicI64::new(1),
            shards: [Mutex::new(Writer::new(words))].into(),
        }
    }

    /// One rule more, unless the subtable is gone.
    pub(super) fn join(&self) -> bool {
        let more = |users: i64| (users >= 0).then_some(users + 1);
        self.users.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Whether it is off the list, or about to be. One that has rules goes only under all of its locks.
    pub(super) fn is_gone(&self) -> bool {
        self.users.load(Ordering::SeqCst) < 0
    }

    /// The tables of one that is not on the list yet, for readers.
    pub(super) fn tables(&self) -> Arc<[Table]> {
        self.shards.iter().map(|shard| shard.lock().table().clone()).collect()
    }

    /// Whether it has one lock for as many rules as there are in its table.
    pub(super) fn is_crowded(&self, writer: &Writer) -> bool {
        self.shards.len() < SHARDS && writer.len() >= MANY
    }

    /// The same rules in a subtable with more locks. `writer` is all that it has, locked.
    pub(super) fn divided(&self, writer: &Writer, hash: impl Fn(&Key) -> u64) -> Self {
        let words = &self.words;
        let mut shards: [Writer; SHARDS] = std::array::from_fn(|_| Writer::like(writer, words));
        for (key, rule) in writer.entries(words) {
            let hashed = hash(&key);
            let shard = &mut shards[shard_of(hashed, SHARDS)];
            if !shard.takes(&key) {
                shard.rebuild(words, &key, |key| Hash(hash(key)));
            }
            shard.insert(Hash(hashed), words, &key, rule);
        }
        Self {
            priority: self.priority,
            words: words.clone(),
            agreement: self.agreement.clone(),
            hash: self.hash,
            number: self.number,
            hits: AtomicU64::new(self.hits.load(Ordering::Relaxed)),
            users: AtomicI64::new(i64::try_from(writer.len()).unwrap_or(i64::MAX)),
            shards: shards.map(Mutex::new).into(),
        }
    }
}
