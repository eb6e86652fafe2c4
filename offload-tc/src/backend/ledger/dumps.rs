//! Which listings are under way: what changes while one is must not be read out of it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counts listings of counters. The first is 1.
pub(crate) struct Dumps {
    begun: AtomicU64,
    /// The number of the oldest that is under way, or of the next one.
    oldest: AtomicU64,
    under_way: Mutex<BTreeSet<u64>>,
}

/// A listing that is under way.
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
    /// A listing begins.
    pub(crate) fn begin(&self) -> Dump<'_> {
        let mut under_way = self.under_way.lock();
        let number = self.begun.load(Ordering::SeqCst) + 1;
        under_way.insert(number);
        // First, so that what is freed with the new number waits for this listing.
        self.oldest.store(under_way.first().copied().unwrap_or(number), Ordering::SeqCst);
        self.begun.store(number, Ordering::SeqCst);
        Dump { number, dumps: self }
    }

    /// Which listing began last. What happens now may be missing in it, and in those before.
    pub(crate) fn last(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Whether all listings up to one are over.
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
