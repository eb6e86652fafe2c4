//! Ports and the network devices behind them.

pub(crate) mod device;
pub(crate) mod qdiscs;
pub(crate) mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use sluice_flow::backend::PortCounters;
use sluice_flow::port::{Port, PortNumber, Tunnel};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{
    self as netdev, Control, Device, Ifindex, IngressQdisc, Known, Links, Mismatch, NotRemoved, Ownership, Role,
    TapError, TunnelError, WantedTunnel,
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
    /// What could not be removed with its port, and why.
    left: Mutex<Vec<(Left, String)>>,
    unreleased: Mutex<Unreleased>,
}

/// What could not be removed from former members of LAGs, and why.
pub(crate) type Unreleased = BTreeMap<Ifindex, String>;

/// Something that was made for a port that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The queueing discipline of a device.
    Qdisc { ifindex: Ifindex, qdisc: IngressQdisc },
    /// The device of a tunnel port or a tap.
    Device { name: String, is_tap: bool },
}

impl Ports {
    pub(crate) fn new(agent: AgentId, table: PortTable, qdiscs: MadeQdiscs) -> Self {
        let (left, unreleased) = Default::default();
        Self { agent, table: ArcSwap::from_pointee(table), qdiscs, left, unreleased }
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

    /// Makes the device of a tunnel port, unless one exists that serves. Returns whether it was made here. A device that was made here before the
    /// port had another name or UDP port does not keep the port from having its own.
    pub(crate) fn ensure_tunnel(
        &self,
        control: &mut Control,
        links: &Links,
        port: &Port,
        tunnel: &Tunnel,
    ) -> Result<bool, Refusal> {
        let mark = self.mark();
        find_tunnel(port, tunnel, |wanted| {
            for name in self.in_the_way(links, wanted) {
                // Any other error says that it is gone by now, or somebody else's.
                if let Err(TunnelError::Link(error)) = netdev::remove_tunnel(control, &name, &mark) {
                    return Err(error.into());
                }
            }
            netdev::ensure_tunnel(control, wanted, &mark).map(|(_, ownership)| ownership)
        })
    }

    /// The tunnel devices that were made here, no port has, and because of which a tunnel device cannot be as it is wanted: one of its name that
    /// is another one, or the same one of another name, of which the kernel has one at a time.
    fn in_the_way(&self, links: &Links, wanted: &WantedTunnel) -> Vec<String> {
        let (ports, mark) = (self.load(), self.mark());
        let is_in_the_way = |known: &Known| match netdev::recognize_tunnel(&known.device, wanted, &mark) {
            Ok(_) => *known.device.name != *wanted.name,
            Err(TunnelError::Different { mismatch: Mismatch::GroupPolicy { found: false }, .. }) => false,
            Err(_) => *known.device.name == *wanted.name,
        };
        let found = links.iter().filter(|known| is_tunnel_of(&known.device, &mark) && !has_port(&ports, known));
        found.filter(|known| is_in_the_way(known)).map(|known| known.device.name.clone()).collect()
    }

    /// Whether the existing device of a tunnel port was made here. Fails if it does not serve.
    pub(crate) fn recognize_tunnel(&self, known: &Known, port: &Port, tunnel: &Tunnel) -> Result<bool, Refusal> {
        find_tunnel(port, tunnel, |wanted| netdev::recognize_tunnel(&known.device, wanted, &self.mark()))
    }

    /// Makes the device of a tap, unless this agent has made it before.
    pub(crate) fn ensure_tap(&self, control: &mut Control, port: &Port) -> Result<(), Refusal> {
        match netdev::ensure_tap(control, &port.name, &self.mark()) {
            Ok(_) => Ok(()),
            Err(TapError::Link(error)) => Err(link_refusal(error)),
            Err(error) => Err(refuse(port, error.to_string())),
        }
    }

    /// Removes something that was made for a port that is gone, unless somebody uses it or has replaced it. If that fails, it is noted and
    /// [tried again](Self::remove_left).
    pub(crate) fn remove(&self, control: &mut Control, made: Left) {
        self.remove_once_more(control, made, None);
    }

    /// Has something removed [another time](Self::remove_left).
    pub(crate) fn remove_later(&self, made: Left, reason: String) {
        self.left.lock().push((made, reason));
    }

    /// Tries again to remove what could not be removed, except for what a port has again. What is still held waits.
    pub(crate) fn remove_left(&self, control: &mut Control, is_held: impl Fn(&Left) -> bool) {
        let left = std::mem::take(&mut *self.left.lock());
        for (made, reason) in left.into_iter().filter(|(made, _)| !self.is_of_a_port(made)) {
            if is_held(&made) {
                self.remove_later(made, reason);
            } else {
                self.remove_once_more(control, made, Some(reason));
            }
        }
    }

    /// What could not be removed, with the reason.
    pub(crate) fn left(&self) -> Vec<(Left, String)> {
        self.left.lock().clone()
    }

    fn remove_once_more(&self, control: &mut Control, made: Left, known: Option<String>) {
        let removed = match &made {
            // One that somebody uses stays.
            Left::Qdisc { ifindex, qdisc } => self.remove_qdisc(control, *ifindex, *qdisc).map(drop),
            Left::Device { name, is_tap } => self.remove_device(control, name, *is_tap),
        };
        let Err(refusal) = removed else { return };
        let reason = refusal.to_string();
        if known.as_ref() != Some(&reason) {
            tracing::warn!("{made} was made for a port that is gone, and is removed another time: {reason}");
        }
        self.remove_later(made, reason);
    }

    fn is_of_a_port(&self, made: &Left) -> bool {
        let ports = self.load();
        match made {
            Left::Qdisc { ifindex, .. } => ports.has_qdisc(*ifindex),
            Left::Device { name, .. } => ports.iter().any(|attached| *attached.port.name == **name),
        }
    }

    fn remove_device(&self, control: &mut Control, name: &str, is_tap: bool) -> Result<(), Refusal> {
        let mark = self.mark();
        // Any other error says that it is gone by now, or somebody else's.
        let failed = match is_tap {
            true => netdev::remove_tap(control, name, &mark).err().and_then(|error| match error {
                TapError::Link(error) => Some(error),
                _ => None,
            }),
            false => netdev::remove_tunnel(control, name, &mark).err().and_then(|error| match error {
                TunnelError::Link(error) => Some(error),
                _ => None,
            }),
        };
        failed.map_or(Ok(()), |error| Err(link_refusal(error)))
    }

    /// Returns what earlier runs of this agent made for ports and no port has: devices, and queueing disciplines of devices that are there.
    pub(crate) fn of_earlier_runs(&self, control: &mut Control, links: &Links) -> Result<Vec<Left>, Refusal> {
        let (ports, mark) = (self.load(), self.mark());
        let device = |known: &Known| {
            let is_tap = netdev::is_tap(&known.device, &mark);
            let is_left = (is_tap || is_tunnel_of(&known.device, &mark)) && !has_port(&ports, known);
            is_left.then(|| Left::Device { name: known.device.name.clone(), is_tap })
        };
        let mut left: Vec<_> = links.iter().filter_map(device).collect();
        for ifindex in self.qdiscs.devices().into_iter().filter(|ifindex| !ports.has_qdisc(*ifindex)) {
            let found = netdev::find_ingress(control, ifindex).map_err(link_refusal)?;
            let made = found.filter(|found| self.qdiscs.has(ifindex, *found));
            left.extend(made.map(|qdisc| Left::Qdisc { ifindex, qdisc }));
        }
        Ok(left)
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

    /// Whether something is to be removed another time.
    pub(crate) fn has_unreleased(&self) -> bool {
        !self.unreleased.lock().is_empty() || !self.left.lock().is_empty()
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

impl fmt::Display for Left {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qdisc { ifindex, qdisc } => write!(out, "the queueing discipline {qdisc} of device {ifindex}"),
            Self::Device { name, .. } => write!(out, "device {name}"),
        }
    }
}

/// Whether a device is a tunnel device with this mark.
fn is_tunnel_of(device: &Device, mark: &str) -> bool {
    matches!(device.role, Role::Tunnel(_)) && device.alias.as_deref() == Some(mark)
}

/// Whether a device is that of a port, under its name or another one that it was given since.
fn has_port(ports: &PortTable, known: &Known) -> bool {
    let is_its = |present: &Present| present.device.interface == known.device.ifindex.0;
    ports.iter().any(|port| *port.port.name == *known.device.name || port.device.as_ref().is_some_and(is_its))
}
