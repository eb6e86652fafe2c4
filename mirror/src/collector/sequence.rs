//! Sequence numbers of one class of one sender: what has come, what is missing, and what comes twice.

/// How many gaps are remembered. What belongs into a forgotten one counts as a duplicate.
const GAPS: usize = 64;

/// What has come so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sequence {
    /// The number behind the last frame; `None` before the first.
    next: Option<u64>,
    /// Ranges before that in which nothing has come, each with the number behind its last, in their order.
    gaps: Vec<(u64, u64)>,
}

/// What is to be done with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its frames are new, but for so many at its front; so many were expected before them and have not come.
    New {
        /// Frames that had come before.
        skip: u64,
        /// Frames that are missing before it.
        missing: u64,
    },
    /// It fills a gap, or a part of one.
    Late,
    /// All of it has come before.
    Duplicate,
}

impl Sequence {
    /// Goes on where an earlier collector was.
    pub(super) fn resumed(next: u64) -> Self {
        Self { next: Some(next), gaps: Vec::new() }
    }

    /// All frames before this number were taken, or will not come.
    pub(super) fn acknowledged(&self) -> u64 {
        self.next.unwrap_or_default()
    }

    /// Takes a batch of so many frames. The sum of both must fit into 64 bits.
    pub(super) fn take(&mut self, first: u64, frames: u64) -> Verdict {
        let end = first + frames;
        // A sender may have begun before this collector did.
        let next = self.next.unwrap_or(first);
        if end > next {
            self.next = Some(end);
            if first > next {
                if self.gaps.len() == GAPS {
                    self.gaps.remove(0);
                }
                self.gaps.push((next, first));
            }
            return Verdict::New { skip: next.saturating_sub(first), missing: first.saturating_sub(next) };
        }
        let Some(place) = self.gaps.iter().position(|(start, behind)| *start <= first && end <= *behind) else {
            return Verdict::Duplicate;
        };
        let (start, behind) = self.gaps.remove(place);
        if end < behind {
            self.gaps.insert(place, (end, behind));
        }
        if start < first {
            self.gaps.insert(place, (start, first));
        }
        self.gaps.truncate(GAPS);
        Verdict::Late
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_are_counted_filled_and_not_filled_twice() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.take(100, 10), Verdict::New { skip: 0, missing: 0 }, "it began earlier");
        assert_eq!(sequence.take(130, 10), Verdict::New { skip: 0, missing: 20 });
        assert_eq!(sequence.take(115, 5), Verdict::Late);
        assert_eq!(sequence.take(115, 5), Verdict::Duplicate);
        assert_eq!(sequence.take(110, 5), Verdict::Late);
        assert_eq!(sequence.take(120, 10), Verdict::Late);
        assert_eq!(sequence.take(120, 10), Verdict::Duplicate);
        assert_eq!(sequence.take(135, 10), Verdict::New { skip: 5, missing: 0 });
        assert_eq!(sequence.acknowledged(), 145);
    }

    proptest! {
        /// Whatever comes, no frame is taken twice, and each that was not taken is missing.
        #[test]
        fn each_frame_is_taken_at_most_once(batches in prop::collection::vec((0_u64..60, 1_u64..6), 1..60)) {
            let mut sequence = Sequence::resumed(0);
            let mut taken = HashSet::new();
            let (mut missing, mut late) = (0, 0);
            for (place, size) in batches {
                // Batches of one sender are always cut the same way.
                let first = place * 6;
                match sequence.take(first, size) {
                    Verdict::New { skip, missing: more } => {
                        missing += more;
                        for frame in first + skip..first + size {
                            prop_assert!(taken.insert(frame));
                        }
                    }
                    Verdict::Late => {
                        late += size;
                        for frame in first..first + size {
                            prop_assert!(taken.insert(frame));
                        }
                    }
                    Verdict::Duplicate => {}
                }
            }
            prop_assert_eq!(taken.len() as u64 + missing - late, sequence.acknowledged());
        }
    }
}
