//! What translation has to know of ports and of the running kernel.

use sluice_flow::meter::MeterId;
use sluice_flow::port::{PortNumber, TunnelProtocol};

pub use crate::config::TunnelFlags;
use crate::rule::Room;
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
    /// A wire, or the eswitch's end of a function.
    Wire,
    /// A device of the host itself: what it sends comes in, and what is sent to it is received.
    Internal,
    /// A tunnel in collect-metadata mode.
    Tunnel(TunnelProtocol),
    /// Several devices as one, which share a block of the same number as the one has.
    Lag,
}

impl Device {
    /// Where packets that come in at the port are looked at: those of the host itself are on their way out of it.
    pub const fn hook(&self) -> Hook {
        match self.kind {
            DeviceKind::Internal => Hook::Egress { interface: self.interface },
            DeviceKind::Wire | DeviceKind::Tunnel(_) => Hook::Ingress { interface: self.interface },
            DeviceKind::Lag => Hook::Block { number: self.interface },
        }
    }
}

/// What a flow may refer to.
pub trait Surroundings {
    /// The device of a port.
    fn device(&self, port: PortNumber) -> Option<Device>;
    /// The name of a port whose device is gone; `None` if its device is there, or if there is no such port.
    fn absent(&self, _port: PortNumber) -> Option<&str> {
        None
    }
    /// The port of a device.
    fn port(&self, interface: u32) -> Option<(PortNumber, Device)>;
    /// The number that the kernel has a meter under; `None` if there is no such meter.
    fn police(&self, meter: MeterId) -> Option<u32>;
    /// The meter that the kernel has under a number.
    fn meter(&self, police: u32) -> Option<MeterId>;
    /// What the kernel can match.
    fn features(&self) -> Features;
    /// What is done where the kernel can neither match nor set a flag of the outer header.
    fn tunnel_flags(&self) -> TunnelFlags {
        TunnelFlags::Exact
    }
    /// How the notes on a rule get room.
    fn room(&self) -> Room {
        Room::Made
    }
}

/// What not every kernel can match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The number of VLAN tags; Linux 6.0 and later.
    pub number_of_tags: bool,
    /// Session of PPPoE, and the protocol of PPP; Linux 6.0 and later.
    pub pppoe: bool,
    /// Session of L2TPv3; Linux 6.1 and later.
    pub l2tpv3: bool,
    /// Level and operation code of CFM; Linux 6.5 and later.
    pub cfm: bool,
    /// The security parameters index of IPsec; Linux 6.6 and later.
    pub spi: bool,
    /// Flags of the outer header; Linux 6.11 and later.
    pub tunnel_flags: bool,
    /// That the outer header says not to fragment; Linux 6.3 and later.
    pub no_fragment: bool,
    /// Helpers of connections; Linux 6.2 and later.
    pub connection_helpers: bool,
}
