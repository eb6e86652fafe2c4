//! The dice of `sample`.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that look random, the same ones for the same seed (SplitMix64, Steele, Lea and Flood 2014).
pub(crate) struct Random(AtomicU64);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A generator that is different each time.
    pub(crate) fn new() -> Self {
        Self::from_seed(std::hash::RandomState::new().build_hasher().finish())
    }

    /// One that goes its own way from the same number on.
    pub(crate) fn fork(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }

    /// Whether a packet is one of those that are sampled: [`u32::MAX`] is every one, 0 is none (`sample` in
    /// net/openvswitch/actions.c).
    pub(crate) fn picks(&self, probability: u32) -> bool {
        probability == u32::MAX || probability != 0 && self.next() <= probability
    }

    fn next(&self) -> u32 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_picked_as_the_probability_says() {
        let random = Random::from_seed(1);
        let picked = |probability| (0..10_000).filter(|_| random.picks(probability)).count();
        assert_eq!(picked(0), 0);
        assert_eq!(picked(u32::MAX), 10_000);
        assert!((2_300..2_700).contains(&picked(u32::MAX / 4)));
    }

    #[test]
    fn the_same_seed_picks_the_same() {
        let picks = |seed| {
            let random = Random::from_seed(seed);
            (0..64).map(|_| random.picks(u32::MAX / 2)).collect::<Vec<_>>()
        };
        assert_eq!(picks(7), picks(7));
        assert_ne!(picks(7), picks(8));
    }
}
