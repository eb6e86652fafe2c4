//! The ports of the datapath, and which vport of the eswitch each is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use sluice_flow::port::{Port, PortKind, PortName, PortNumber, Tunnel};
use sluice_flow::refusal::Refusal;
use sluice_netdev::{Function, FunctionPart, Ifindex, Links, Monitor, MonitorOptions, Role, rdma_port};

use crate::device::Names;
use crate::eswitch;
use crate::owner::Owner;
use crate::translate::{Entrance, Protocol, UPLINK, Vports};

/// Why a tunnel port has no vport.
pub(crate) const IS_A_TUNNEL: &str = "it is a tunnel";

/// Ports that are attached.
pub(crate) struct Ports {
    attached: RwLock<BTreeMap<PortNumber, Attached>>,
    /// Vports that the configuration states.
    stated: BTreeMap<String, u16>,
    /// The device, and who has it.
    names: Names,
    owner: Arc<Owner>,
    /// Counts the changes.
    revision: AtomicU64,
    has_connections: bool,
    /// The vport of the eswitch's manager.
    manager: u16,
    /// Held while the switch is told of the ports, so that what it was told last is the latest. Taken before `attached`, and with nothing held.
    telling: Mutex<()>,
}

#[derive(Clone)]
struct Attached {
    name: PortName,
    /// `None` until its device is there, and for a tunnel.
    vport: Option<u16>,
    tunnel: Option<Tunnel>,
}

impl Ports {
    /// Those of the eswitch of a device, which the owner has, with connections or without.
    pub(crate) fn new(
        stated: BTreeMap<String, u16>,
        names: Names,
        owner: Arc<Owner>,
        has_connections: bool,
    ) -> Result<Self, Refusal> {
        let manager = owner.call(|desk| desk.rules.switch().manager())?;
        let (attached, revision, telling) = Default::default();
        Ok(Self { attached, stated, names, owner, revision, has_connections, manager, telling })
    }

    /// Attaches a port. Fails if it is of a kind that the eswitch does not have, or its device is not there.
    pub(crate) fn attach(&self, port: &Port) -> Result<(), Refusal> {
        check(port)?;
        let vport = if is_tunnel(port) { None } else { Some(self.find(port.number, &port.name)?) };
        self.insert(port, vport);
        Ok(())
    }

    /// The same, and the device may come later: it is [looked for](Self::look_for_absent).
    pub(crate) fn expect(&self, port: &Port) -> Result<(), Refusal> {
        check(port)?;
        let vport = if is_tunnel(port) { None } else { self.find(port.number, &port.name).ok() };
        self.insert(port, vport);
        Ok(())
    }

    pub(crate) fn is_absent(&self, number: PortNumber) -> bool {
        self.attached.read().get(&number).is_some_and(Attached::is_absent)
    }

    pub(crate) fn detach(&self, number: PortNumber) -> Result<(), Refusal> {
        self.change(|attached| attached.remove(&number)).map(drop).ok_or_else(|| Refusal::no_port(number))
    }

    /// Tells the switch of the ports, has their packets come to flows, and packets of tunnels be known by their outer headers.
    pub(crate) fn tell(&self) -> Result<(), Refusal> {
        let _one_at_a_time = self.telling.lock();
        let (ports, led, entrances) = (self.now(), self.led(), self.entrances());
        self.owner.call(move |desk| {
            desk.rules.switch().set_vports(ports);
            desk.rules.switch().lead_from(led)?;
            desk.rules.set_entrances(&entrances)
        })?
    }

    /// Looks for the devices of ports that are not there, tells the switch of those that have come, and returns their ports. If the switch does
    /// not take them, they are not there, as before.
    pub(crate) fn look_for_absent(&self) -> Result<Vec<PortNumber>, Refusal> {
        let absent: Vec<_> = {
            let attached = self.attached.read();
            let absent = attached.iter().filter(|(_, port)| port.is_absent());
            absent.map(|(number, port)| (*number, port.name.clone())).collect()
        };
        if absent.is_empty() {
            return Ok(Vec::new());
        }
        let monitor = open_monitor().map_err(|reason| Refusal::Device { reason: reason.into() })?;
        let found: Vec<_> = absent
            .into_iter()
            .filter_map(|(number, name)| {
                let vport = self.find_in(monitor.links(), number, &name).ok()?;
                Some((number, name, vport))
            })
            .collect();
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let come = self.change(|attached| arrive(attached, &found));
        self.tell().inspect_err(|_| self.change(|attached| leave(attached, &come)))?;
        Ok(come)
    }

    /// Returns by what the packets of tunnels are known whose underlay is there.
    fn entrances(&self) -> Vec<Entrance> {
        let tunnels: Vec<_> = {
            let attached = self.attached.read();
            attached.iter().filter_map(|(number, port)| Some((*number, port.tunnel.clone()?))).collect()
        };
        tunnels.into_iter().filter_map(|(number, tunnel)| Entrance::of(number, &tunnel, self).ok()).collect()
    }

    /// Returns which vports the ports are now.
    fn now(&self) -> Arc<dyn Vports + Send + Sync> {
        let attached = self.attached.read().clone();
        Arc::new(Now { attached, has_connections: self.has_connections, manager: self.manager })
    }

    /// Returns the vports whose packets flows are for.
    fn led(&self) -> BTreeSet<u16> {
        let attached = self.attached.read();
        attached.values().filter_map(|port| port.vport).filter(|vport| *vport != self.manager).collect()
    }

    /// Returns a number that is another one after each change. Whoever reads it first and asks for vports then is told of the ports of
    /// that revision or of a later one: it changes while nobody can ask.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns the names of all ports, and whether each is there.
    pub(crate) fn attached(&self) -> BTreeMap<String, bool> {
        let attached = self.attached.read();
        attached.values().map(|port| (port.name.to_string(), !port.is_absent())).collect()
    }

    /// Returns the name of the port that a vport is.
    pub(crate) fn name_of(&self, vport: u16) -> String {
        let attached = self.attached.read();
        let found = attached.values().find(|port| port.vport == Some(vport));
        found.map_or_else(|| format!("vport {vport}"), |port| port.name.to_string())
    }

    fn insert(&self, port: &Port, vport: Option<u16>) {
        let tunnel = match &port.kind {
            PortKind::Tunnel(tunnel) => Some(tunnel.clone()),
            _ => None,
        };
        self.change(|attached| attached.insert(port.number, Attached { name: port.name.clone(), vport, tunnel }));
    }

    /// Changes the ports, of which there is another revision then.
    fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<PortNumber, Attached>) -> R) -> R {
        let mut attached = self.attached.write();
        self.revision.fetch_add(1, Ordering::Release);
        change(&mut attached)
    }

    fn find(&self, number: PortNumber, name: &PortName) -> Result<u16, Refusal> {
        if let Some(vport) = self.stated.get(&**name) {
            return Ok(*vport);
        }
        let monitor = open_monitor().map_err(|reason| refuse(number, name, reason))?;
        self.find_in(monitor.links(), number, name)
    }

    fn find_in(&self, links: &Links, number: PortNumber, name: &PortName) -> Result<u16, Refusal> {
        let refuse = |reason: String| refuse(number, name, reason);
        let Some(known) = links.named(name) else {
            return Err(refuse("there is no such network device, and [dv.vports] says nothing of it".to_owned()));
        };
        if let Some(vport) = self.by_rdma(known.device.ifindex)? {
            return Ok(vport);
        }
        let is_its = |address: &str| eswitch::ports(links, address).iter().any(|port| port.device == known.device);
        if !self.names.address.as_deref().is_some_and(is_its) {
            return Err(refuse(format!("its network device is no port of the eswitch of {}", self.names.rdma)));
        }
        match &known.device.role {
            Role::Physical if known.device.switch.is_some() => Ok(UPLINK),
            Role::Representor(function) => vport(*function).map_err(|reason| refuse(reason.to_owned())),
            _ => Err(refuse("its network device does not tell its vport; state it in [dv.vports]".to_owned())),
        }
    }
}

impl Attached {
    fn is_absent(&self) -> bool {
        self.vport.is_none() && self.tunnel.is_none()
    }
}

impl Ports {
    /// The vport of the RDMA device's port that a network device represents. That also tells of those that have no name of a port, such
    /// as that of an embedded processor's own function.
    fn by_rdma(&self, netdev: Ifindex) -> Result<Option<u16>, Refusal> {
        let port = rdma_port(&self.names.rdma, netdev).unwrap_or_else(|error| {
            tracing::debug!("ports of {} are not known by netlink: {error}", self.names.rdma);
            None
        });
        port.map_or(Ok(None), |port| self.owner.call(move |desk| desk.rules.vport(port))?)
    }
}

impl Vports for Ports {
    fn vport(&self, number: PortNumber) -> Result<u16, Refusal> {
        vport_of(&self.attached.read(), number)
    }

    fn manager(&self) -> Option<u16> {
        Some(self.manager)
    }

    fn has_connections(&self) -> bool {
        self.has_connections
    }

    fn tunnel(&self, number: PortNumber) -> Option<Tunnel> {
        self.attached.read().get(&number)?.tunnel.clone()
    }
}

/// The ports of one time.
struct Now {
    attached: BTreeMap<PortNumber, Attached>,
    has_connections: bool,
    manager: u16,
}

impl Vports for Now {
    fn vport(&self, number: PortNumber) -> Result<u16, Refusal> {
        vport_of(&self.attached, number)
    }

    fn manager(&self) -> Option<u16> {
        Some(self.manager)
    }

    fn has_connections(&self) -> bool {
        self.has_connections
    }

    fn tunnel(&self, number: PortNumber) -> Option<Tunnel> {
        self.attached.get(&number)?.tunnel.clone()
    }
}

fn vport_of(attached: &BTreeMap<PortNumber, Attached>, number: PortNumber) -> Result<u16, Refusal> {
    let port = attached.get(&number).ok_or_else(|| Refusal::no_port(number))?;
    port.vport.ok_or_else(|| Refusal::Port {
        port: port.name.to_string(),
        number: Some(number),
        reason: if port.tunnel.is_some() { IS_A_TUNNEL } else { "its device is not there" }.into(),
    })
}

/// Has ports be there whose devices were found, by their names and vports. Returns those that were not there before: one may have been taken away
/// since it was looked for, or have another name.
fn arrive(attached: &mut BTreeMap<PortNumber, Attached>, found: &[(PortNumber, PortName, u16)]) -> Vec<PortNumber> {
    let mut come = Vec::new();
    for (number, name, vport) in found {
        if let Some(port) = attached.get_mut(number).filter(|port| port.name == *name && port.is_absent()) {
            port.vport = Some(*vport);
            come.push(*number);
        }
    }
    come
}

/// Has ports not be there.
fn leave(attached: &mut BTreeMap<PortNumber, Attached>, gone: &[PortNumber]) {
    for number in gone {
        if let Some(port) = attached.get_mut(number) {
            port.vport = None;
        }
    }
}

fn open_monitor() -> Result<Monitor, String> {
    Monitor::open(MonitorOptions::default()).map_err(|error| error.to_string())
}

fn refuse(number: PortNumber, name: &PortName, reason: String) -> Refusal {
    Refusal::Port { port: name.to_string(), number: Some(number), reason: reason.into() }
}

fn is_tunnel(port: &Port) -> bool {
    matches!(port.kind, PortKind::Tunnel(_))
}

/// Fails for a port of a kind that no eswitch has.
pub(crate) fn check(port: &Port) -> Result<(), Refusal> {
    let refuse = |reason: String| {
        Err(Refusal::Port { port: port.name.to_string(), number: Some(port.number), reason: reason.into() })
    };
    match &port.kind {
        PortKind::Physical | PortKind::Representor => Ok(()),
        PortKind::Tunnel(tunnel) => Protocol::of(tunnel).map(drop).or_else(refuse),
        _ => refuse(format!("backend \"dv\" has no ports of kind \"{}\"", port.kind.name())),
    }
}

/// The vport of a function: the driver numbers virtual functions behind the physical one (`mlx5_eswitch_vport` in the kernel).
fn vport(function: Function) -> Result<u16, &'static str> {
    match function.part {
        FunctionPart::Whole => Ok(0),
        FunctionPart::Virtual(number) => {
            u16::try_from(number).ok().and_then(|number| number.checked_add(1)).ok_or("it has no such vport")
        }
        FunctionPart::Sub(_) => Err("the vports of subfunctions are not known; state it in [dv.vports]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_netdev::PortName;

    #[test]
    fn a_port_whose_device_has_come_is_there_if_it_still_waits_for_it() {
        let port = |name: &str, vport| Attached { name: name.parse().unwrap(), vport, tunnel: None };
        let ports = [("vf0", None), ("vf1", Some(2)), ("other", None), ("vf4", None)];
        let mut attached: BTreeMap<_, _> =
            (1..).map(PortNumber).zip(ports.map(|(name, vport)| port(name, vport))).collect();
        let found = ["vf0", "vf1", "vf2", "vf3"].map(|name| name.parse().unwrap());
        let found: Vec<_> =
            [1, 2, 3, 9].into_iter().zip(found).map(|(number, name)| (PortNumber(number), name, 7)).collect();
        let vports = |attached: &BTreeMap<_, Attached>| attached.values().map(|port| port.vport).collect::<Vec<_>>();
        assert_eq!(arrive(&mut attached, &found), [PortNumber(1)]);
        assert_eq!(vports(&attached), [Some(7), Some(2), None, None]);
        leave(&mut attached, &[PortNumber(1), PortNumber(9)]);
        assert_eq!(vports(&attached), [None, Some(2), None, None]);
    }

    #[test]
    fn functions_are_the_vports_that_the_driver_numbers() {
        let of = |name: &str| match PortName::parse(name) {
            Some(PortName::Function(function)) => vport(function),
            other => panic!("{other:?}"),
        };
        assert_eq!([of("c1pf0"), of("pf0vf0"), of("c1pf0vf7")], [Ok(0), Ok(1), Ok(8)]);
        assert!(of("pf0sf88").is_err_and(|reason| reason.contains("subfunctions")));
        assert!(of("pf0vf65535").is_err());
    }
}
