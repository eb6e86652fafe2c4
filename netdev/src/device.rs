//! Network devices, as the kernel describes them (`RTM_NEWLINK`).

use std::fmt;

use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkPhysId,
};

use crate::devlink::{DevlinkPort, Flavour};
use crate::port_name::{Function, PortName};
use crate::tunnel::{Tunnel, TunnelKind};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number, which no other device of the namespace has at the same time.
    pub ifindex: Ifindex,
    /// Its name, which may change.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Whether it is up.
    pub state: State,
    /// The switch that it is a port of; two ports of one switch have the same.
    pub switch: Option<SwitchId>,
    /// Which port of the switch, in the driver's words (`IFLA_PHYS_PORT_NAME`).
    pub port_name: Option<Box<str>>,
    /// Which plug (`IFLA_PHYS_PORT_ID`): functions that share one have the same.
    pub port_id: Option<Box<[u8]>>,
    /// What devlink says of it. Read after the rest, so that it may come late.
    pub devlink: Option<DevlinkPort>,
    /// The device below or at the other end (`IFLA_LINK`).
    pub lower: Option<Lower>,
    /// The device that it is a member of: a bond, team, bridge or the like.
    pub master: Option<Ifindex>,
    /// The device on a bus whose driver made it.
    pub parent: Option<ParentDevice>,
    /// A text that somebody left at it (`IFLA_IFALIAS`).
    pub alias: Option<Box<str>>,
    driver: Option<Box<str>>,
    is_ethernet: bool,
}

/// The number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ifindex(pub u32);

impl fmt::Display for Ifindex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The number by which this namespace knows another one (`IFLA_LINK_NETNSID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub u32);

/// A device below another one, or at the other end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lower {
    /// Its number, in its own namespace.
    pub ifindex: Ifindex,
    /// Its namespace, if it is not this one.
    pub namespace: Option<NamespaceId>,
}

/// A device on a bus.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParentDevice {
    /// The bus, such as `pci`.
    pub bus: Box<str>,
    /// The name on it, such as `0000:03:00.0`.
    pub name: Box<str>,
}

/// What identifies a switch, such as an eswitch of a NIC (`IFLA_PHYS_SWITCH_ID`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwitchId(pub Box<[u8]>);

impl fmt::Display for SwitchId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// Whether packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Switched off (no `IFF_UP`).
    Off,
    /// Switched on, with nobody at the other end (no `IFF_LOWER_UP`).
    NoCarrier,
    /// They do.
    Up,
}

/// What a device is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A plug of a NIC or switch.
    Physical,
    /// It stands for a function of a NIC: what the function sends is received here, unless a rule says otherwise.
    Representor(Function),
    /// One end of a pair.
    Veth,
    /// A program is at the other end (a TAP device).
    Tap,
    /// A port of Open vSwitch's datapath that leads to this host.
    Internal,
    /// Several devices as one.
    Lag(LagDriver),
    /// It puts packets into others.
    Tunnel(Tunnel),
    /// This host itself.
    Loopback,
    /// Of another driver; empty if the kernel does not tell.
    Other(Box<str>),
}

/// What makes several devices one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LagDriver {
    /// The kernel's bonding driver.
    Bond,
    /// The kernel's team driver.
    Team,
}

/// The name of a device is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has no name")]
pub(crate) struct Nameless;

impl Device {
    pub(crate) fn new(message: &LinkMessage) -> Result<Self, Nameless> {
        let flags = message.header.flags;
        let mut found = Self {
            ifindex: Ifindex(message.header.index),
            name: String::new(),
            role: Role::Other(Box::default()),
            state: match (flags.contains(LinkFlags::Up), flags.contains(LinkFlags::LowerUp)) {
                (false, _) => State::Off,
                (true, false) => State::NoCarrier,
                (true, true) => State::Up,
            },
            switch: None,
            port_name: None,
            port_id: None,
            devlink: None,
            lower: None,
            master: None,
            parent: None,
            alias: None,
            driver: None,
            is_ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        };
        let mut lower = None;
        let mut namespace = None;
        let [mut bus, mut parent] = [None, None];
        let mut info: &[LinkInfo] = &[];
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => found.name.clone_from(name),
                LinkAttribute::PhysSwitchId(id) => found.switch = bytes(id).map(SwitchId),
                LinkAttribute::PhysPortName(name) => found.port_name = Some(name.as_str().into()),
                LinkAttribute::PhysPortId(id) => found.port_id = bytes(id),
                LinkAttribute::Link(ifindex) => lower = Some(Ifindex(*ifindex)),
                LinkAttribute::LinkNetNsId(id) => namespace = u32::try_from(*id).ok().map(NamespaceId),
                LinkAttribute::Controller(ifindex) => found.master = Some(Ifindex(*ifindex)),
                LinkAttribute::ParentDevBusName(name) => bus = Some(name.as_str().into()),
                LinkAttribute::ParentDevName(name) => parent = Some(name.as_str().into()),
                LinkAttribute::IfAlias(alias) => found.alias = Some(alias.as_str().into()),
                LinkAttribute::LinkInfo(parts) => info = parts,
                _ => {}
            }
        }
        if found.name.is_empty() {
            return Err(Nameless);
        }
        // A pair whose other end is out of sight has 0 here.
        found.lower = lower.filter(|ifindex| *ifindex != Ifindex(0)).map(|ifindex| Lower { ifindex, namespace });
        found.parent = bus.zip(parent).map(|(bus, name)| ParentDevice { bus, name });
        let kind = info.iter().find_map(|part| if let LinkInfo::Kind(kind) = part { Some(kind) } else { None });
        let data = info.iter().find_map(|part| if let LinkInfo::Data(data) = part { Some(data) } else { None });
        found.driver = kind.map(|kind| kind.to_string().into());
        let tunnel = kind.and_then(TunnelKind::of).map(|kind| Tunnel::new(kind, data));
        found.role = if flags.contains(LinkFlags::Loopback) { Role::Loopback } else { found.role_by(kind, tunnel) };
        Ok(found)
    }

    /// The name of the driver that `ip link add type` would make such a device with.
    pub fn driver(&self) -> Option<&str> {
        self.driver.as_deref()
    }

    /// What devlink says is truer than the driver's name for the port, which old drivers lack.
    pub(crate) fn set_devlink(&mut self, port: Option<DevlinkPort>) {
        match port.as_ref().map(|port| &port.flavour) {
            Some(Flavour::Physical { .. }) => self.role = Role::Physical,
            Some(Flavour::Function(function)) => self.role = Role::Representor(*function),
            Some(Flavour::Other(_)) | None => {}
        }
        self.devlink = port;
    }

    fn role_by(&self, kind: Option<&InfoKind>, tunnel: Option<Tunnel>) -> Role {
        match self.port_name.as_deref().and_then(PortName::parse) {
            Some(PortName::Function(function)) if self.switch.is_some() => return Role::Representor(function),
            Some(PortName::Physical { .. }) => return Role::Physical,
            _ => {}
        }
        match (kind, tunnel) {
            (_, Some(tunnel)) => Role::Tunnel(tunnel),
            (Some(InfoKind::Veth), _) => Role::Veth,
            (Some(InfoKind::Tun), _) if self.is_ethernet => Role::Tap,
            (Some(InfoKind::Bond), _) => Role::Lag(LagDriver::Bond),
            (Some(InfoKind::Team), _) => Role::Lag(LagDriver::Team),
            (Some(kind), _) if kind.to_string() == "openvswitch" => Role::Internal,
            (Some(kind), _) => Role::Other(kind.to_string().into()),
            (None, _) if self.parent.is_some() && self.is_ethernet => Role::Physical,
            (None, _) => Role::Other(Box::default()),
        }
    }
}

fn bytes(id: &LinkPhysId) -> Option<Box<[u8]>> {
    id.id.get(..id.len).map(Into::into)
}
