//! When a flow was accepted, as a record has it.

use std::time::{Duration, SystemTime};

/// A time by the wall clock, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WallTime(pub(crate) u64);

impl From<SystemTime> for WallTime {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl WallTime {
    /// How long ago `earlier` was; nothing if the clock was set back meanwhile.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}
