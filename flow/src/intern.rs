//! Equal values kept once.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::RwLock;

const SHARDS: usize = 16;
/// Values of a shard that are counted one by one.
const COUNTED: usize = 256;

/// Keeps one copy of equal values that are in use. A value goes with its last user. Of different values with the same hash it keeps one: the
/// others, which there hardly ever are, are not shared.
pub struct Interner<T: ?Sized> {
    hasher: RandomState,
    /// Read far more than written: most flows have a mask and actions that others have, too.
    shards: [RwLock<Shard<T>>; SHARDS],
}

struct Shard<T: ?Sized> {
    /// By their hashes; some are dead.
    values: HashMap<u64, Weak<T>, RandomState>,
    /// Entries at which dead ones are looked for next.
    sweep_at: usize,
}

impl<T: ?Sized + Eq> Shard<T> {
    fn find(&self, hash: u64, value: &T) -> Option<Arc<T>> {
        self.values.get(&hash)?.upgrade().filter(|known| **known == *value)
    }
}

impl<T: ?Sized + Hash + Eq> Interner<T> {
    /// An empty one.
    pub fn new() -> Self {
        let shard = || RwLock::new(Shard { values: HashMap::default(), sweep_at: 64 });
        Self { hasher: RandomState::default(), shards: std::array::from_fn(|_| shard()) }
    }

    /// The shared copy of a value: an older equal one, or this one.
    pub fn share(&self, value: Arc<T>) -> Arc<T> {
        self.share_or_make(&*value, || value.clone())
    }

    /// The shared copy of a value: an older equal one, or what `make` makes of it, which must be equal.
    pub fn share_or_make(&self, value: &T, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let hash = self.hasher.hash_one(value);
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do to pick a shard")]
        let shard = &self.shards[hash as usize % SHARDS];
        if let Some(equal) = shard.read().find(hash, value) {
            return equal;
        }
        let value = make();
        let mut shard = shard.write();
        // Somebody may have been faster.
        if let Some(equal) = shard.find(hash, &value) {
            return equal;
        }
        if shard.values.len() >= shard.sweep_at {
            shard.values.retain(|_, known| known.strong_count() > 0);
            let sweep_at = (shard.values.len() * 2).max(64);
            shard.values.shrink_to(sweep_at);
            shard.sweep_at = sweep_at;
        }
        if shard.values.get(&hash).is_none_or(|known| known.strong_count() == 0) {
            shard.values.insert(hash, Arc::downgrade(&value));
        }
        value
    }

    /// How many values are in use. Where there are many, those are counted, too, that went lately: at most as many again. For
    /// every scrape asks, and does not wait until a million have been looked at.
    pub fn len(&self) -> usize {
        let live = |shard: &RwLock<Shard<T>>| {
            let shard = shard.read();
            if shard.values.len() > COUNTED {
                return shard.values.len();
            }
            shard.values.values().filter(|weak| weak.strong_count() > 0).count()
        };
        self.shards.iter().map(live).sum()
    }

    /// Whether no value is in use.
    pub fn is_empty(&self) -> bool {
        let is_live = |weak: &Weak<T>| weak.strong_count() > 0;
        self.shards.iter().all(|shard| !shard.read().values.values().any(is_live))
    }
}

impl<T: ?Sized + Hash + Eq> Default for Interner<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_are_given_back() {
        let interner = Interner::<str>::new();
        let first = interner.share(Arc::from("a"));
        let second = interner.share(Arc::from("a"));
        assert!(Arc::ptr_eq(&first, &second));
        for number in 0..10_000 {
            interner.share(Arc::from(format!("{number}").as_str()));
        }
        assert_eq!(interner.len(), 1, "only `a` is still used");
        let kept: usize = interner.shards.iter().map(|shard| shard.read().values.len()).sum();
        assert!(kept <= 64 * SHARDS + 1, "{kept} dead entries are still held");
        drop((first, second));
        assert!(interner.is_empty());
    }

    #[test]
    fn a_value_that_goes_and_comes_back_is_held_once() {
        let interner = Interner::<str>::new();
        for _ in 0..1_000 {
            interner.share(Arc::from("a"));
        }
        let there: usize = interner.shards.iter().map(|shard| shard.read().values.len()).sum();
        assert_eq!(there, 1, "only the last one, which is dead by now");
    }

    #[test]
    fn of_values_with_one_hash_the_first_is_shared_and_each_is_what_it_is() {
        #[derive(PartialEq, Eq, Debug)]
        struct Alike(u32);
        impl Hash for Alike {
            fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
        }
        let interner = Interner::new();
        let first = interner.share(Arc::new(Alike(1)));
        assert_eq!(*interner.share(Arc::new(Alike(2))), Alike(2));
        assert!(Arc::ptr_eq(&first, &interner.share(Arc::new(Alike(1)))));
        drop(first);
        let second = interner.share(Arc::new(Alike(2)));
        assert!(Arc::ptr_eq(&second, &interner.share(Arc::new(Alike(2)))), "the first one is gone");
    }
}
