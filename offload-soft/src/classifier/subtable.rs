//! What is put into and taken out of a subtable.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_flow::priority::Priority;

use super::agreement::Agreement;
use super::table::{Word, Writer};

/// Locks, and tables, in a subtable.
pub(super) const SHARDS: usize = 16;

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
    pub(super) shards: [Mutex<Writer>; SHARDS],
}

pub(super) const GONE: i64 = i64::MIN;

impl Subtable {
    /// One rule more, unless the subtable is gone.
    pub(super) fn join(&self) -> bool {
        let more = |users: i64| (users >= 0).then_some(users + 1);
        self.users.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }
}
