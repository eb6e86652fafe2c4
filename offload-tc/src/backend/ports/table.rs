//! The ports that flows may name, and the network devices behind them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::config::OffloadPolicy;
use sluice_flow::backend::LooksAt;
use sluice_flow::flow::Flow;
use sluice_flow::meter::MeterId;
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel};
use sluice_netdev::{self as netdev, Ifindex, IngressQdisc, Ownership};

use crate::backend::ipsec::Policies;
use crate::context::{Context, Device, DeviceKind, Features, TunnelFlags};
use crate::label::Room;
use crate::meters::Meters;
use crate::rule::Exposure;
use crate::translate;
use crate::wire::filter::Hook;

/// All ports at one time. A change makes a new table.
#[derive(Clone, Default)]
pub(crate) struct PortTable {
    ports: BTreeMap<PortNumber, Attached>,
    interfaces: HashMap<u32, PortNumber>,
    /// What the kernel can match; `None` until a device was there to probe it.
    pub(crate) features: Option<Features>,
    pub(crate) policies: Policies,
    meters: Option<Arc<Meters>>,
    room: Room,
    is_hardware_alone: bool,
    tunnel_flags: TunnelFlags,
}

/// A port with its device.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub(crate) port: Port,
    /// `None` while the device is absent.
    pub(crate) device: Option<Present>,
    /// Whether the device was made for the port.
    pub(crate) is_made: bool,
}

/// A device that is present.
#[derive(Clone, Debug)]
pub(crate) struct Present {
    pub(crate) device: Device,
    pub(crate) generation: netdev::Generation,
    /// The queueing disciplines for filters, of the device and of its LAG members.
    pub(crate) qdiscs: Vec<(Ifindex, IngressQdisc, Ownership)>,
}

impl PortTable {
    /// No ports.
    pub(crate) fn new(meters: Arc<Meters>, policy: OffloadPolicy, tunnel_flags: TunnelFlags) -> Self {
        let is_hardware_alone = policy == OffloadPolicy::SkipSoftware;
        Self { meters: Some(meters), room: Room::under(policy), is_hardware_alone, tunnel_flags, ..Self::default() }
    }

    /// This table with a port added or replaced.
    pub(crate) fn with(&self, attached: Attached) -> Self {
        let mut table = self.without(attached.port.number);
        if let Some(present) = &attached.device {
            table.interfaces.insert(present.device.interface, attached.port.number);
        }
        table.ports.insert(attached.port.number, attached);
        table
    }

    /// This table without a port.
    pub(crate) fn without(&self, port: PortNumber) -> Self {
        let mut table = self.clone();
        table.ports.remove(&port);
        table.interfaces.retain(|_, number| *number != port);
        table
    }

    pub(crate) fn get(&self, port: PortNumber) -> Option<&Attached> {
        self.ports.get(&port)
    }

    /// Whether there is such a port and its device is absent.
    pub(crate) fn is_absent(&self, port: PortNumber) -> bool {
        self.get(port).is_some_and(|attached| attached.device.is_none())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Attached> {
        self.ports.values()
    }

    /// The tunnel of a port, if it is that of one.
    pub(crate) fn tunnel(&self, port: PortNumber) -> Option<&Tunnel> {
        self.get(port)?.tunnel()
    }

    /// The ports whose devices are present.
    pub(crate) fn present(&self) -> impl Iterator<Item = (&Attached, &Present)> {
        self.iter().filter_map(|attached| Some((attached, attached.device.as_ref()?)))
    }

    /// The ports whose devices had no queueing discipline for filters when they were attached. Such a device was no port
    /// when an earlier run ended, or has been recreated or moved since: the kernel then removes queueing disciplines
    /// (`dev_shutdown`), and rules that send to the device have lost it.
    pub(crate) fn bare(&self) -> Vec<PortNumber> {
        let is_made = |present: &Present| present.qdiscs.iter().any(|(.., ownership)| *ownership == Ownership::Made);
        self.present().filter(|(_, present)| is_made(present)).map(|(attached, _)| attached.port.number).collect()
    }

    /// Whether a port has a queueing discipline at a device: its own, or that of a member of a LAG.
    pub(crate) fn has_qdisc(&self, device: Ifindex) -> bool {
        self.present().any(|(_, present)| present.qdiscs.iter().any(|(ifindex, ..)| *ifindex == device))
    }

    /// What the rule of a flow with an outer header matches, if that may be less than the flow does.
    pub(crate) fn looks_at(&self, flow: &Flow) -> Option<LooksAt> {
        let may_be_less = self.tunnel_flags != TunnelFlags::Exact && !self.features().tunnel_flags;
        may_be_less.then(|| LooksAt {
            matching: translate::without_unknown_flags(&flow.matching().expand()),
            holds_apart: self.tunnel_flags == TunnelFlags::Auto,
        })
    }

    /// The hooks of all present ports.
    pub(crate) fn hooks(&self) -> Vec<Hook> {
        self.present().map(|(_, present)| present.device.hook()).collect()
    }

    /// The name of the port at a hook.
    pub(crate) fn name_at(&self, hook: Hook) -> Option<&str> {
        self.port_at(hook).map(|port| &*port.name)
    }

    /// The port at a hook.
    pub(crate) fn port_at(&self, hook: Hook) -> Option<&Port> {
        self.present().find(|(_, present)| present.device.hook() == hook).map(|(attached, _)| &attached.port)
    }
}

impl Context for PortTable {
    fn device(&self, port: PortNumber) -> Option<Device> {
        Some(self.get(port)?.device.as_ref()?.device)
    }

    fn absent(&self, port: PortNumber) -> Option<&str> {
        self.get(port).filter(|attached| attached.device.is_none()).map(|attached| &*attached.port.name)
    }

    fn port(&self, interface: u32) -> Option<(PortNumber, Device)> {
        let number = *self.interfaces.get(&interface)?;
        Some((number, self.device(number)?))
    }

    fn police(&self, meter: MeterId) -> Option<u32> {
        self.meters.as_ref()?.index_of(meter)
    }

    fn meter(&self, police: u32) -> Option<MeterId> {
        self.meters.as_ref()?.meter_of(police)
    }

    fn features(&self) -> Features {
        self.features.unwrap_or_default()
    }

    fn is_hardware_alone(&self) -> bool {
        self.is_hardware_alone
    }

    fn exposure(&self, flow: &Flow) -> Option<Exposure> {
        self.policies.exposure(flow, self)
    }

    fn room(&self) -> Room {
        self.room
    }

    fn tunnel_flags(&self) -> TunnelFlags {
        self.tunnel_flags
    }
}

impl Attached {
    /// Its tunnel, if it is the port of one.
    pub(crate) const fn tunnel(&self) -> Option<&Tunnel> {
        match &self.port.kind {
            PortKind::Tunnel(tunnel) => Some(tunnel),
            _ => None,
        }
    }
}

impl Present {
    /// Whether the device sends what comes in at the port, and receives what is sent to it.
    pub(crate) fn is_turned_round(&self) -> bool {
        self.device.kind == DeviceKind::Internal
    }
}
