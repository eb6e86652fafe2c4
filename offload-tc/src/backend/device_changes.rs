//! What happens to a port when its device comes, goes or changes.

use crate::config::OffloadPolicy;
use sluice_flow::cause::Cause;
use sluice_flow::port::PortKind;
use sluice_flow::refusal::Refusal;
use sluice_netdev::{self as netdev, Ifindex, Known, Links, Ownership};

use super::core::Core;
use super::failure::socket_refusal;
use super::ledger::record::State;
use super::ports::table::{Attached, PortTable, Present};
use crate::context::{Device, DeviceKind};
use crate::install::Installer;
use crate::probe;
use crate::wire::filter::Hook;

impl Core {
    /// Enters a port with its device, and has its parked rules installed again.
    pub(super) fn set_port(&self, attached: Attached) -> Result<(), Refusal> {
        let mut table = PortTable::clone(&self.ports.load());
        if let Some(present) = attached.device.as_ref().filter(|_| table.features.is_none()) {
            let mut installer = Installer::open(OffloadPolicy::SkipHardware).map_err(socket_refusal)?;
            table.features = Some(probe::features(&mut installer, present.device.hook())?);
        }
        let number = attached.port.number;
        self.ports.store(table.with(attached));
        // Their flows are told that the rules are lost, so that they are installed again.
        let interface = |hook: Hook| match hook {
            Hook::Ingress { interface } | Hook::Egress { interface } | Hook::Block { number: interface } => interface,
        };
        let device = self.ports.load().get(number).and_then(|attached| Some(attached.device.as_ref()?.device));
        let at = device.map(|device| device.interface);
        for parked in
            self.ledger.select(|state, record| state == State::Parked && Some(interface(record.place.hook)) == at)
        {
            if let Some(entry) = self.ledger.transition(parked.handle, &[State::Parked], State::Installed) {
                self.report_lost(&entry);
            }
        }
        device.into_iter().for_each(|device| self.expect_end_at(device.hook()));
        self.restore_mirrors(None);
        self.events.changed(Cause::Port(Some(number)));
        Ok(())
    }

    /// A device with the name of a port has come.
    pub(super) fn device_appeared(&self, links: &Links, known: &Known) {
        let ports = self.ports.load_full();
        let is_missed = |attached: &&Attached| attached.device.is_none() && *attached.port.name == *known.device.name;
        let Some(attached) = ports.iter().find(is_missed) else { return };
        let port = &attached.port;
        // Members may have been those of the LAG before.
        self.release_former_members(links);
        let mut control = self.sockets.control.lock();
        let is_made = match &port.kind {
            // Whoever removed the device may be about to recreate it, so none is made here.
            PortKind::Tunnel(tunnel) => self.ports.recognize_tunnel(known, port, tunnel),
            _ => Ok(port.number.is_tap()),
        };
        let brought =
            is_made.and_then(|is_made| Ok((is_made, self.ports.prepare_device(&mut control, links, known, port)?)));
        drop(control);
        let entered = brought.and_then(|(is_made, present)| {
            self.set_port(Attached { device: Some(present), is_made, ..attached.clone() })
        });
        match entered {
            // Rules that name the port still refer to the old device. When a port is attached, existing rules are compared
            // during adoption instead, and those that are right are not touched.
            Ok(()) => self.events.port_changed(attached.port.number),
            Err(refusal) => {
                tracing::warn!("the flows of a port stay refused until the next event of its device: {refusal}");
            }
        }
    }

    /// The device of a port is gone.
    pub(super) fn device_gone(&self, links: &Links, generation: netdev::Generation) {
        let ports = self.ports.load_full();
        let Some((attached, present)) = ports.present().find(|(_, present)| present.generation == generation) else {
            return;
        };
        let hook = present.device.hook();
        self.ports.store(ports.with(Attached { device: None, ..attached.clone() }));
        match present.device.kind {
            // Its block stays while a former member has it.
            DeviceKind::Lag => {
                self.clear(hook);
                self.release_former_members(links);
            }
            _ => self.ledger.chains.forget(hook),
        }
        // A rule that sends to the device is still there, and drops packets from now on (`mirred_device_event` of
        // act_mirred).
        self.events.port_changed(attached.port.number);
        self.events.reset(self.clock.now());
    }

    /// A device joined a LAG or left it.
    pub(super) fn members_changed(&self, links: &Links, master: Ifindex) {
        let ports = self.ports.load_full();
        let is_it = |present: &Present| present.device == Device { interface: master.0, kind: DeviceKind::Lag };
        if let Some((attached, present)) = ports.present().find(|(_, present)| is_it(present)) {
            self.prepare_again(links, attached, present, None);
        }
    }

    /// A queueing discipline was removed or replaced at a device.
    pub(super) fn restore_qdiscs(&self, links: &Links, generation: netdev::Generation) {
        let ports = self.ports.load_full();
        let has = |present: &Present| {
            let consists_of = |known: &Known| {
                known.generation == generation
                    && present.qdiscs.iter().any(|(ifindex, ..)| *ifindex == known.device.ifindex)
            };
            present.generation == generation || links.iter().any(consists_of)
        };
        let Some((attached, present)) = ports.present().find(|(_, present)| has(present)) else { return };
        self.ledger.chains.forget(present.device.hook());
        let affected = links.iter().find(|known| known.generation == generation);
        self.prepare_again(links, attached, present, affected.map(|known| known.device.ifindex));
        self.events.reset(self.clock.now());
    }

    /// Makes sure again that the device of a port has its queueing disciplines, of which others have touched one.
    fn prepare_again(&self, links: &Links, attached: &Attached, present: &Present, touched: Option<Ifindex>) {
        let Some(known) = links.at(Ifindex(present.device.interface)) else { return };
        self.release_former_members(links);
        let brought = self.ports.prepare_device(&mut self.sockets.control.lock(), links, known, &attached.port);
        let mut mended = match brought {
            Ok(mended) => mended,
            Err(refusal) => {
                self.give_up_end_at(present.device.hook());
                tracing::warn!("{} may have devices whose packets meet no rules: {refusal}", attached.port.name);
                return;
            }
        };
        for (ifindex, qdisc, ownership) in &mut mended.qdiscs {
            if touched != Some(*ifindex) && present.qdiscs.contains(&(*ifindex, *qdisc, Ownership::Made)) {
                *ownership = Ownership::Made;
            }
        }
        let hook = mended.device.hook();
        self.ports.store(self.ports.load().with(Attached { device: Some(mended), ..attached.clone() }));
        self.expect_end_at(hook);
        self.restore_mirrors(Some(hook));
        self.events.changed(Cause::Port(Some(attached.port.number)));
    }
}
