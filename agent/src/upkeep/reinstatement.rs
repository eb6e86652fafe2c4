//! How long the flows of earlier runs are without rules, where rules go with the agent that installed them.

use std::sync::OnceLock;
use std::time::Duration;

use sluice_flow::Timestamp;

/// Flows that an earlier run has left, on their way back into the device.
#[derive(Debug, Default)]
pub struct Reinstatement {
    began: OnceLock<Timestamp>,
    gap: OnceLock<Duration>,
}

impl Reinstatement {
    /// They are about to be read.
    pub(crate) fn begin(&self, now: Timestamp) {
        self.began.get_or_init(|| now);
    }

    /// Looks whether they are back. `unsettled` flows have no answer yet, and no agent was there for `away` before. Returns how long they
    /// were without rules at most, when it is seen first that all are back.
    pub(crate) fn look(&self, now: Timestamp, unsettled: usize, away: Duration) -> Option<Duration> {
        let began = self.began.get()?;
        if unsettled > 0 || self.gap.get().is_some() {
            return None;
        }
        Some(*self.gap.get_or_init(|| away + now.since(*began)))
    }

    /// How long they were without rules at most. `None` as long as some are, and where rules outlive the agent.
    pub fn gap(&self) -> Option<Duration> {
        self.gap.get().copied()
    }

    /// Whether there is something to look for.
    pub(crate) fn is_under_way(&self) -> bool {
        self.began.get().is_some() && self.gap.get().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_without_rules_ends_once_when_all_flows_have_an_answer() {
        const SECOND: Duration = Duration::from_secs(1);
        let at = |seconds: u64| Timestamp(seconds * 1_000_000_000);
        let reinstatement = Reinstatement::default();
        assert_eq!(reinstatement.look(at(1), 0, SECOND), None, "rules outlive the agent");
        reinstatement.begin(at(10));
        assert!(reinstatement.is_under_way());
        assert_eq!(reinstatement.look(at(11), 5, SECOND), None);
        assert_eq!(reinstatement.look(at(12), 0, SECOND), Some(SECOND * 3));
        assert_eq!(reinstatement.look(at(13), 0, SECOND), None, "it is told once");
        assert_eq!((reinstatement.gap(), reinstatement.is_under_way()), (Some(SECOND * 3), false));
    }
}
