//! What was made for ports and for members of LAGs, and nobody wants any more.
//!
//! The rules of a LAG are in a block that the members share: a device that keeps the queueing discipline with that block goes on to forward by
//! them. A tunnel device that is left keeps its UDP port from all others.

use std::collections::BTreeSet;

use sluice_flow::refusal::Refusal;
use sluice_netdev::{Ifindex, Links, NotRemoved};

use super::core::Core;
use super::failure;
use super::flush::OwnRule;
use super::ledger::record::State;
use super::ports::device::qdisc_of_lag;
use super::ports::{Left, Unreleased};
use crate::install::Request;
use crate::wire::filter::Hook;

impl Core {
    /// Tries again to remove what is left of former members of LAGs and of ports that are gone.
    pub(super) fn release_what_is_left(&self) {
        let monitor = self.sockets.monitor.lock();
        self.release_former_members(monitor.links());
        self.ports.remove_left(&mut self.sockets.control.lock(), |made| self.is_held(made));
    }

    /// Removes what is left of members that left a LAG and of ports that left the configuration while no agent ran, and forgets the queueing
    /// disciplines of devices that have gone meanwhile. To be called once the ports are attached that are wanted.
    pub(super) fn release_what_was_left(&self) -> Result<(), Refusal> {
        let mut monitor = self.sockets.monitor.lock();
        self.poll_monitor(&mut monitor)?;
        let links = monitor.links();
        self.release_former_members(links);
        self.ports.qdiscs.retain(|ifindex| links.at(ifindex).is_some());
        let mut control = self.sockets.control.lock();
        for made in self.ports.of_earlier_runs(&mut control, links)? {
            self.ports.remove(&mut control, made);
        }
        Ok(())
    }

    /// Removes the queueing disciplines that were made for members of a LAG from devices that are none any more, and before them the rules of a
    /// LAG that is gone, by which its block would be in use. `tc-watch` tries again what cannot be removed.
    pub(super) fn release_former_members(&self, links: &Links) {
        let former = self.ports.former_members(links);
        let gone: BTreeSet<_> = former.iter().map(|(_, lag)| *lag).filter(|lag| links.at(*lag).is_none()).collect();
        gone.into_iter().for_each(|lag| self.clear(Hook::Block { number: lag.0 }));
        let mut left = Unreleased::new();
        for (ifindex, lag) in former {
            let removed = self.ports.remove_qdisc(&mut self.sockets.control.lock(), ifindex, qdisc_of_lag(lag));
            let reason = match removed {
                Ok(Ok(()) | Err(NotRemoved::Gone | NotRemoved::Replaced(_))) => continue,
                Ok(Err(not_removed)) => not_removed.to_string(),
                Err(refusal) => refusal.to_string(),
            };
            left.insert(ifindex, reason);
        }
        self.ports.note_unreleased(links, left);
    }

    /// Whether rules of this agent are at a queueing discipline, or on their way there.
    pub(super) fn is_held(&self, made: &Left) -> bool {
        let Left::Qdisc { ifindex: Ifindex(interface), qdisc } = *made else { return false };
        let ingress = qdisc.ingress_block.map_or(Hook::Ingress { interface }, |block| Hook::Block { number: block.0 });
        let is_there = |hook: Hook| hook == ingress || hook == Hook::Egress { interface };
        !self.ledger.select(|state, record| state != State::Parked && is_there(record.place.hook)).is_empty()
    }

    /// Deletes what this agent has in the block of a LAG that is gone. No flow can adopt what an earlier run left there: a rule says by its
    /// block from which port packets come, and no port has that block.
    pub(super) fn clear(&self, hook: Hook) {
        self.park(hook);
        self.mirrors.park(hook);
        if let Err(refusal) = self.delete_left(hook) {
            tracing::warn!(
                "rules of a bond that is gone cannot be deleted, and former members forward by them: {refusal}"
            );
        }
    }

    fn delete_left(&self, hook: Hook) -> Result<(), Refusal> {
        let mut left = Vec::new();
        self.list_own(hook, &mut left)?;
        // Rules are deleted before their guards.
        left.sort_by_key(|rule| rule.is_guard);
        let requests: Vec<_> = left.iter().map(|OwnRule { id, .. }| Request::Delete(*id)).collect();
        let results = self.sockets.installer.lock().submit(&requests);
        left.iter().for_each(|rule| self.ledger.chains.forget_end(&rule.id));
        let failed = results.into_iter().filter_map(Result::err).find(|refusal| !failure::is_absence(refusal));
        failed.map_or(Ok(()), Err)
    }
}
