//! Time as it is handed in: monotonic, so that a clock step ages nothing, and warped by tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds since the clock started. Monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// How long ago `earlier` was; nothing if it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time `span` earlier; the first there is if that lies before it.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time `span` later.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's monotonic clock.
pub struct MonotonicClock {
    began: Instant,
    /// What it showed then.
    showed: Timestamp,
}

impl MonotonicClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self::showing(Timestamp::default())
    }

    /// A clock that shows this time now, so that what was before its making has a time on it, too.
    pub fn showing(time: Timestamp) -> Self {
        Self { began: Instant::now(), showed: time }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Timestamp {
        self.showed.after(self.began.elapsed())
    }
}

/// A clock that stands until it is moved, for tests and simulation.
#[derive(Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Lets `span` pass.
    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
