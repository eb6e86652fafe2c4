//! Polls between the usual ones, set where the next flow falls due.
//!
//! A round sees every flow anyway, so it finds the earliest deadline on its way, without a queue of timers. A poll at that
//! time, and [`GROUPING`] later so that neighbours share it, tells at once that the flow is idle, where the usual interval
//! would tell it up to two polls later.
//!
//! - A device whose readings are of an earlier time shows the deadline that much later, so the poll is set later by the lag
//!   that the last poll had. If the lag has grown since, the next round sets another.
//! - A flow with a single fresh reading at its deadline gets its second one soon.
//! - A flow that the device has not read lately, and all of them after a poll that failed, wait for the usual interval.
//! - Polls at deadlines take at most one part in [`SPARSENESS`] of the time. So they end by themselves where there are so
//!   many flows that the usual interval is as good: a million flows never pay for them.

use std::time::Duration;

use sluice_flow::Timestamp;
use sluice_flow::table::AgeView;

use crate::Round;

/// Flows that fall due within so long share a poll.
pub const GROUPING: Duration = Duration::from_millis(20);
/// After a round nothing is polled for a deadline before so many times its duration is over.
pub const SPARSENESS: u32 = 10;

impl Round {
    /// How long to wait, from the beginning of this round, before the next one.
    pub fn wait(&self) -> Duration {
        let Some(deadline) = self.deadline.filter(|_| self.failure.is_none()) else { return self.period };
        let to_deadline = deadline.since(self.began) + GROUPING;
        to_deadline.max(self.duration * SPARSENESS).min(self.period)
    }
}

/// The earliest deadline of the flows of one round.
pub(crate) struct Earliest {
    began: Timestamp,
    lag: Duration,
    deadline: Option<Timestamp>,
}

impl Earliest {
    pub(crate) fn after(began: Timestamp, lag: Duration) -> Self {
        Self { began, lag, deadline: None }
    }

    /// A flow stays that goes at a time whatever its counters say.
    pub(crate) fn hard(&mut self, due: Timestamp) {
        self.note(due);
    }

    /// A flow stays that goes once a reading of this time, or later, shows no growth.
    pub(crate) fn idle(&mut self, view: &AgeView, due: Timestamp) {
        let due = due.after(self.lag);
        if due > self.began {
            self.note(due);
        } else if (1..AgeView::ENOUGH).contains(&view.fresh) && view.read.after(self.lag) >= self.began {
            self.note(self.began);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    fn note(&mut self, due: Timestamp) {
        self.deadline = Some(self.deadline.map_or(due, |earliest| earliest.min(due)));
    }
}
