//! When refused flows are tried again: soon after what they wait for has changed, and now and then in case nobody told.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sluice_flow::Cause;

/// Between two times that flows are tried again because of events: what happens in between is one.
const SPACING: Duration = Duration::from_millis(100);
/// Causes that are kept apart; of more, all ports are one.
const KEPT_APART: usize = 64;

/// What has changed since flows were last tried again. Time is handed in.
pub(crate) struct RetrySchedule {
    changed: BTreeSet<Cause>,
    /// When flows were last tried again for an event.
    tried: Option<Instant>,
    /// When all were, whatever they wait for.
    tried_all: Instant,
}

impl RetrySchedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self { changed: BTreeSet::new(), tried: None, tried_all: now }
    }

    /// Something has changed.
    pub(crate) fn note(&mut self, cause: Cause) {
        self.changed.insert(cause);
        if self.changed.len() > KEPT_APART {
            self.changed.retain(|cause| !matches!(cause, Cause::Port(_)));
            self.changed.insert(Cause::Port(None));
        }
    }

    /// Everything may have changed.
    pub(crate) fn note_all(&mut self) {
        self.changed = Cause::ALL.map(|(cause, _)| cause).into();
    }

    /// The causes to try flows again for, if it is time; all of them every `interval`.
    pub(crate) fn take_due(&mut self, now: Instant, interval: Option<Duration>) -> Option<BTreeSet<Cause>> {
        if interval.is_some_and(|interval| now >= self.tried_all + interval) {
            self.note_all();
            self.tried_all = now;
        } else if self.changed.is_empty() || self.tried.is_some_and(|tried| now < tried + SPACING) {
            return None;
        }
        self.tried = Some(now);
        Some(std::mem::take(&mut self.changed))
    }

    /// When there may be something due if nothing happens until then; `None` for never.
    pub(crate) fn next(&self, interval: Option<Duration>) -> Option<Instant> {
        let for_event = self.tried.filter(|_| !self.changed.is_empty()).map(|tried| tried + SPACING);
        let for_all = interval.map(|interval| self.tried_all + interval);
        for_event.into_iter().chain(for_all).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::PortNumber;

    const INTERVAL: Option<Duration> = Some(Duration::from_secs(30));

    #[test]
    fn an_event_is_acted_upon_at_once_and_those_right_after_it_together() {
        let began = Instant::now();
        let mut schedule = RetrySchedule::new(began);
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        assert_eq!((schedule.next(None), schedule.take_due(at(0), None)), (None, None));
        schedule.note(Cause::Meter);
        assert_eq!(schedule.take_due(at(1), None), Some([Cause::Meter].into()));
        for milliseconds in 2..50 {
            schedule.note(Cause::Room);
            schedule.note(Cause::Chain);
            assert_eq!(schedule.take_due(at(milliseconds), None), None);
        }
        assert_eq!(schedule.next(None), Some(at(101)));
        assert_eq!(schedule.take_due(at(101), None), Some([Cause::Room, Cause::Chain].into()));
        assert_eq!((schedule.next(None), schedule.take_due(at(500), None)), (None, None));
    }

    #[test]
    fn steady_events_neither_put_the_usual_retry_off_nor_make_more_of_them_than_the_spacing_allows() {
        let began = Instant::now();
        let mut schedule = RetrySchedule::new(began);
        let (mut passes, mut of_all) = (0, 0);
        for millisecond in 0..100_000 {
            schedule.note(Cause::Meter);
            if let Some(causes) = schedule.take_due(began + Duration::from_millis(millisecond), INTERVAL) {
                passes += 1;
                of_all += usize::from(causes.len() == Cause::ALL.len());
            }
        }
        assert_eq!(of_all, 3);
        assert!((999..=1003).contains(&passes), "{passes}");
    }

    #[test]
    fn many_ports_become_any_port_and_nothing_else_is_forgotten() {
        let mut schedule = RetrySchedule::new(Instant::now());
        schedule.note(Cause::Room);
        (0..10_000).for_each(|number| schedule.note(Cause::Port(Some(PortNumber(number)))));
        let due = schedule.take_due(Instant::now(), None).unwrap();
        assert!(due.len() <= KEPT_APART && due.contains(&Cause::Port(None)) && due.contains(&Cause::Room), "{due:?}");
    }
}
