//! Writes the rules of one worker, with one rule for each match.
//!
//! The kernel refuses a second rule with the same match at a priority (`fl_ht_insert_unique` in `net/sched/cls_flower.c`),
//! but only when a rule is added. If a rule is replaced at its handle, the new one may have the match of a third rule: the
//! kernel does not check, and then has both, either of which may take the packets. So a rule is replaced only by one with
//! the same match; anything else at its handle is deleted first, and the rule is added.

use std::sync::Arc;

use sluice_flow::backend::Outcome;

use super::wanted::Wanted;
use crate::backend::core::Core;
use crate::backend::failure::{self, Result, socket_refusal};
use crate::backend::ledger::ShardCursor;
use crate::backend::ledger::record::Entry;
use crate::backend::placement;
use crate::backend::ports::table::PortTable;
use crate::backend::removal;
use crate::install::{Done, Installer, Request};
use crate::label::Label;
use crate::translate;
use crate::wire::filter::Filter;
use crate::wire::flower::Flower;

/// How many handles are tried if others use them.
pub(super) const NAMES_TRIED: usize = 8;

/// Installs and deletes rules for one worker, through its own socket.
pub(super) struct Writer {
    pub(super) core: Arc<Core>,
    /// Keeps workers out of each other's way in the ledger.
    pub(super) cursor: ShardCursor,
    pub(super) installer: Installer,
}

impl Writer {
    pub(super) fn open(core: Arc<Core>) -> Result<Self> {
        let cursor = ShardCursor::new(core.sockets.next_queue());
        let installer = Installer::open(core.policy).map_err(socket_refusal)?;
        Ok(Self { core, cursor, installer })
    }

    /// The outcome of adding a rule; `None` if somebody else uses its handle.
    pub(super) fn resolve(&mut self, filter: &Filter, result: Result<Done>) -> Result<Option<Done>> {
        match result {
            Err(refusal) if failure::is_duplicate(&refusal) => match self.installer.find(filter.id) {
                // No flow has it, because the ledger gave the handle to this one.
                Ok(Some(found)) if self.is_ours(&found) => self.supersede(&found, filter).map(Some),
                Ok(Some(_)) => Ok(None),
                Ok(None) => Err(failure::duplicate()),
                Err(_) => Err(refusal),
            },
            other => other.map(Some),
        }
    }

    /// Replaces a rule of ours that was left behind at this handle.
    fn supersede(&mut self, left: &Filter, filter: &Filter) -> Result<Done> {
        let ports = self.core.ports.load_full();
        if is_same_match(left, &filter.flower, &ports) {
            return self.installer.submit_one(Request::Replace(filter.clone()));
        }
        let result = self.installer.submit_one(Request::Delete(left.id));
        removal::deleted(&mut self.installer, left.id, result)?;
        self.add(filter.clone())
    }

    /// Installs the rule of a flow without a guard, where somebody has put a rule with another match in its place.
    pub(super) fn put_in_again(&mut self, entry: &Entry, wanted: Wanted, ports: &PortTable) -> Result<Outcome> {
        let (handle, place) = (entry.handle, entry.record.place);
        let counted = removal::take_out(&mut self.installer, &[entry]).pop().transpose();
        let added = counted.and_then(|counted| Ok((counted.flatten(), self.add(wanted.rule(handle))?)));
        match added {
            Ok((counted, done)) => {
                self.core.ledger.settle(handle, place, counted.unwrap_or(entry.record.carried()), None);
                Ok(Outcome::InPlace { handle, placement: placement::of_rule(self.core.policy, done.report.as_ref()) })
            }
            Err(refusal) => {
                self.core.ledger.settle_as_before(entry);
                Err(failure::refine(refusal, place.hook, ports))
            }
        }
    }

    /// Adds a rule where its handle is free.
    pub(super) fn add(&mut self, filter: Filter) -> Result<Done> {
        match self.installer.submit_one(Request::Add(filter)) {
            Err(refusal) if failure::is_duplicate(&refusal) => Err(failure::duplicate()),
            other => other,
        }
    }

    fn is_ours(&self, found: &Filter) -> bool {
        Label::of(&found.flower).is_some_and(|label| label.agent == self.core.agent)
    }
}

/// Whether an installed rule has the match of a wanted one.
pub(super) fn is_same_match(there: &Filter, wanted: &Flower, ports: &PortTable) -> bool {
    let Flower { keys, options, labels, cfm, .. } = &there.flower;
    if (keys, options, labels, cfm) == (&wanted.keys, &wanted.options, &wanted.labels, &wanted.cfm) {
        return true;
    }
    // The kernel may show a match in another form than it was written.
    let shown = translate::matching(there, ports);
    let wanted = Filter { id: there.id, flower: Flower { actions: Vec::new(), ..wanted.clone() } };
    shown.is_some() && shown == translate::matching(&wanted, ports)
}
