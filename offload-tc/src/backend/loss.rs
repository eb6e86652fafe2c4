//! Rules that left the kernel by themselves.

use sluice_flow::backend::LostRule;

use super::core::Core;
use super::ledger::record::Entry;
use super::removal;

impl Core {
    /// Removes a lost rule from the ledger and reports it.
    pub(super) fn report_lost(&self, entry: &Entry) {
        if let Some(lost) = self.lose(entry) {
            self.events.lost(lost, self.clock.now());
        }
    }

    /// Removes a rule from the ledger that the kernel has lost, or whose guard it has lost. Does nothing if a worker is
    /// changing the rule, or has changed it since the entry was taken: what was missed then is not what is there now.
    pub(super) fn lose(&self, entry: &Entry) -> Option<LostRule> {
        if entry.guard_id().is_some() {
            // What is left of the two rules goes first, because the handle may be reused afterwards.
            let entry = self.ledger.leave(entry)?;
            // What cannot be deleted is found by the flow's next installation or by an audit.
            let _ = removal::take_out(&mut self.sockets.installer.lock(), &[&entry]);
            self.ledger.forget(entry.handle, entry.record.place);
            self.ledger.removal_done(entry.handle);
        } else if self.ledger.vacate_as(entry) {
            self.ledger.release_priority(entry.record.place.protocol);
        } else {
            return None;
        }
        Some(entry.lost())
    }
}
