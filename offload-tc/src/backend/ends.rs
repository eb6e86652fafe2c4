//! Ends of chains that others take away. Nothing else would put them in again: the rules that jump to the chain stay as they are.

use sluice_flow::chain::ChainId;
use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::failure::{self, socket_refusal};
use super::ledger::chains::{self, EndKind, end_id};
use crate::install::Request;
use crate::wire::filter::Hook;

impl Core {
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
            match installer.submit_one(Request::Add(chains::end(hook, chain, kind, self.agent, self.policy))) {
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
}
