//! What translation must know of ports, meters and the running kernel.

pub use crate::config::TunnelFlags;
use sluice_flow::flow::Flow;
use sluice_flow::meter::MeterId;
use sluice_flow::port::PortNumber;

use crate::label::Room;
use crate::rule::Exposure;
use crate::wire::filter::Hook;

/// The network device of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub interface: u32,
    /// What it is.
    pub kind: DeviceKind,
}

/// What the device of a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A physical port or a representor.
    Wire,
    /// A device of the host itself: what it sends comes in at the port, and what is sent to the port is received by the
    /// host.
    Internal,
    /// A tunnel in collect-metadata mode.
    Tunnel {
        /// The UDP port that all of its packets come to, if they come by UDP.
        udp_port: Option<u16>,
    },
    /// A LAG, whose members share a block with the LAG's own interface index.
    Lag,
}

impl Device {
    /// The hook where packets that come in at the port are matched: egress for a device of the host, ingress for others.
    pub const fn hook(&self) -> Hook {
        match self.kind {
            DeviceKind::Internal => Hook::Egress { interface: self.interface },
            DeviceKind::Wire | DeviceKind::Tunnel { .. } => Hook::Ingress { interface: self.interface },
            DeviceKind::Lag => Hook::Block { number: self.interface },
        }
    }
}

/// What a flow may refer to.
pub trait Context {
    /// The device of a port.
    fn device(&self, port: PortNumber) -> Option<Device>;
    /// The name of a port whose device is absent; `None` if its device is present, or if there is no such port.
    fn absent(&self, _port: PortNumber) -> Option<&str> {
        None
    }
    /// The port of a device.
    fn port(&self, interface: u32) -> Option<(PortNumber, Device)>;
    /// The kernel's index of a meter's policer; `None` if there is no such meter.
    fn police(&self, meter: MeterId) -> Option<u32>;
    /// The meter of a policer index.
    fn meter(&self, police: u32) -> Option<MeterId>;
    /// What the running kernel can match.
    fn features(&self) -> Features;
    /// What to do where the kernel can neither match nor set a flag of the outer header.
    fn tunnel_flags(&self) -> TunnelFlags {
        TunnelFlags::Exact
    }
    /// Whether rules are in hardware only, and tc sees no packet in software.
    fn is_hardware_alone(&self) -> bool {
        false
    }
    /// Why the rule of a flow must not be in hardware, if it must not.
    fn exposure(&self, _flow: &Flow) -> Option<Exposure> {
        None
    }
    /// How to make room for the notes on a rule.
    fn room(&self) -> Room {
        Room::Made
    }
}

/// Features that not every kernel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The number of VLAN tags; Linux 6.0 and later.
    pub number_of_tags: bool,
    /// PPPoE session and PPP protocol; Linux 6.0 and later.
    pub pppoe: bool,
    /// L2TPv3 session; Linux 6.1 and later.
    pub l2tpv3: bool,
    /// CFM level and opcode; Linux 6.5 and later.
    pub cfm: bool,
    /// IPsec security parameters index; Linux 6.6 and later.
    pub spi: bool,
    /// Flags of the outer header; Linux 6.11 and later.
    pub tunnel_flags: bool,
    /// The don't-fragment flag of the outer header; Linux 6.3 and later.
    pub no_fragment: bool,
    /// Connection tracking helpers; Linux 6.2 and later.
    pub connection_helpers: bool,
}

impl Features {
    /// Those of the newest kernel: all.
    pub const NEWEST: Self = Self {
        number_of_tags: true,
        pppoe: true,
        l2tpv3: true,
        cfm: true,
        spi: true,
        tunnel_flags: true,
        no_fragment: true,
        connection_helpers: true,
    };
}
