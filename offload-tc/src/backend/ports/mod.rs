//! Ports and the network devices behind them.

pub(crate) mod device;
pub(crate) mod qdiscs;
pub(crate) mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use sluice_flow::backend::PortCounters;
use sluice_flow::port::{Port, PortNumber, Tunnel};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{
    self as netdev, Control, Ifindex, IngressQdisc, Known, Links, NotRemoved, Ownership, TapError, TunnelError,
};

use self::device::{find_tunnel, refuse};
use self::qdiscs::MadeQdiscs;
use self::table::{PortTable, Present};
use super::failure::link_refusal;
use crate::marks::AgentId;
use crate::wire::filter::{ETHERNET_HEADER, Hook};

/// The ports as they are now, and what was made for them.
pub(crate) struct Ports {
    agent: AgentId,
    table: ArcSwap<PortTable>,
    pub(crate) qdiscs: MadeQdiscs,
    unreleased: Mutex<Unreleased>,
}

/// What could not be removed from former members of LAGs, and why.
pub(crate) type Unreleased = BTreeMap<Ifindex, String>;

impl Ports {
    pub(crate) fn new(agent: AgentId, table: PortTable, qdiscs: MadeQdiscs) -> Self {
        Self { agent, table: ArcSwap::from_pointee(table), qdiscs, unreleased: Mutex::default() }
    }

    /// The current table of ports.
    pub(crate) fn load(&self) -> Guard<Arc<PortTable>> {
        self.table.load()
    }

    /// The same for longer use.
    pub(crate) fn load_full(&self) -> Arc<PortTable> {
        self.table.load_full()
    }

    /// Replaces the table of ports.
    pub(crate) fn store(&self, table: PortTable) {
        self.table.store(Arc::new(table));
    }

    /// Makes the device of a tunnel port, unless one exists that serves. Returns whether it was made here.
    pub(crate) fn ensure_tunnel(&self, control: &mut Control, port: &Port, tunnel: &Tunnel) -> Result<bool, Refusal> {
        find_tunnel(port, tunnel, |wanted| {
            netdev::ensure_tunnel(control, wanted, &self.mark()).map(|(_, ownership)| ownership)
        })
    }

    /// Whether the existing device of a tunnel port was made here. Fails if it does not serve.
    pub(crate) fn recognize_tunnel(&self, known: &Known, port: &Port, tunnel: &Tunnel) -> Result<bool, Refusal> {
        find_tunnel(port, tunnel, |wanted| netdev::recognize_tunnel(&known.device, wanted, &self.mark()))
    }

    /// Removes the device of a tunnel port, unless somebody has replaced it.
    pub(crate) fn remove_tunnel(&self, control: &mut Control, port: &Port) -> Result<(), Refusal> {
        match netdev::remove_tunnel(control, &port.name, &self.mark()) {
            Ok(()) | Err(TunnelError::Gone { .. } | TunnelError::Foreign { .. }) => Ok(()),
            Err(error) => Err(refuse(port, error.to_string())),
        }
    }

    /// Makes the device of a tap, unless this agent has made it before.
    pub(crate) fn ensure_tap(&self, control: &mut Control, port: &Port) -> Result<(), Refusal> {
        match netdev::ensure_tap(control, &port.name, &self.mark()) {
            Ok(_) => Ok(()),
            Err(TapError::Link(error)) => Err(link_refusal(error)),
            Err(error) => Err(refuse(port, error.to_string())),
        }
    }

    /// Removes the device of a tap, unless somebody has replaced it.
    pub(crate) fn remove_tap(&self, control: &mut Control, name: &str) -> Result<(), Refusal> {
        match netdev::remove_tap(control, name, &self.mark()) {
            Ok(()) | Err(TapError::Gone { .. } | TapError::Taken { .. } | TapError::BadName { .. }) => Ok(()),
            Err(TapError::Link(error)) => Err(link_refusal(error)),
        }
    }

    /// Returns the names of taps that an earlier run of this agent made and no port of this run has.
    pub(crate) fn taps_left(&self, links: &Links) -> Vec<String> {
        let (ports, mark) = (self.load(), self.mark());
        let is_of_a_port = |name: &str| ports.iter().any(|attached| *attached.port.name == *name);
        let left =
            links.iter().filter(|known| netdev::is_tap(&known.device, &mark) && !is_of_a_port(&known.device.name));
        left.map(|known| known.device.name.to_string()).collect()
    }

    /// Makes sure that a device has the queueing discipline that filters need, and notes it if it was made here.
    pub(crate) fn prepare_device(
        &self,
        control: &mut Control,
        links: &Links,
        known: &Known,
        port: &Port,
    ) -> Result<Present, Refusal> {
        let present = device::prepare_device(control, links, known, port)?;
        for (ifindex, qdisc, _) in present.qdiscs.iter().filter(|(.., ownership)| *ownership == Ownership::Made) {
            self.qdiscs.add(*ifindex, *qdisc);
        }
        Ok(present)
    }

    /// The devices that have a queueing discipline made for members of a LAG and are none any more, each with the LAG.
    pub(crate) fn former_members(&self, links: &Links) -> Vec<(Ifindex, Ifindex)> {
        let is_former = |(ifindex, lag): &(Ifindex, Ifindex)| {
            let is_part = |known: &Known| known.device.ifindex == *lag || known.device.master == Some(*lag);
            !links.at(*ifindex).is_some_and(is_part)
        };
        self.qdiscs.of_lags().into_iter().filter(is_former).collect()
    }

    /// Notes the former members of LAGs that still have the queueing disciplines of these, and why. What is new is logged.
    pub(crate) fn note_unreleased(&self, links: &Links, left: Unreleased) {
        let mut known = self.unreleased.lock();
        for (ifindex, reason) in left.iter().filter(|(ifindex, reason)| known.get(*ifindex) != Some(*reason)) {
            let name = links.at(*ifindex).map_or("", |known| &known.device.name);
            tracing::warn!("the queueing discipline that {name} had in a bond is removed another time: {reason}");
        }
        *known = left;
    }

    /// Whether there are such devices.
    pub(crate) fn has_unreleased(&self) -> bool {
        !self.unreleased.lock().is_empty()
    }

    /// Removes a queueing discipline that was made here, in this run or an earlier one, unless it is in use.
    pub(crate) fn remove_qdisc(
        &self,
        control: &mut Control,
        ifindex: Ifindex,
        qdisc: IngressQdisc,
    ) -> Result<Result<(), NotRemoved>, Refusal> {
        let ownership = if self.qdiscs.has(ifindex, qdisc) { Ownership::Made } else { Ownership::Adopted };
        let removed = netdev::remove_ingress(control, ifindex, qdisc, ownership).map_err(link_refusal)?;
        match removed {
            Ok(()) | Err(NotRemoved::Gone | NotRemoved::Replaced(_)) => self.qdiscs.remove(ifindex),
            Err(NotRemoved::InUse(_) | NotRemoved::Adopted) => {}
        }
        Ok(removed)
    }

    /// What the kernel counts at a port's device.
    pub(crate) fn counters(&self, control: &mut Control, number: PortNumber) -> Option<PortCounters> {
        let ports = self.load();
        let present = ports.get(number)?.device.as_ref()?;
        let ifindex = Ifindex(present.device.interface);
        let counted = netdev::statistics(control, ifindex).ok()??;
        let netdev::Statistics { rx_packets, rx_bytes, tx_packets, tx_bytes } = counted;
        Some(if present.is_turned_round() {
            PortCounters { rx_packets: tx_packets, rx_bytes: tx_bytes, tx_packets: rx_packets, tx_bytes: rx_bytes }
        } else {
            PortCounters { rx_packets, rx_bytes, tx_packets, tx_bytes }
        })
    }

    /// Bytes of the link header that tc does not see of a packet: those of Ethernet, except at internal ports. A meter does
    /// not say where its packets came in; with both kinds of ports, all are taken to come from others than internal ones.
    pub(crate) fn link_header(&self) -> u64 {
        let ports = self.load();
        let mut hooks = ports.present().map(|(_, present)| present.device.hook()).peekable();
        let is_all_at_egress = hooks.peek().is_some() && hooks.all(|hook| matches!(hook, Hook::Egress { .. }));
        if is_all_at_egress { 0 } else { ETHERNET_HEADER }
    }

    /// The alias of devices that this agent makes.
    fn mark(&self) -> String {
        format!("sluice {:016x}", self.agent.0)
    }
}
