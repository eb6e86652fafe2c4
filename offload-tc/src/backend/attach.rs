//! Ports that come and go.

use std::num::NonZeroU16;

use sluice_flow::backend::PortCounters;
use sluice_flow::cause::Cause;
use sluice_flow::port::{self, Port, PortKind, PortNumber, TunnelProtocol};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{
    self as links, Block, Control, Ifindex, IngressQdisc, Known, Links, Mismatch, NotRemoved, Ownership, Role,
    TunnelError, WantedProtocol, WantedTunnel,
};

use super::books::{Entry, State};
use super::core::{Core, device_refusal, link_refusal, socket_refusal};
use super::ports::{Attached, PortTable, Present};
use super::reader::tell_lost;
use super::removal::take_out;
use crate::config::OffloadPolicy;
use crate::install::{Installer, Request};
use crate::probe;
use crate::surroundings::{Device, DeviceKind};
use crate::wire::filter::Hook;
use crate::wire::statistics::ETHERNET_HEADER;

impl Core {
    /// Makes a port usable. One without a device is refused, or waits for it if that is tolerated.
    pub(super) fn attach(&self, port: &Port, tolerates_absence: bool) -> Result<(), Refusal> {
        let mut links = self.links.lock();
        self.take_news(&mut links)?;
        if self.ports.load().get(port.number).is_some() {
            return Err(refuse(port, "there is a port of this number already"));
        }
        let mut control = self.control.lock();
        let is_made = match &port.kind {
            PortKind::Tunnel(tunnel) => {
                let is_made = Self::find_tunnel(port, tunnel, |wanted| {
                    links::ensure_tunnel(&mut control, wanted, &self.mark()).map(|(_, ownership)| ownership)
                })?;
                drop(control);
                self.take_news(&mut links)?;
                control = self.control.lock();
                is_made
            }
            _ => false,
        };
        let Some(known) = links.links().named(&port.name) else {
            if !tolerates_absence {
                return Err(refuse(port, "there is no such device"));
            }
            // News of devices are taken under the lock that is held, so that its coming is not missed.
            let attached = Attached { port: port.clone(), device: None, is_made };
            self.ports.store(self.ports.load().with(attached).into());
            return Ok(());
        };
        let present = self.bring_in(&mut control, links.links(), known, port)?;
        drop(control);
        self.put(Attached { port: port.clone(), device: Some(present), is_made })
    }

    /// Takes a port away, and what was made for it. Its rules go out of the kernel and stay in the books until their flows
    /// go.
    pub(super) fn detach(&self, number: PortNumber) -> Result<(), Refusal> {
        let mut links = self.links.lock();
        self.take_news(&mut links)?;
        let before = self.ports.load_full();
        let attached = before.get(number).ok_or_else(|| Refusal::no_port(number))?;
        // From here on no worker puts rules in there that did not begin before.
        self.ports.store(before.without(number).into());
        let Some(present) = &attached.device else { return Ok(()) };
        let hook = present.device.hook();
        self.park(hook);
        self.mirrors.park(hook);
        let mut control = self.control.lock();
        for (ifindex, qdisc, _) in present.qdiscs.iter().rev() {
            // What is not ours, or is in use by somebody, stays.
            let _ = self.remove_qdisc(&mut control, *ifindex, *qdisc)?;
        }
        if attached.is_made {
            match links::remove_tunnel(&mut control, &attached.port.name, &self.mark()) {
                Ok(()) | Err(TunnelError::Gone { .. } | TunnelError::Foreign { .. }) => {}
                Err(error) => return Err(refuse(&attached.port, error.to_string())),
            }
        }
        Ok(())
    }

    /// Octets of the link header that tc does not see of a packet: those of Ethernet, but at the hook of internal ports. A meter does not
    /// tell which packets came where; where there are both kinds of ports, most are taken to come from the others.
    pub(super) fn link_header(&self) -> u64 {
        let ports = self.ports.load();
        let mut hooks = ports.present().map(|(_, present)| present.device.hook()).peekable();
        let is_all_at_egress = hooks.peek().is_some() && hooks.all(|hook| matches!(hook, Hook::Egress { .. }));
        if is_all_at_egress { 0 } else { ETHERNET_HEADER }
    }

    /// Gives everything back that was made here, once there is no rule of ours. Says what is left, and why.
    pub(super) fn release(&self) -> Result<Vec<String>, Refusal> {
        let mut left = Vec::new();
        let numbers: Vec<_> = self.ports.load().iter().map(|attached| attached.port.number).collect();
        for number in numbers {
            left.extend(self.detach(number).err().map(|refusal| refusal.to_string()));
        }
        for meter in self.meters.all() {
            left.extend(self.meters.remove(meter).err().map(|refusal| refusal.to_string()));
        }
        let links = self.links.lock();
        let mut control = self.control.lock();
        for ifindex in self.made.devices() {
            let found = links::find_ingress(&mut control, ifindex).map_err(link_refusal)?;
            let removed = match found.filter(|found| self.made.has(ifindex, *found)) {
                Some(qdisc) => self.remove_qdisc(&mut control, ifindex, qdisc)?,
                None => Ok(()),
            };
            if let Err(NotRemoved::InUse(attachment)) = removed {
                let name = links.links().at(ifindex).map_or("", |known| &known.device.name);
                left.push(format!("the queueing discipline of {name}: there are filters of others at {attachment}"));
            }
        }
        Ok(left)
    }

    /// Removes a queueing discipline that was made here, in this run or an earlier one, unless it is in use.
    fn remove_qdisc(
        &self,
        control: &mut Control,
        ifindex: Ifindex,
        qdisc: IngressQdisc,
    ) -> Result<Result<(), NotRemoved>, Refusal> {
        let ownership = if self.made.has(ifindex, qdisc) { Ownership::Made } else { Ownership::Adopted };
        let removed = links::remove_ingress(control, ifindex, qdisc, ownership).map_err(link_refusal)?;
        match removed {
            Ok(()) | Err(NotRemoved::Gone | NotRemoved::Replaced(_)) => self.made.strike_off(ifindex),
            Err(NotRemoved::InUse(_) | NotRemoved::Adopted) => {}
        }
        Ok(removed)
    }

    /// Sees that filters can hang on a device, and notes what is made for that.
    fn bring_in(&self, control: &mut Control, links: &Links, known: &Known, port: &Port) -> Result<Present, Refusal> {
        let present = bring_in(control, links, known, port)?;
        for (ifindex, qdisc, _) in present.qdiscs.iter().filter(|(.., ownership)| *ownership == Ownership::Made) {
            self.made.add(*ifindex, *qdisc);
        }
        Ok(present)
    }

    /// What the kernel counts at a port's device.
    pub(super) fn port_counters(&self, number: PortNumber) -> Option<PortCounters> {
        let ports = self.ports.load();
        let present = ports.get(number)?.device.as_ref()?;
        let ifindex = Ifindex(present.device.interface);
        let counted = links::statistics(&mut self.control.lock(), ifindex).ok()??;
        let links::Statistics { rx_packets, rx_bytes, tx_packets, tx_bytes } = counted;
        Some(if present.is_turned_round() {
            PortCounters { rx_packets: tx_packets, rx_bytes: tx_bytes, tx_packets: rx_packets, tx_bytes: rx_bytes }
        } else {
            PortCounters { rx_packets, rx_bytes, tx_packets, tx_bytes }
        })
    }

    /// Has a port be there with its device, old or new.
    fn put(&self, attached: Attached) -> Result<(), Refusal> {
        let mut table = PortTable::clone(&self.ports.load());
        if let Some(present) = attached.device.as_ref().filter(|_| table.features.is_none()) {
            let mut installer = Installer::open(OffloadPolicy::SkipHardware).map_err(socket_refusal)?;
            table.features = Some(probe::features(&mut installer, present.device.hook())?);
        }
        let number = attached.port.number;
        self.ports.store(table.with(attached).into());
        // Their flows are told that they are not there, so that they are put in again.
        let interface = |hook: Hook| match hook {
            Hook::Ingress { interface } | Hook::Egress { interface } | Hook::Block { number: interface } => interface,
        };
        let at = self.ports.load().get(number).and_then(|attached| Some(attached.device.as_ref()?.device.interface));
        for parked in
            self.books.select(|state, record| state == State::Parked && Some(interface(record.place.hook)) == at)
        {
            if let Some(entry) = self.books.turn(parked.handle, &[State::Parked], State::Installed) {
                tell_lost(self, &entry);
            }
        }
        self.restore_mirrors(None);
        self.events.changed(Cause::Port(Some(number)));
        Ok(())
    }

    /// A device of a port's name has come, or come back.
    pub(super) fn bring_back(&self, links: &Links, known: &Known) {
        let ports = self.ports.load_full();
        let is_missed = |attached: &&Attached| attached.device.is_none() && *attached.port.name == *known.device.name;
        let Some(attached) = ports.iter().find(is_missed) else { return };
        let port = &attached.port;
        let mut control = self.control.lock();
        let is_made = match &port.kind {
            // Who took it away may be about to make it: nothing is made here.
            PortKind::Tunnel(tunnel) => {
                Self::find_tunnel(port, tunnel, |wanted| links::recognize_tunnel(&known.device, wanted, &self.mark()))
            }
            _ => Ok(false),
        };
        let brought = is_made.and_then(|is_made| Ok((is_made, self.bring_in(&mut control, links, known, port)?)));
        drop(control);
        // If it cannot be, its flows stay refused, and the next event of the device is another chance.
        if let Ok((is_made, present)) = brought
            && self.put(Attached { device: Some(present), is_made, ..attached.clone() }).is_ok()
        {
            // Rules that name it are of the device that went. Those that are there when a port is attached are compared as they are
            // adopted, and are not touched if they are right.
            self.events.port_changed(attached.port.number);
        }
    }

    /// The device of a port is gone.
    pub(super) fn take_out(&self, generation: links::Generation) {
        let ports = self.ports.load_full();
        let Some((attached, present)) = ports.present().find(|(_, present)| present.generation == generation) else {
            return;
        };
        self.chains.forget(present.device.hook());
        self.ports.store(ports.with(Attached { device: None, ..attached.clone() }).into());
        // A rule that sends to the device is there still, and drops from now on (`mirred_device_event` of act_mirred).
        self.events.port_changed(attached.port.number);
        self.events.reset(self.clock.now());
    }

    /// What filters hang on was taken away or replaced at a device, or a device has joined others.
    pub(super) fn mend(&self, links: &Links, generation: links::Generation) {
        let ports = self.ports.load_full();
        let has = |present: &Present| {
            let consists_of = |known: &Known| {
                known.generation == generation
                    && present.qdiscs.iter().any(|(ifindex, ..)| *ifindex == known.device.ifindex)
            };
            present.generation == generation || links.iter().any(consists_of)
        };
        let Some((attached, present)) = ports.present().find(|(_, present)| has(present)) else { return };
        self.chains.forget(present.device.hook());
        let Some(known) = links.at(Ifindex(present.device.interface)) else { return };
        let brought = self.bring_in(&mut self.control.lock(), links, known, &attached.port);
        if let Ok(mut mended) = brought {
            let affected = links.iter().find(|known| known.generation == generation);
            for (ifindex, qdisc, ownership) in &mut mended.qdiscs {
                let is_untouched = affected.is_none_or(|known| known.device.ifindex != *ifindex);
                if is_untouched && present.qdiscs.contains(&(*ifindex, *qdisc, Ownership::Made)) {
                    *ownership = Ownership::Made;
                }
            }
            let hook = mended.device.hook();
            self.ports.store(ports.with(Attached { device: Some(mended), ..attached.clone() }).into());
            self.restore_mirrors(Some(hook));
            self.events.changed(Cause::Port(Some(attached.port.number)));
        }
        self.events.reset(self.clock.now());
    }

    /// Takes the rules of a port out of the kernel.
    fn park(&self, hook: Hook) {
        let mut installer = self.installer.lock();
        let there = self.books.select(|state, record| state == State::Installed && record.place.hook == hook);
        let turn = |entry: Entry| self.books.turn(entry.handle, &[State::Installed], State::Leaving);
        let leaving: Vec<_> = there.into_iter().filter_map(turn).collect();
        let entries: Vec<_> = leaving.iter().collect();
        for (entry, result) in leaving.iter().zip(take_out(&mut installer, &entries)) {
            let counted = result.ok().flatten().unwrap_or(entry.record.carried());
            self.books.park(entry.handle, counted);
            self.departed(entry.handle);
        }
        // Chains end elsewhere still.
        let ends: Vec<_> = self.chains.take_at(hook).into_iter().map(Request::Delete).collect();
        installer.submit(&ends);
    }

    /// Has the device of a tunnel port found, in one of the forms that serve. Says whether it is one that was made here.
    fn find_tunnel(
        port: &Port,
        tunnel: &port::Tunnel,
        mut find: impl FnMut(&WantedTunnel) -> Result<Ownership, TunnelError>,
    ) -> Result<bool, Refusal> {
        let udp_port = || {
            let number = tunnel.udp_port.or(tunnel.protocol.default_udp_port());
            number.and_then(NonZeroU16::new).ok_or_else(|| refuse(port, "there is no UDP port 0"))
        };
        let mut protocol = match tunnel.protocol {
            TunnelProtocol::Vxlan => WantedProtocol::Vxlan { udp_port: udp_port()?, group_policy: true },
            TunnelProtocol::Geneve => WantedProtocol::Geneve { udp_port: udp_port()? },
            TunnelProtocol::Gre => WantedProtocol::Gretap,
            TunnelProtocol::Erspan => WantedProtocol::Erspan,
            TunnelProtocol::Gtpu => return Err(refuse(port, NO_GTPU)),
        };
        loop {
            let wanted = WantedTunnel { name: port.name.to_string(), protocol };
            match find(&wanted) {
                Ok(ownership) => return Ok(ownership == Ownership::Made),
                // One that somebody made without the group serves flows that do not say one.
                Err(TunnelError::Different { mismatch: Mismatch::GroupPolicy { found: false }, .. })
                    if matches!(protocol, WantedProtocol::Vxlan { group_policy: true, .. }) =>
                {
                    protocol = WantedProtocol::Vxlan { udp_port: udp_port()?, group_policy: false };
                }
                Err(TunnelError::Link(error)) => return Err(link_refusal(error)),
                Err(error) => return Err(refuse(port, error.to_string())),
            }
        }
    }

    /// What is left at devices that were made here.
    fn mark(&self) -> String {
        format!("sluice {:016x}", self.agent.0)
    }
}

const NO_GTPU: &str = "the kernel has no device for all tunnels of GTP-U";

/// Whether the kernel can have the device of such a port.
pub(super) fn check_port(port: &Port) -> Result<(), Refusal> {
    if !links::is_device_name(&port.name) {
        return Err(refuse(port, "a network device cannot have this name: it has 15 bytes at most, without a colon"));
    }
    match &port.kind {
        PortKind::Tunnel(tunnel) if tunnel.protocol == TunnelProtocol::Gtpu => Err(refuse(port, NO_GTPU)),
        _ => Ok(()),
    }
}

/// Sees that filters can hang on a device.
fn bring_in(control: &mut Control, links: &Links, known: &Known, port: &Port) -> Result<Present, Refusal> {
    let ifindex = known.device.ifindex;
    let kind = match (&port.kind, &known.device.role) {
        (PortKind::Internal, _) => DeviceKind::Internal,
        (PortKind::Tunnel(tunnel), _) => DeviceKind::Tunnel(tunnel.protocol),
        (_, Role::Lag(_)) => DeviceKind::Lag,
        _ => DeviceKind::Wire,
    };
    let wanted = match kind {
        DeviceKind::Internal => IngressQdisc::CLSACT,
        DeviceKind::Lag => IngressQdisc::INGRESS.with_ingress_block(Block(ifindex.0)),
        DeviceKind::Wire | DeviceKind::Tunnel(_) => IngressQdisc::INGRESS,
    };
    let qdiscs = if kind == DeviceKind::Lag {
        links::ensure_lag(control, links, ifindex, wanted).map_err(device_refusal)?
    } else {
        let (qdisc, ownership) = links::ensure_ingress(control, ifindex, wanted).map_err(|error| match error {
            links::IngressError::Link(error) => link_refusal(error),
            error => refuse(port, error.to_string()),
        })?;
        vec![(ifindex, qdisc, ownership)]
    };
    Ok(Present { device: Device { interface: ifindex.0, kind }, generation: known.generation, qdiscs })
}

fn refuse(port: &Port, reason: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::Port { port: port.name.to_string(), number: Some(port.number), reason: reason.into() }
}
