//! What happened last of what happens rarely: the last audit, and the last reload of the configuration.

use std::time::SystemTime;

use parking_lot::Mutex;
use sluice_flow::Timestamp;

use crate::upkeep::audit::Audit;
use crate::upkeep::difference::Kind;

/// The last audit and the last reload, for whoever looks at the agent later.
#[derive(Debug, Default)]
pub struct Recent {
    audit: Mutex<Option<LastAudit>>,
    reload: Mutex<Option<LastReload>>,
}

/// What the last audit found, after mending if it mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAudit {
    /// When it ended.
    pub at: Timestamp,
    /// How much is not as wanted, by [`Kind::ALL`].
    pub differences: [usize; Kind::ALL.len()],
}

/// How the last reading of the configuration ended. The start reads it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReload {
    /// Whether the configuration was taken over.
    pub is_in_force: bool,
    /// When a configuration was last taken over.
    pub in_force_since: SystemTime,
}

impl Recent {
    /// Notes what an audit found.
    pub fn note_audit(&self, found: &Audit, at: Timestamp) {
        *self.audit.lock() = Some(LastAudit { at, differences: Kind::ALL.map(|kind| found.count(kind)) });
    }

    /// Notes whether a configuration was taken over. A refusal before the first success is not noted: no agent runs without one.
    pub fn note_reload(&self, is_in_force: bool, at: SystemTime) {
        let mut last = self.reload.lock();
        let since = if is_in_force { Some(at) } else { last.map(|last| last.in_force_since) };
        *last = since.map(|in_force_since| LastReload { is_in_force, in_force_since });
    }

    /// The last audit, if there was one.
    pub fn audit(&self) -> Option<LastAudit> {
        *self.audit.lock()
    }

    /// The last reload, once the daemon has noted its start.
    pub fn reload(&self) -> Option<LastReload> {
        *self.reload.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reload_that_fails_leaves_the_time_of_the_last_that_did_not() {
        let recent = Recent::default();
        let (start, later) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(9));
        recent.note_reload(true, start);
        recent.note_reload(false, later);
        assert_eq!(recent.reload(), Some(LastReload { is_in_force: false, in_force_since: start }));
        recent.note_reload(true, later);
        assert_eq!(recent.reload(), Some(LastReload { is_in_force: true, in_force_since: later }));
    }
}
