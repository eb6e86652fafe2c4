//! How often each place in the code may speak.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_flow::time::{Clock, Timestamp};
use tracing::callsite::Identifier;

/// How often each place in the code may speak: so many messages at once, and as many a minute.
pub(crate) struct RateLimit {
    per_minute: AtomicU32,
    clock: Arc<dyn Clock>,
    // As many entries as the program has log statements. Only messages that pass their level come here.
    places: Mutex<HashMap<Identifier, Place>>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It may be printed.
    Printed,
    /// It may be printed, after a word about those that were not.
    PrintedAfter(Dropped),
    /// It is one too many.
    Dropped,
}

/// Messages that were not printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// How many.
    pub(crate) count: u64,
    /// How long ago the first one was.
    pub(crate) first: Duration,
    /// How long ago the last one was.
    pub(crate) last: Duration,
}

impl fmt::Display for Dropped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "Dropped {} messages in last {} s (most recently {} s ago) due to excessive rate",
            self.count,
            self.first.as_secs(),
            self.last.as_secs()
        )
    }
}

struct Place {
    /// What may still be spent, in nanoseconds of a minute.
    credit: u64,
    seen: Timestamp,
    dropped: u64,
    first_dropped: Timestamp,
    last_dropped: Timestamp,
}

const MINUTE: u64 = 60_000_000_000;

impl RateLimit {
    /// At most so many messages a minute for each place; 0 is no limit.
    pub(crate) fn new(per_minute: u32, clock: Arc<dyn Clock>) -> Self {
        Self { per_minute: AtomicU32::new(per_minute), clock, places: Mutex::default() }
    }

    /// Takes over another rate.
    pub(crate) fn set(&self, per_minute: u32) {
        self.per_minute.store(per_minute, Ordering::Relaxed);
    }

    /// Counts a message of `place`, and says whether it may be printed.
    pub(crate) fn pass(&self, place: Identifier) -> Passage {
        let rate = u64::from(self.per_minute.load(Ordering::Relaxed));
        let now = self.clock.now();
        let mut places = self.places.lock();
        let place = places.entry(place).or_insert_with(|| Place {
            credit: MINUTE,
            seen: now,
            dropped: 0,
            first_dropped: now,
            last_dropped: now,
        });
        let earned = now.0.saturating_sub(place.seen.0);
        place.credit = place.credit.saturating_add(earned).min(MINUTE);
        place.seen = place.seen.max(now);
        let cost = MINUTE.checked_div(rate).unwrap_or(0);
        if place.credit < cost {
            if place.dropped == 0 {
                place.first_dropped = now;
            }
            place.dropped += 1;
            place.last_dropped = now;
            return Passage::Dropped;
        }
        place.credit -= cost;
        match std::mem::take(&mut place.dropped) {
            0 => Passage::Printed,
            count => Passage::PrintedAfter(Dropped {
                count,
                first: now.since(place.first_dropped),
                last: now.since(place.last_dropped),
            }),
        }
    }
}
