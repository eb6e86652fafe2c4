//! What policers have dropped, beyond the 32 bits in which the kernel shows it.

use std::collections::HashMap;

use crate::wire::statistics::Statistics;

/// The drops of policers, by their indexes.
#[derive(Debug, Default)]
pub(crate) struct Drops(HashMap<u32, Known>);

/// What is known of a policer since it was read for the first time.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    bytes: u64,
    /// As the kernel shows them: the lower 32 bits (`drops` of `struct gnet_stats_queue`).
    shown: u32,
    sum: u64,
}

impl Drops {
    /// Takes a reading of a policer, and returns all that it has dropped. The first reading is taken for all before it.
    pub(crate) fn add(&mut self, index: u32, found: &Statistics) -> u64 {
        let known = self.0.entry(index).or_default();
        if found.total.bytes < known.bytes {
            // Somebody has made it anew, and it counts from zero.
            *known = Known::default();
        }
        let more = found.drops.wrapping_sub(known.shown);
        let sum = known.sum.saturating_add(more.into());
        *known = Known { bytes: found.total.bytes, shown: found.drops, sum };
        sum
    }

    /// A policer is gone, or is made anew.
    pub(crate) fn forget(&mut self, index: u32) {
        self.0.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::statistics::Count;

    fn reading(bytes: u64, drops: u32) -> Statistics {
        Statistics { total: Count { packets: 0, bytes }, drops, ..Statistics::default() }
    }

    #[test]
    fn drops_beyond_32_bits_are_counted_on() {
        let mut drops = Drops::default();
        let mut add = |bytes, shown| drops.add(7, &reading(bytes, shown));
        assert_eq!(add(1, u32::MAX - 1), u64::from(u32::MAX - 1), "of an earlier run");
        assert_eq!(add(2, 5), (1 << 32) + 5);
        assert_eq!(add(2, 5), (1 << 32) + 5);
        assert_eq!(add(3, 4), (2 << 32) + 4);
        assert_eq!(drops.add(8, &reading(0, 3)), 3, "another one has its own");
    }

    #[test]
    fn a_policer_that_is_made_anew_counts_from_zero() {
        let mut drops = Drops::default();
        drops.add(7, &reading(1000, 50));
        assert_eq!(drops.add(7, &reading(999, 20)), 20, "by somebody else");
        drops.forget(7);
        assert_eq!(drops.add(7, &reading(2000, 3)), 3);
    }
}
