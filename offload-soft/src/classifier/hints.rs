//! Which subtable packets like this one were found in last.
//!
//! With many masks most of a lookup is spent in subtables that have nothing for the packet. Packets of one flow agree in
//! all bits that any mask looks at, so a hash of those bits remembers the subtable. A hint is no answer: the rule is
//! looked up and compared as ever, only in another order, so that a hint that is old, torn or another flow's costs time
//! and nothing else. (OVS has the like: the mask cache of its kernel module, the signature match cache of its userspace.)

use std::sync::atomic::{AtomicU32, Ordering};

/// Hints that may be kept for one hash, side by side in a cache line.
const WAYS: usize = 8;
/// Hints at most, in one classifier: 8 MiB.
const MOST: usize = 1 << 21;

/// Hints, each of which has a part of a hash in the upper half and the number of a subtable, and one, in the lower half.
pub(super) struct Hints(Box<[AtomicU32]>);

impl Hints {
    /// Hints for the flows of so many rules.
    pub(super) fn for_rules(rules: usize) -> Self {
        // Zeroed by the allocator, so that hints take memory once there are packets.
        Self(vec![0; Self::wanted(rules)].into_iter().map(AtomicU32::new).collect())
    }

    /// Whether there are fewer than so many rules ask for.
    pub(super) fn are_too_few(&self, rules: usize) -> bool {
        self.0.len() < Self::wanted(rules)
    }

    /// So many that hardly any flow finds its places taken, one in sixty at the most: each that does costs a walk through
    /// the subtables.
    fn wanted(rules: usize) -> usize {
        (rules * 2).next_power_of_two().clamp(64, MOST)
    }

    /// The number of the subtable in which the packet may be.
    #[inline]
    pub(super) fn get(&self, hash: u64) -> Option<u16> {
        let tag = tag(hash);
        // No branch depends on what is read, so that the processor goes on to the next packet while it waits. Should two
        // places ever have the tag, the hint is just wrong.
        let hints = self.ways(hash).iter().map(|hint| hint.load(Ordering::Relaxed));
        number(hints.fold(0, |found, hint| found | if hint >> 16 == tag { hint } else { 0 }))
    }

    /// Remembers where the packet was found.
    pub(super) fn remember(&self, hash: u64, subtable: u16) {
        let Some(stored) = subtable.checked_add(1) else {
            return;
        };
        let ways = self.ways(hash);
        let place = ways
            .iter()
            .position(|hint| hint.load(Ordering::Relaxed) >> 16 == tag(hash))
            .or_else(|| ways.iter().position(|hint| number(hint.load(Ordering::Relaxed)).is_none()))
            // Any of them: by bits that neither place nor tag use.
            .unwrap_or((hash >> 40) as usize % WAYS);
        ways[place].store(tag(hash) << 16 | u32::from(stored), Ordering::Relaxed);
    }

    #[inline]
    fn ways(&self, hash: u64) -> &[AtomicU32] {
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
        let start = (hash as usize & (self.0.len() - 1)) & !(WAYS - 1);
        &self.0[start..start + WAYS]
    }
}

#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 48) as u32
}

#[inline]
fn number(hint: u32) -> Option<u16> {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    (hint as u16).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_of_its_hash_alone() {
        let hints = Hints::for_rules(10);
        let hash = 0x1234_0000_0000_0007;
        assert_eq!(hints.get(hash), None);
        hints.remember(hash, 0);
        assert_eq!((hints.get(hash), hints.get(hash ^ 1 << 60)), (Some(0), None));
        hints.remember(hash, 900);
        assert_eq!(hints.get(hash), Some(900), "the newer one");
        hints.remember(hash, u16::MAX);
        assert_eq!(hints.get(hash), Some(900), "a number that does not fit is not remembered");
    }

    #[test]
    fn one_too_many_takes_the_place_of_one() {
        let hints = Hints::for_rules(10);
        let hash = |flow: u64| flow << 48 | flow << 40;
        (1..=9).for_each(|flow| hints.remember(hash(flow), 1));
        assert_eq!((1..=9).filter(|flow| hints.get(hash(*flow)).is_some()).count(), WAYS);
        assert_eq!(hints.get(hash(9)), Some(1));
    }
}
