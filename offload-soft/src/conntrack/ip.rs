//! The IP packet in a frame.

use crate::engine::Packet;
use crate::packet::headers::{Ipv4, Ipv6};
use crate::packet::{Network, parse};

use super::fragment::fragment_header;
use super::tuple::{Family, Tuple, locate};

/// Where in a frame the IP header is.
#[derive(Clone, Copy)]
pub(super) struct Ip {
    pub(super) family: Family,
    pub(super) at: usize,
}

impl Ip {
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        Self::at(packet.layout.network?)
    }

    /// The same, or what was one until labels were pushed, of which Linux still knows where it is.
    pub(super) fn under_labels(packet: &Packet) -> Option<Self> {
        Self::at(packet.layout.network.or(packet.layout.under_labels)?)
    }

    fn at((network, at): (Network, usize)) -> Option<Self> {
        match network {
            Network::Ipv4 => Some(Self { family: Family::V4, at }),
            Network::Ipv6 => Some(Self { family: Family::V6, at }),
            Network::Arp => None,
        }
    }

    pub(super) fn bytes(self, packet: &Packet) -> &[u8] {
        packet.bytes.get(self.at..).unwrap_or_default()
    }

    pub(super) fn tuple(self, packet: &Packet) -> Option<Tuple> {
        let bytes = self.bytes(packet);
        Tuple::read(bytes, &locate(bytes, self.family)?)
    }

    /// Takes padding off (`ovs_skb_network_trim`).
    pub(super) fn trim(self, packet: &mut Packet) {
        let bytes = self.bytes(packet);
        let length = match self.family {
            Family::V4 => Ipv4::new(bytes).map(|ip| usize::from(ip.total_length())),
            Family::V6 => Ipv6::new(bytes).map(|ip| Ipv6::<&[u8]>::LENGTH + usize::from(ip.payload_length())),
        };
        if let Some(end) = length.map(|length| self.at + length).filter(|end| *end < packet.bytes.len()) {
            packet.bytes.truncate(end);
            // Headers are gone, too, if the length was a lie.
            packet.layout = parse(&packet.bytes, packet.in_port, &packet.metadata).layout;
        }
    }

    /// Whether it is a fragment, and has not been taken for a whole packet before.
    pub(super) fn is_fragment(self, packet: &Packet) -> bool {
        if packet.metadata.is_whole {
            return false;
        }
        let bytes = self.bytes(packet);
        match self.family {
            Family::V4 => Ipv4::new(bytes).is_some_and(|ip| ip.is_fragment()),
            Family::V6 => fragment_header(bytes).is_some(),
        }
    }
}
