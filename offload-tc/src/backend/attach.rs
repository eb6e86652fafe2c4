//! Attaching and detaching ports.

use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{self as netdev, Monitor, NotRemoved};

use super::core::Core;
use super::failure::link_refusal;
use super::ledger::record::{Entry, State};
use super::ports::Left;
use super::ports::device::refuse;
use super::ports::table::Attached;
use super::removal::take_out;
use crate::install::Request;
use crate::wire::filter::Hook;

impl Core {
    /// Attaches a port. If its device is absent, the port is refused, or waits for the device if that is tolerated.
    pub(super) fn attach(&self, port: &Port, tolerates_absence: bool) -> Result<(), Refusal> {
        let mut monitor = self.sockets.monitor.lock();
        self.poll_monitor(&mut monitor)?;
        if self.ports.load().get(port.number).is_some() {
            return Err(refuse(port, "there is already a port with this number"));
        }
        // The device may have been a member of a LAG, or have members that were of another one.
        self.release_former_members(monitor.links());
        let was_there = monitor.links().named(&port.name).is_some();
        let attached = self.attach_device(&mut monitor, port, tolerates_absence);
        if attached.is_err() && !was_there && (port.number.is_tap() || matches!(port.kind, PortKind::Tunnel(_))) {
            // One that was made for it is nobody's.
            let device = Left::Device { name: port.name.to_string(), is_tap: port.number.is_tap() };
            self.ports.remove(&mut self.sockets.control.lock(), device);
        }
        attached
    }

    fn attach_device(&self, monitor: &mut Monitor, port: &Port, tolerates_absence: bool) -> Result<(), Refusal> {
        let mut control = self.sockets.control.lock();
        let is_made = match &port.kind {
            PortKind::Tunnel(tunnel) => {
                let is_made = self.ports.ensure_tunnel(&mut control, monitor.links(), port, tunnel)?;
                drop(control);
                self.poll_monitor(monitor)?;
                control = self.sockets.control.lock();
                is_made
            }
            PortKind::Mirror if port.number.is_tap() => {
                self.ports.ensure_tap(&mut control, port)?;
                drop(control);
                self.poll_monitor(monitor)?;
                control = self.sockets.control.lock();
                true
            }
            _ => false,
        };
        let Some(known) = monitor.links().named(&port.name) else {
            if !tolerates_absence {
                return Err(refuse(port, "there is no such device"));
            }
            // The monitor is locked, so the device cannot come unnoticed.
            let attached = Attached { port: port.clone(), device: None, is_made };
            self.ports.store(self.ports.load().with(attached));
            return Ok(());
        };
        let present = self.ports.prepare_device(&mut control, monitor.links(), known, port)?;
        drop(control);
        self.set_port(Attached { port: port.clone(), device: Some(present), is_made })
    }

    /// Detaches a port and removes what was made for it. Its rules are deleted from the kernel and stay in the ledger until
    /// their flows go. What cannot be removed does not keep the port: it is logged, and `tc-watch` tries again.
    pub(super) fn detach(&self, number: PortNumber) -> Result<(), Refusal> {
        let mut monitor = self.sockets.monitor.lock();
        self.poll_monitor(&mut monitor)?;
        let before = self.ports.load_full();
        let attached = before.get(number).ok_or_else(|| Refusal::no_port(number))?;
        // From here on workers install rules there only if they began before.
        self.ports.store(before.without(number));
        let Some(present) = &attached.device else { return Ok(()) };
        let hook = present.device.hook();
        self.park(hook);
        self.mirrors.park(hook);
        let mut control = self.sockets.control.lock();
        // A queueing discipline that is not ours, or that somebody uses, stays.
        for (ifindex, qdisc, _) in present.qdiscs.iter().rev() {
            let made = Left::Qdisc { ifindex: *ifindex, qdisc: *qdisc };
            self.ports.remove(&mut control, made.clone());
            // Rules of workers that began before keep it until their flows go.
            if self.ports.qdiscs.has(*ifindex, *qdisc) && self.is_held(&made) {
                self.ports.remove_later(made, "rules were on their way there".to_owned());
            }
        }
        if attached.is_made {
            let device = Left::Device { name: attached.port.name.to_string(), is_tap: number.is_tap() };
            self.ports.remove(&mut control, device);
        }
        Ok(())
    }

    /// Returns everything that was made here, after all rules are gone. Names what is left, and why.
    pub(super) fn release(&self) -> Result<Vec<String>, Refusal> {
        let mut left = Vec::new();
        let numbers: Vec<_> = self.ports.load().iter().map(|attached| attached.port.number).collect();
        for number in numbers {
            left.extend(self.detach(number).err().map(|refusal| refusal.to_string()));
        }
        for meter in self.meters.all() {
            left.extend(self.meters.remove(meter).err().map(|refusal| refusal.to_string()));
        }
        let monitor = self.sockets.monitor.lock();
        let mut control = self.sockets.control.lock();
        self.ports.remove_left(&mut control, |_| false);
        let devices = self.ports.left().into_iter().filter(|(made, _)| matches!(made, Left::Device { .. }));
        left.extend(devices.map(|(made, reason)| format!("{made}: {reason}")));
        for ifindex in self.ports.qdiscs.devices() {
            let found = netdev::find_ingress(&mut control, ifindex).map_err(link_refusal);
            let removed = found.and_then(|found| match found.filter(|found| self.ports.qdiscs.has(ifindex, *found)) {
                Some(qdisc) => self.ports.remove_qdisc(&mut control, ifindex, qdisc),
                None => Ok(Ok(())),
            });
            let reason = match removed {
                Ok(Err(NotRemoved::InUse(attachment))) => format!("somebody else has filters at {attachment}"),
                Ok(_) => continue,
                Err(refusal) => refusal.to_string(),
            };
            let name = monitor.links().at(ifindex).map_or("", |known| &known.device.name);
            left.push(format!("the queueing discipline of {name}: {reason}"));
        }
        Ok(left)
    }

    /// Deletes the rules of a port from the kernel.
    pub(super) fn park(&self, hook: Hook) {
        let mut installer = self.sockets.installer.lock();
        let there = self.ledger.select(|state, record| state == State::Installed && record.place.hook == hook);
        let turn = |entry: Entry| self.ledger.transition(entry.handle, &[State::Installed], State::Leaving);
        let leaving: Vec<_> = there.into_iter().filter_map(turn).collect();
        let entries: Vec<_> = leaving.iter().collect();
        let mut failed = Vec::new();
        for (entry, result) in leaving.iter().zip(take_out(&mut installer, &entries)) {
            failed.extend(result.as_ref().err().map(ToString::to_string));
            let counted = result.ok().flatten().unwrap_or(entry.record.carried());
            self.ledger.park(entry.handle, counted);
            self.ledger.removal_done(entry.handle);
        }
        if let Some(reason) = failed.first() {
            let count = failed.len();
            tracing::warn!("{count} rules of a port that goes cannot be deleted, the first of them because: {reason}");
        }
        // The chains may still end at other hooks.
        let ends: Vec<_> = self.ledger.chains.take_at(hook).into_iter().map(Request::Delete).collect();
        installer.submit(&ends);
    }
}
