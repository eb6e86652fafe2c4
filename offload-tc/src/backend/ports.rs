//! The ports that flows may name, and the network devices behind them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sluice_flow::backend::LooksAt;
use sluice_flow::flow::Flow;
use sluice_flow::meter::MeterId;
use sluice_flow::port::{Port, PortNumber};
use sluice_netdev::{self as links, Ifindex, IngressQdisc, Ownership};

use crate::config::OffloadPolicy;
use crate::meters::Meters;
use crate::rule::Room;
use crate::surroundings::{Device, DeviceKind, Features, Surroundings, TunnelFlags};
use crate::translate;
use crate::wire::filter::Hook;

/// All ports as they are at a moment. A change makes another one.
#[derive(Clone, Default)]
pub(super) struct PortTable {
    ports: BTreeMap<PortNumber, Attached>,
    interfaces: HashMap<u32, PortNumber>,
    /// What the kernel can match; `None` until there was a device to find it out with.
    pub(super) features: Option<Features>,
    meters: Option<Arc<Meters>>,
    room: Room,
    tunnel_flags: TunnelFlags,
}

/// A port with its device.
#[derive(Clone, Debug)]
pub(super) struct Attached {
    pub(super) port: Port,
    /// The device; `None` while it is gone.
    pub(super) device: Option<Present>,
    /// Whether the device was made for the port.
    pub(super) is_made: bool,
}

/// A device that is there.
#[derive(Clone, Debug)]
pub(super) struct Present {
    pub(super) device: Device,
    pub(super) generation: links::Generation,
    /// What filters hang on, at the device and at those that it consists of.
    pub(super) qdiscs: Vec<(Ifindex, IngressQdisc, Ownership)>,
}

impl PortTable {
    /// Without ports.
    pub(super) fn new(meters: Arc<Meters>, policy: OffloadPolicy, tunnel_flags: TunnelFlags) -> Self {
        let room = match policy {
            OffloadPolicy::SkipHardware => Room::Made,
            OffloadPolicy::Any | OffloadPolicy::SkipSoftware => Room::Found,
        };
        Self { meters: Some(meters), room, tunnel_flags, ..Self::default() }
    }

    /// The same with a port more, or as it is now.
    pub(super) fn with(&self, attached: Attached) -> Self {
        let mut table = self.without(attached.port.number);
        if let Some(present) = &attached.device {
            table.interfaces.insert(present.device.interface, attached.port.number);
        }
        table.ports.insert(attached.port.number, attached);
        table
    }

    /// The same without a port.
    pub(super) fn without(&self, port: PortNumber) -> Self {
        let mut table = self.clone();
        table.ports.remove(&port);
        table.interfaces.retain(|_, number| *number != port);
        table
    }

    pub(super) fn get(&self, port: PortNumber) -> Option<&Attached> {
        self.ports.get(&port)
    }

    /// Whether there is such a port, and its device is gone.
    pub(super) fn is_absent(&self, port: PortNumber) -> bool {
        self.get(port).is_some_and(|attached| attached.device.is_none())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Attached> {
        self.ports.values()
    }

    /// The ports whose devices are there.
    pub(super) fn present(&self) -> impl Iterator<Item = (&Attached, &Present)> {
        self.iter().filter_map(|attached| Some((attached, attached.device.as_ref()?)))
    }

    /// The ports whose devices had nothing that filters hang on when they were attached. Such a device was not a port when an
    /// earlier run ended, or was made anew or was in another namespace since: the kernel takes qdiscs away then, too
    /// (`dev_shutdown`), and rules that send to it have lost it.
    pub(super) fn bare(&self) -> Vec<PortNumber> {
        let is_made = |present: &Present| present.qdiscs.iter().any(|(.., ownership)| *ownership == Ownership::Made);
        self.present().filter(|(_, present)| is_made(present)).map(|(attached, _)| attached.port.number).collect()
    }

    /// What rules look at instead of the match of a flow of packets with an outer header, if that may be less.
    pub(super) fn looks_at(&self, flow: &Flow) -> Option<LooksAt> {
        let may_be_less = self.tunnel_flags != TunnelFlags::Exact && !self.features().tunnel_flags;
        may_be_less.then(|| LooksAt {
            matching: translate::without_unknown_flags(&flow.matching().expand()),
            holds_apart: self.tunnel_flags == TunnelFlags::Auto,
        })
    }

    /// Where rules of these ports are.
    pub(super) fn hooks(&self) -> Vec<Hook> {
        self.present().map(|(_, present)| present.device.hook()).collect()
    }

    /// The name of the port whose rules are at a hook.
    pub(super) fn name_at(&self, hook: Hook) -> Option<&str> {
        self.port_at(hook).map(|port| &*port.name)
    }

    /// The port whose rules are at a hook.
    pub(super) fn port_at(&self, hook: Hook) -> Option<&Port> {
        self.present().find(|(_, present)| present.device.hook() == hook).map(|(attached, _)| &attached.port)
    }
}

impl Surroundings for PortTable {
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

    fn room(&self) -> Room {
        self.room
    }

    fn tunnel_flags(&self) -> TunnelFlags {
        self.tunnel_flags
    }
}

impl Present {
    /// Whether what the device receives is what it sends, as the datapath sees it.
    pub(super) fn is_turned_round(&self) -> bool {
        self.device.kind == DeviceKind::Internal
    }
}
