//! Packets taken apart as the device does: outer and inner headers.
//!
//! What the device's parser does not see, this one does not see either: a third VLAN tag, what follows MPLS straight on Ethernet,
//! transport headers of later fragments, a second tunnel inside the first. A header that is cut short is not there.
//! Nothing here is shared with the parsers of the product under test.
//!
//! No public text says all that the device's parser does. These readings are ours: the first fragment shows its transport header;
//! the IPv6 extension headers hop-by-hop, routing, fragment and destination options are stepped over, and no others; a fragment
//! carries no tunnel.

pub(crate) mod checks;
pub mod edit;
pub(crate) mod layer;
mod tunnel;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

pub use layer::{Ethernet, Fragment, Ip, Layer, Transport, Vlan};
pub use tunnel::{Payload, Tunnel, TunnelKind};

/// The headers of one frame. Every `at` in them is an offset into the frame in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers {
    /// From the start of the frame up to the first transport header or tunnel.
    pub outer: Layer,
    /// The tunnel's own header.
    pub tunnel: Option<Tunnel>,
    /// What the tunnel carries.
    pub inner: Option<Layer>,
}

/// UDP ports by which tunnels are known, and what is looked for in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelPorts {
    /// VXLAN: 4789, and those that the driver added.
    pub vxlan: Vec<u16>,
    /// The option of Geneve whose data is looked at: class and type.
    pub geneve_option: Option<(u16, u8)>,
}

/// The VXLAN port that the device knows from the start.
pub const VXLAN_PORT: u16 = 4789;

impl Default for TunnelPorts {
    fn default() -> Self {
        Self { vxlan: vec![VXLAN_PORT], geneve_option: None }
    }
}

impl Headers {
    /// Takes a frame without FCS apart.
    pub fn parse(frame: &[u8], ports: &TunnelPorts) -> Self {
        let outer = Layer::ethernet(frame, 0);
        let tunnel = Tunnel::after(frame, &outer, ports);
        let inner = tunnel.as_ref().and_then(|tunnel| tunnel.inner(frame));
        Self { outer, tunnel, inner }
    }
}

/// Big-endian reading that ends where the frame does.
pub(crate) trait BytesAt {
    fn bytes_at<const N: usize>(&self, at: usize) -> Option<[u8; N]>;

    fn u8_at(&self, at: usize) -> Option<u8> {
        self.bytes_at(at).map(|[value]| value)
    }

    fn u16_at(&self, at: usize) -> Option<u16> {
        self.bytes_at(at).map(u16::from_be_bytes)
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        self.bytes_at(at).map(u32::from_be_bytes)
    }
}

impl BytesAt for [u8] {
    fn bytes_at<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.get(at..)?.first_chunk().copied()
    }
}
