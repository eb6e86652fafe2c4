//! The decision about one flow, and when the next one falls due.

use std::time::Duration;

use sluice_flow::table::AgeView;
use sluice_flow::{EndReason, Expiry, FlowTable, Timestamp};

use crate::deadline::Earliest;
use crate::gaps::Gaps;
use crate::{Config, Round};

/// What becomes of a flow.
pub(crate) enum Verdict {
    /// It goes for this reason.
    Over(EndReason),
    /// It stays; above the limit it may be evicted.
    Stays,
    /// It stays whatever happens.
    Permanent,
}

/// The timeouts of a flow, those of the configuration put in where it has none of its own.
#[derive(Clone, Copy)]
struct Timeouts {
    idle: Option<Duration>,
    hard: Option<Duration>,
    permanent: bool,
}

/// Judges the flows of one round.
pub(crate) struct Ageing<'a> {
    config: &'a Config,
    table: &'a FlowTable,
    gaps: &'a Gaps,
    now: Timestamp,
    /// By class.
    timeouts: Vec<Timeouts>,
    earliest: Earliest,
}

impl<'a> Ageing<'a> {
    pub(crate) fn new(config: &'a Config, table: &'a FlowTable, gaps: &'a Gaps, now: Timestamp, round: &Round) -> Self {
        let timeouts = table.expiries().iter().map(|expiry| Timeouts::new(expiry, config)).collect();
        let earliest = Earliest::after(round.began, round.lag);
        Self { config, table, gaps, now, timeouts, earliest }
    }

    pub(crate) fn judge(&mut self, view: &AgeView) -> Verdict {
        let listed = self.timeouts.get(view.class.index()).copied();
        let Some(timeouts) = listed.or_else(|| self.unlisted(view)) else { return Verdict::Permanent };
        if timeouts.permanent {
            return Verdict::Permanent;
        }
        if let Some(hard) = timeouts.hard
            && let Some((_, accepted)) = self.table.term(view.id)
        {
            let due = accepted.after(hard);
            if due <= self.now {
                return Verdict::Over(EndReason::Hard);
            }
            self.earliest.hard(due);
        }
        if let Some(idle) = timeouts.idle {
            let due = self.gaps.due(view.grown, idle);
            if view.idle().is_some() && view.read >= due {
                return Verdict::Over(EndReason::Idle);
            }
            self.earliest.idle(view, due);
        }
        Verdict::Stays
    }

    /// When the next flow falls due.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.earliest.deadline()
    }

    /// The timeouts of a flow whose class is newer than this round, or not listed; `None` if it is over by now.
    #[cold]
    fn unlisted(&self, view: &AgeView) -> Option<Timeouts> {
        self.table.term(view.id).map(|(expiry, _)| Timeouts::new(&expiry, self.config))
    }
}

impl Timeouts {
    fn new(expiry: &Expiry, config: &Config) -> Self {
        Self {
            idle: expiry.idle.or(config.idle_timeout),
            hard: expiry.hard.or(config.hard_timeout),
            permanent: expiry.permanent,
        }
    }
}
