//! Times in which nobody polled: the agent was stopped or suspended, or a poll hung.
//!
//! The traffic may have stood still with the agent, as in a virtual machine that was suspended with its peers. So a gap is no
//! time in which a flow was idle, and after the first gap since its last packet a flow has at least [`GRACE`] to show itself,
//! whatever other flows do meanwhile. Of each further gap only what came after the planned time does not count, so that gap
//! after gap keeps nobody for ever.

use std::collections::VecDeque;
use std::time::Duration;

use sluice_flow::Timestamp;

use crate::Round;

/// What is late by no more is no gap: the machine had other things to do.
const LATENESS: Duration = Duration::from_secs(1);
/// What a flow has at least, or its timeout if that is shorter, to show itself after a gap.
const GRACE: Duration = Duration::from_secs(1);
/// Gaps that are kept. A flow that was silent through more of them has been seen between them.
const KEPT: usize = 64;
/// A poll is late if it takes so many times as long as the one before, and more.
const SLOWER: u32 = 2;

/// The latest gaps, and what would be the next one.
#[derive(Default)]
pub(crate) struct Gaps {
    /// In their order, and apart from each other.
    known: VecDeque<Gap>,
    last: Option<Last>,
}

#[derive(Clone, Copy)]
struct Gap {
    /// When somebody last looked.
    from: Timestamp,
    /// When the next look was to be over.
    planned: Timestamp,
    /// When it was over.
    to: Timestamp,
}

/// The last round.
struct Last {
    ended: Timestamp,
    /// When the next one was to begin.
    next: Timestamp,
    poll: Duration,
    period: Duration,
}

impl Gaps {
    /// A round begins. Says whether a gap ends with that.
    pub(crate) fn begin(&mut self, now: Timestamp) -> bool {
        let Some(Last { ended, next, period, .. }) = self.last else { return false };
        self.note(Gap { from: ended, planned: next, to: now }, period)
    }

    /// The poll of a round that began then is over. Says whether it hung.
    pub(crate) fn polled(&mut self, began: Timestamp, now: Timestamp) -> bool {
        let Some(Last { poll, period, .. }) = self.last else { return false };
        self.note(Gap { from: began, planned: began.after(poll * SLOWER), to: now }, period)
    }

    /// A round is over.
    pub(crate) fn end(&mut self, round: &Round) {
        let ended = round.began.after(round.duration);
        let next = round.began.after(round.wait()).max(ended);
        self.last = Some(Last { ended, next, poll: round.poll, period: round.period });
    }

    fn note(&mut self, gap: Gap, period: Duration) -> bool {
        if gap.to.since(gap.planned) <= LATENESS.max(period) {
            return false;
        }
        if self.known.len() == KEPT {
            self.known.pop_front();
        }
        self.known.push_back(gap);
        true
    }

    /// From when on a reading without growth shows that a flow is idle, which last grew at `grown`.
    #[inline]
    pub(crate) fn due(&self, grown: Timestamp, idle: Duration) -> Timestamp {
        let due = grown.after(idle);
        if self.known.back().is_none_or(|last| last.to <= grown) { due } else { self.put_off(grown, idle) }
    }

    #[cold]
    fn put_off(&self, grown: Timestamp, idle: Duration) -> Timestamp {
        let since = self.known.partition_point(|gap| gap.to <= grown);
        let mut due = grown.after(idle);
        for (number, gap) in self.known.range(since..).enumerate() {
            if gap.from >= due {
                break;
            }
            let is_first = number == 0;
            let from = if is_first { gap.from } else { gap.planned };
            due = due.after(gap.to.since(from.max(grown)));
            if is_first {
                due = due.max(gap.to.after(idle.min(GRACE)));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::default().after(SECOND * u32::try_from(seconds).unwrap())
    }

    fn gaps(known: &[(u64, u64)]) -> Gaps {
        Gaps {
            known: known
                .iter()
                .map(|(from, to)| Gap { from: at(*from), planned: at(*from + 1), to: at(*to) })
                .collect(),
            last: None,
        }
    }

    #[test]
    fn a_gap_is_no_time_in_which_a_flow_was_idle() {
        let gaps = gaps(&[(10, 20), (30, 40)]);
        assert_eq!(gaps.due(at(0), SECOND * 5), at(5), "it was idle before");
        assert_eq!(gaps.due(at(5), SECOND * 7), at(22), "five seconds before it and two behind it");
        assert_eq!(gaps.due(at(15), SECOND * 7), at(27), "of the gap only what came after its last packet");
        assert_eq!(gaps.due(at(5), SECOND * 20), at(44), "of the second gap what was not planned");
        assert_eq!(gaps.due(at(40), SECOND * 5), at(45));
    }

    #[test]
    fn after_the_first_gap_a_flow_has_a_second_and_no_more_than_its_timeout_to_show_itself() {
        let short = Duration::from_millis(100);
        assert_eq!(gaps(&[(10, 20)]).due(at(0), Duration::from_millis(10_001)), at(20).after(GRACE));
        assert_eq!(gaps(&[(10, 20)]).due(Timestamp(at(10).0 - 1), short), at(20).after(short));
        let often: Vec<_> = (0..20).map(|number| (number * 100, number * 100 + 100)).collect();
        let due = gaps(&often).due(at(1), SECOND * 5);
        assert_eq!(due, at(600), "a second of each gap was planned: they keep nobody for ever");
    }
}
