//! Rules that left the kernel by themselves.

use sluice_flow::backend::LostRule;

use super::core::Core;
use super::ledger::record::{Entry, State};
use super::removal;

impl Core {
    /// Takes a rule off the ledger that is gone, and says so; if nobody listens, that everything must be compared.
    pub(super) fn report_lost(&self, entry: &Entry) {
        if let Some(lost) = self.lose(entry) {
            self.events.lost(lost, self.clock.now());
        }
    }

    /// Takes a rule off the ledger that the kernel has no more, or the guard of which it has no more, unless a worker has to do
    /// with it, who will notice.
    pub(super) fn lose(&self, entry: &Entry) -> Option<LostRule> {
        if entry.guard_id().is_some() {
            // What is left of two rules goes first, for then the name may be another flow's.
            let entry = self.ledger.transition(entry.handle, &[State::Installed], State::Leaving)?;
            // What cannot be taken out lies where the flow's next rules find it, or an audit.
            let _ = removal::take_out(&mut self.sockets.installer.lock(), &[&entry]);
            self.ledger.vacate(entry.handle);
            self.ledger.removal_done(entry.handle);
        } else if !self.ledger.forget_if(entry.handle, |state| state == State::Installed) {
            return None;
        }
        self.ledger.release_priority(entry.record.place.protocol);
        Some(entry.lost())
    }
}
