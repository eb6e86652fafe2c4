//! One match has one rule.
//!
//! The kernel refuses a second rule of one match at a priority (`fl_ht_insert_unique` in `net/sched/cls_flower.c`), but only if it is
//! added. A rule that replaces another one of its handle may have the match of a third one: the kernel does not look, and shows
//! both from then on, of which either may take the packets. So a rule replaces only what has its match already; anything else under
//! its name is taken out first, and the rule is added.

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

/// Names of rules in the kernel that are tried, if others have them.
pub(super) const NAMES_TRIED: usize = 8;

/// Puts rules in and takes them out for one worker, by a socket of its own.
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

    /// What became of a rule that was to be added; `None` if its name is somebody else's.
    pub(super) fn resolve(&mut self, filter: &Filter, result: Result<Done>) -> Result<Option<Done>> {
        match result {
            Err(refusal) if failure::is_duplicate(&refusal) => match self.installer.find(filter.id) {
                // No flow has it, for the name is this one's.
                Ok(Some(found)) if self.is_ours(&found) => self.supersede(&found, filter).map(Some),
                Ok(Some(_)) => Ok(None),
                Ok(None) => Err(failure::duplicate()),
                Err(_) => Err(refusal),
            },
            other => other.map(Some),
        }
    }

    /// Puts a rule in the place of one of ours that was left behind under its name.
    fn supersede(&mut self, left: &Filter, filter: &Filter) -> Result<Done> {
        let ports = self.core.ports.load_full();
        if is_same_match(left, &filter.flower, &ports) {
            return self.installer.submit_one(Request::Replace(filter.clone()));
        }
        let result = self.installer.submit_one(Request::Delete(left.id));
        removal::deleted(&mut self.installer, left.id, result)?;
        self.add(filter.clone())
    }

    /// Puts the rule of a flow in that needs no guard, where somebody has put one of another match in its place.
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

    /// Puts a rule in where there is none of its name.
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

/// Whether a rule that is there matches what another one of its name would.
pub(super) fn is_same_match(there: &Filter, wanted: &Flower, ports: &PortTable) -> bool {
    let Flower { keys, options, labels, cfm, .. } = &there.flower;
    if (keys, options, labels, cfm) == (&wanted.keys, &wanted.options, &wanted.labels, &wanted.cfm) {
        return true;
    }
    // The kernel may show a match otherwise than it was written.
    let shown = translate::matching(there, ports);
    let wanted = Filter { id: there.id, flower: Flower { actions: Vec::new(), ..wanted.clone() } };
    shown.is_some() && shown == translate::matching(&wanted, ports)
}
