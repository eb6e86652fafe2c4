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
    /// `None` unless its device is there, and for a tunnel.
    vport: Option<u16>,
    /// The network device by which the vport was found; `None` if the configuration states it.
    device: Option<Ifindex>,
    tunnel: Option<Tunnel>,
}

/// A vport, and the network device by which it was found.
type Place = (Option<u16>, Option<Ifindex>);

/// Ports that are not what they were.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Those that can be used from now on.
    pub(crate) come: Vec<PortNumber>,
    /// Those of which flows were that must be made anew: their device is gone, or is another vport.
    pub(crate) gone: Vec<PortNumber>,
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
        let place = if is_tunnel(port) { Place::default() } else { self.find(port.number, &port.name)? };
        self.insert(port, place);
        Ok(())
    }

    /// The same, and the device may come later: it is [looked for](Self::look).
    pub(crate) fn expect(&self, port: &Port) -> Result<(), Refusal> {
        check(port)?;
        let place = if is_tunnel(port) { None } else { self.find(port.number, &port.name).ok() };
        self.insert(port, place.unwrap_or_default());
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
            desk.rules.set_vports(ports);
            desk.rules.switch().lead_from(led)?;
            desk.rules.set_entrances(&entrances)
        })?
    }

    /// Returns whether the device of a port is not there.
    pub(crate) fn has_absent(&self) -> bool {
        self.attached.read().values().any(Attached::is_absent)
    }

    /// Looks which ports have network devices now, tells the switch of those that have come or are gone, and returns them. If the switch does
    /// not take that, all is as before.
    pub(crate) fn look(&self, links: &Links) -> Result<Moved, Refusal> {
        let is_stated = |name: &PortName| self.stated.contains_key(&**name);
        let now: Vec<_> = {
            let attached = self.attached.read();
            let named = |name: &PortName| links.named(name).map(|known| known.device.ifindex);
            let others =
                attached.iter().filter(|(_, port)| !is_stated(&port.name) && port.has_moved(named(&port.name)));
            others.map(|(number, port)| (*number, port.name.clone(), port.place())).collect()
        };
        let place = |(number, name, before): (PortNumber, PortName, Place)| {
            let place = self.find_in(links, number, &name).unwrap_or_default();
            (place != before).then_some((number, name, place))
        };
        let now: Vec<_> = now.into_iter().filter_map(place).collect();
        if now.is_empty() {
            return Ok(Moved::default());
        }
        let (before, moved) = self.change(|attached| exchange(attached, now));
        self.tell().inspect_err(|_| drop(self.change(|attached| exchange(attached, before))))?;
        Ok(moved)
    }

    /// Returns by what the packets of tunnels are known whose underlay is there.
    fn entrances(&self) -> Vec<Entrance> {
        let tunnels: Vec<_> = {
            let attached = self.attached.read();
            attached.iter().filter_map(|(number, port)| Some((*number, port.tunnel.clone()?))).collect()
        };
        tunnels.into_iter().filter_map(|(number, tunnel)| Entrance::of(number, &tunnel, self).ok()).collect()
    }

    /// Returns the numbers of the ports that are tunnels.
    pub(crate) fn tunnels(&self) -> Vec<PortNumber> {
        let attached = self.attached.read();
        attached.iter().filter(|(_, port)| port.tunnel.is_some()).map(|(number, _)| *number).collect()
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

    fn insert(&self, port: &Port, (vport, device): Place) {
        let tunnel = match &port.kind {
            PortKind::Tunnel(tunnel) => Some(tunnel.clone()),
            _ => None,
        };
        let attached = Attached { name: port.name.clone(), vport, device, tunnel };
        self.change(|ports| ports.insert(port.number, attached));
    }

    /// Changes the ports, of which there is another revision then.
    fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<PortNumber, Attached>) -> R) -> R {
        let mut attached = self.attached.write();
        self.revision.fetch_add(1, Ordering::Release);
        change(&mut attached)
    }

    fn find(&self, number: PortNumber, name: &PortName) -> Result<Place, Refusal> {
        if let Some(vport) = self.stated.get(&**name) {
            return Ok((Some(*vport), None));
        }
        let monitor = open_monitor().map_err(|reason| refuse(number, name, reason))?;
        self.find_in(monitor.links(), number, name)
    }

    fn find_in(&self, links: &Links, number: PortNumber, name: &PortName) -> Result<Place, Refusal> {
        let refuse = |reason: String| refuse(number, name, reason);
        let Some(known) = links.named(name) else {
            return Err(refuse("there is no such network device, and [dv.vports] says nothing of it".to_owned()));
        };
        let place = |vport| (Some(vport), Some(known.device.ifindex));
        if let Some(vport) = self.by_rdma(known.device.ifindex)? {
            return Ok(place(vport));
        }
        let is_its = |address: &str| eswitch::ports(links, address).iter().any(|port| port.device == known.device);
        if !self.names.address.as_deref().is_some_and(is_its) {
            return Err(refuse(format!("its network device is no port of the eswitch of {}", self.names.rdma)));
        }
        match &known.device.role {
            Role::Physical if known.device.switch.is_some() => Ok(place(UPLINK)),
            Role::Representor(function) => vport(*function).map(place).map_err(|reason| refuse(reason.to_owned())),
            _ => Err(refuse("its network device does not tell its vport; state it in [dv.vports]".to_owned())),
        }
    }
}

impl Attached {
    fn is_absent(&self) -> bool {
        self.vport.is_none() && self.tunnel.is_none()
    }

    fn place(&self) -> Place {
        (self.vport, self.device)
    }

    /// Returns whether it may be elsewhere, by the network device that has its name now.
    fn has_moved(&self, named: Option<Ifindex>) -> bool {
        self.tunnel.is_none() && named != self.device
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

/// Has ports be elsewhere, by their names: one may have been taken away since it was looked for, or have another name. Returns where they were
/// before, and what that means for flows.
fn exchange(
    attached: &mut BTreeMap<PortNumber, Attached>,
    places: Vec<(PortNumber, PortName, Place)>,
) -> (Vec<(PortNumber, PortName, Place)>, Moved) {
    let (mut before, mut moved) = (Vec::new(), Moved::default());
    for (number, name, (vport, device)) in places {
        let Some(port) = attached.get_mut(&number).filter(|port| port.name == name) else { continue };
        let old = port.place();
        (port.vport, port.device) = (vport, device);
        before.push((number, name, old));
        if vport == old.0 {
            continue;
        }
        if old.0.is_some() {
            let through = |(number_of_tunnel, port): (&PortNumber, &Attached)| {
                port.tunnel.as_ref().is_some_and(|tunnel| tunnel.underlay == number).then_some(*number_of_tunnel)
            };
            moved.gone.push(number);
            moved.gone.extend(attached.iter().filter_map(through));
        }
        if vport.is_some() {
            moved.come.push(number);
        }
    }
    (before, moved)
}

pub(crate) fn open_monitor() -> Result<Monitor, String> {
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
    use sluice_flow::port::TunnelProtocol;
    use sluice_netdev::PortName;

    fn port(name: &str, vport: Option<u16>, device: Option<u32>) -> Attached {
        Attached { name: name.parse().unwrap(), vport, device: device.map(Ifindex), tunnel: None }
    }

    #[test]
    fn ports_whose_devices_come_go_or_are_others_are_told_apart_if_they_are_still_those() {
        let mut attached: BTreeMap<_, _> = (1..)
            .map(PortNumber)
            .zip([
                port("comes", None, None),
                port("goes", Some(2), Some(12)),
                port("other", Some(3), Some(13)),
                port("same", Some(4), Some(14)),
                port("renamed", None, None),
            ])
            .collect();
        let tunnel = Tunnel { protocol: TunnelProtocol::Vxlan, udp_port: Some(4789), underlay: PortNumber(2) };
        attached.insert(PortNumber(6), Attached { tunnel: Some(tunnel), ..port("vx", None, None) });
        let places = [
            (1, "comes", Some(1)),
            (2, "goes", None),
            (3, "other", Some(7)),
            (4, "same", Some(4)),
            (5, "before", Some(5)),
            (9, "detached", Some(9)),
        ];
        let places = places.map(|(number, name, vport): (u32, &str, Option<u16>)| {
            (PortNumber(number), name.parse().unwrap(), (vport, vport.map(|_| Ifindex(100 + number))))
        });
        let vports = |attached: &BTreeMap<_, Attached>| attached.values().map(|port| port.vport).collect::<Vec<_>>();
        let (before, moved) = exchange(&mut attached, places.into());
        let numbers = |list: &[u32]| list.iter().copied().map(PortNumber).collect::<Vec<_>>();
        assert_eq!(moved, Moved { come: numbers(&[1, 3]), gone: numbers(&[2, 6, 3]) });
        assert_eq!(vports(&attached), [Some(1), None, Some(7), Some(4), None, None]);
        let named = [101, 12, 103, 104, 15, 16].map(|device| Some(Ifindex(device)));
        let has_moved: Vec<_> = attached.values().zip(named).map(|(port, named)| port.has_moved(named)).collect();
        assert_eq!(has_moved, [false, true, false, false, true, false]);
        assert!(attached[&PortNumber(1)].has_moved(None) && !attached[&PortNumber(2)].has_moved(None));
        exchange(&mut attached, before);
        assert_eq!(vports(&attached), [None, Some(2), Some(3), Some(4), None, None]);
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
