//! Listings in progress: what changes during a listing must not be read from it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Numbers the listings of counters, from 1.
pub(crate) struct Dumps {
    begun: AtomicU64,
    /// The number of the oldest listing in progress, or of the next one.
    oldest: AtomicU64,
    under_way: Mutex<BTreeSet<u64>>,
}

/// A listing in progress. It is over when this is dropped.
pub(crate) struct Dump<'a> {
    number: u64,
    dumps: &'a Dumps,
}

impl Default for Dumps {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), oldest: AtomicU64::new(1), under_way: Mutex::default() }
    }
}

impl Dumps {
    /// Begins a listing.
    pub(crate) fn begin(&self) -> Dump<'_> {
        let mut under_way = self.under_way.lock();
        let number = self.begun.load(Ordering::SeqCst) + 1;
        under_way.insert(number);
        // Before the new number is visible, so that a slot freed under it waits for this listing.
        self.oldest.store(under_way.first().copied().unwrap_or(number), Ordering::SeqCst);
        self.begun.store(number, Ordering::SeqCst);
        Dump { number, dumps: self }
    }

    /// The number of the last listing that began. What happens now may be missing in it and in earlier ones.
    pub(crate) fn last(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Whether all listings up to a number are over.
    pub(crate) fn are_over(&self, number: u64) -> bool {
        self.oldest.load(Ordering::SeqCst) > number
    }
}

impl Dump<'_> {
    /// Its number.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Dump<'_> {
    fn drop(&mut self) {
        let mut under_way = self.dumps.under_way.lock();
        under_way.remove(&self.number);
        let next = self.dumps.begun.load(Ordering::SeqCst) + 1;
        self.dumps.oldest.store(under_way.first().copied().unwrap_or(next), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_during_a_listing_is_over_only_when_that_is() {
        let dumps = Dumps::default();
        assert_eq!(dumps.last(), 0);
        assert!(dumps.are_over(dumps.last()), "none is under way");
        let first = dumps.begin();
        let during = dumps.last();
        let second = dumps.begin();
        assert_eq!((first.number(), second.number()), (1, 2));
        assert!(!dumps.are_over(during));
        drop(first);
        assert!(dumps.are_over(during) && !dumps.are_over(dumps.last()));
        drop(second);
        assert!(dumps.are_over(dumps.last()));
    }
}
