//! Ends of chains that others take away, which nothing else would put in again: the rules that jump to the chain stay as they are. And the end of
//! the first chain at a LAG, by which a packet meets the rules once.

use sluice_flow::chain::ChainId;
use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::failure::{self, socket_refusal};
use super::ledger::chains::{self, EndKind, end_id};
use crate::config::OffloadPolicy;
use crate::install::{Installer, Request};
use crate::wire::filter::{Filter, Hook};

/// Before the first listing: with it only what is known to be missing is.
const NO_LISTING: u64 = 0;

impl Core {
    /// Has packets that come for the second time go on at a LAG. A hook of another device needs nothing, and rules in hardware alone see no packet
    /// twice.
    pub(super) fn expect_end_at(&self, hook: Hook) {
        if matches!(hook, Hook::Block { .. }) && self.policy != OffloadPolicy::SkipSoftware {
            self.ledger.chains.expect_at_lag(hook);
            self.restore_ends(NO_LISTING);
        }
    }

    /// Has packets meet the rules at a LAG, too, because a member does not have them. Others are copied and counted twice then, as long as this is
    /// so.
    pub(super) fn give_up_end_at(&self, hook: Hook) {
        if let Some(id) = self.ledger.chains.give_up_at_lag(hook) {
            // What cannot be deleted is known again when all members have the rules.
            let _ = self.sockets.installer.lock().submit_one(Request::Delete(id));
        }
    }

    /// Puts in again the ends of chains that a listing did not show and that are not there.
    pub(super) fn restore_ends(&self, dump: u64) {
        let unseen = self.ledger.chains.unseen(dump);
        let failed = unseen.into_iter().filter_map(|(hook, chain, kind)| self.restore_end(hook, chain, kind).err());
        let reasons: Vec<_> = failed.collect();
        self.ledger.chains.note_failure(reasons.first());
    }

    fn restore_end(&self, hook: Hook, chain: ChainId, kind: EndKind) -> Result<(), Refusal> {
        let (id, chains) = (end_id(hook, chain.0), &self.ledger.chains);
        let mut installer = self.sockets.installer.lock();
        let is_new = installer.find(id).map_err(socket_refusal)?.is_none();
        if is_new {
            let end = self.end(&installer, hook, chain, kind)?;
            match installer.submit_one(Request::Add(end)) {
                // A worker was quicker.
                Err(refusal) if failure::is_duplicate(&refusal) => return Ok(()),
                other => other?,
            };
        }
        if !chains.mended(hook, chain, is_new, self.ledger.dumps.last()) && is_new {
            // The chain was closed meanwhile. What cannot be deleted passes packets on, as they would without it.
            let _ = installer.submit_one(Request::Delete(id));
        }
        Ok(())
    }

    /// The end of a chain, as it is put in now.
    pub(super) fn end(
        &self,
        installer: &Installer,
        hook: Hook,
        chain: ChainId,
        kind: EndKind,
    ) -> Result<Filter, Refusal> {
        match hook {
            Hook::Block { number: lag } if chain == ChainId::ROOT => {
                Ok(chains::end_at_lag(hook, &installer.name_of(lag).map_err(socket_refusal)?, self.agent))
            }
            _ => Ok(chains::end(hook, chain, kind, self.agent, self.policy)),
        }
    }
}
