//! What others do to devices, queueing disciplines and filters.

use std::time::Duration;

use sluice_flow::refusal::Refusal;
use sluice_netdev::{self as netdev, Attachment, Event, Monitor, TouchedFilters};

use super::core::Core;
use super::failure::link_refusal;
use super::ledger::record::State;
use crate::priorities::Priorities;
use crate::wire::filter::{FilterId, Hook};

impl Core {
    /// Handles what has happened since the last call.
    pub(super) fn poll_monitor(&self, monitor: &mut Monitor) -> Result<(), Refusal> {
        let events = monitor.poll(Duration::ZERO).map_err(link_refusal)?;
        if events.is_empty() {
            return Ok(());
        }
        let own = self.sockets.control.lock().port();
        for event in events {
            self.take(monitor.links(), event, own);
        }
        Ok(())
    }

    fn take(&self, links: &netdev::Links, event: Event, own: u32) {
        match event {
            Event::Appeared(port) | Event::Renamed { port, .. } | Event::StateChanged { port, .. } => {
                if let Some(known) = links.at(port.ifindex) {
                    self.device_appeared(links, known);
                }
            }
            Event::Gone(port) | Event::Moved { port, .. } => {
                // The kernel has removed its queueing disciplines (`dev_shutdown`).
                self.ports.qdiscs.remove(port.ifindex);
                self.device_gone(links, port.generation);
            }
            Event::QdiscRemoved { port, by, .. } | Event::QdiscReplaced { port, by, .. } if by != Some(own) => {
                self.ports.qdiscs.remove(port.ifindex);
                self.restore_qdiscs(links, port.generation);
            }
            Event::MasterChanged { from, to, .. } => {
                [from, to].into_iter().flatten().for_each(|master| self.members_changed(links, master));
            }
            Event::FiltersGone(loss) => self.look_for(&loss),
            Event::FilterPut(filter) => self.doubt(&filter),
            // The kernel does not say which rules use the action.
            Event::ActionsTouched { .. } => self.doubt_all(),
            Event::Resynchronised => {
                self.doubt_all();
                self.events.reset(self.clock.now());
            }
            _ => {}
        }
    }

    /// Somebody else added a filter, perhaps in place of one of ours.
    fn doubt(&self, filter: &TouchedFilters) {
        let TouchedFilters { chain, priority, protocol, handle, .. } = *filter;
        let hook = hook_of(filter);
        if Priorities::is_of_mirror(priority) {
            self.restore_mirrors(Some(hook));
        }
        let name = handle.map(|handle| FilterId { hook, chain, priority, protocol, handle });
        if let Some((entry, _)) = name.and_then(|name| self.ledger.by_id(&name)) {
            self.doubts.about(entry.handle);
        }
    }

    /// Rules and meters may have been changed.
    fn doubt_all(&self) {
        self.doubts.about_all(&self.ledger);
        self.doubts.about_meters();
    }

    /// Somebody else deleted filters. A single rule of ours is looked up; where it may be many, all are compared.
    fn look_for(&self, loss: &TouchedFilters) {
        let hook = hook_of(loss);
        let TouchedFilters { chain, priority, protocol, handle, .. } = *loss;
        if priority == 0 || Priorities::is_of_mirror(priority) {
            self.restore_mirrors(Some(hook));
            self.doubts.about_mirrors();
        }
        let Some(handle) = handle else {
            self.ledger.chains.lose_priority(hook, chain, priority);
            let there = self.ledger.select(|state, record| state == State::Installed && record.place.hook == hook);
            if there.iter().any(|entry| priority == 0 || entry.is_at(hook, priority)) {
                self.events.reset(self.clock.now());
            }
            return;
        };
        let id = FilterId { hook, chain, priority, protocol, handle };
        self.ledger.chains.lose_end(&id);
        if let Some((entry, State::Installed)) = self.ledger.by_id(&id) {
            let found = self.sockets.installer.lock().find(id);
            if matches!(found, Ok(None)) {
                self.report_lost(&entry);
            }
        }
    }

    /// Where rules of ours may be: at the ports, and wherever else filters can be.
    pub(super) fn hooks_everywhere(&self) -> Result<Vec<Hook>, Refusal> {
        let mut hooks = self.ports.load().hooks();
        let mut monitor = self.sockets.monitor.lock();
        self.poll_monitor(&mut monitor)?;
        for known in monitor.links().iter() {
            let Some(qdisc) = known.qdisc else { continue };
            let interface = known.device.ifindex.0;
            let block = |block: netdev::Block| Hook::Block { number: block.0 };
            hooks.push(qdisc.ingress_block.map_or(Hook::Ingress { interface }, block));
            if qdisc.kind == netdev::IngressKind::Clsact {
                hooks.push(qdisc.egress_block.map_or(Hook::Egress { interface }, block));
            }
        }
        hooks.sort_unstable();
        hooks.dedup();
        Ok(hooks)
    }
}

const fn hook_of(filters: &TouchedFilters) -> Hook {
    match filters.attachment {
        Attachment::Ingress(ifindex) => Hook::Ingress { interface: ifindex.0 },
        Attachment::Egress(ifindex) => Hook::Egress { interface: ifindex.0 },
        Attachment::Block(block) => Hook::Block { number: block.0 },
    }
}
