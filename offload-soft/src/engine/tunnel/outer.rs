//! The Ethernet, network and UDP headers outside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::action::{Encapsulation, tunnel_flag};
use sluice_flow::field::Field;
use sluice_flow::port::{Tunnel, TunnelProtocol};

use super::header::{UDP, is_checksum_right};
use crate::packet::checksum::{Sum, pseudo_header};
use crate::packet::headers::{Ethernet, IPV4_DONT_FRAGMENT, Ipv4, Ipv6, Udp};
use crate::packet::{Extensions, Mac, Network, Parsed, TunnelAddresses, eth_type, ip_proto};
use crate::ports::PortState;

const ETHERNET: usize = Ethernet::<&[u8]>::LENGTH;
const IPV4: usize = Ipv4::<&[u8]>::LENGTH;
const IPV6: usize = Ipv6::<&[u8]>::LENGTH;

/// The headers from Ethernet on; lengths and checksums are left to [`super::fill`].
pub(super) fn headers(
    encapsulation: &Encapsulation,
    tos: u8,
    tunnel: &Tunnel,
    underlay: &PortState,
) -> Option<Vec<u8>> {
    let destination = encapsulation.destination;
    let source = encapsulation.source.or_else(|| underlay.own(destination.is_ipv6()));
    let protocol = match tunnel.protocol {
        TunnelProtocol::Gre | TunnelProtocol::Erspan => ip_proto::GRE,
        TunnelProtocol::Vxlan | TunnelProtocol::Geneve | TunnelProtocol::Gtpu => ip_proto::UDP,
    };
    let network = if destination.is_ipv4() { IPV4 } else { IPV6 };
    let transport = if protocol == ip_proto::UDP { UDP } else { 0 };
    let mut frame = vec![0; ETHERNET + network + transport];
    let (ethernet_bytes, rest) = frame.split_at_mut(ETHERNET);
    let (network_bytes, transport_bytes) = rest.split_at_mut(network);

    let mut ethernet = Ethernet::new(ethernet_bytes)?;
    ethernet.set_source(underlay.mac());
    ethernet.set_destination(next_hop(destination, underlay));
    ethernet.set_ethernet_type(if destination.is_ipv4() { eth_type::IPV4 } else { eth_type::IPV6 });
    match destination {
        IpAddr::V4(destination) => {
            let source = match source {
                Some(IpAddr::V4(source)) => source,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            let mut ip = Ipv4::new(network_bytes)?;
            ip.set_version_and_length(0x45);
            ip.set_tos(tos);
            if encapsulation.flags & tunnel_flag::DONT_FRAGMENT != 0 {
                ip.set_flags_and_offset(IPV4_DONT_FRAGMENT);
            }
            ip.set_ttl(encapsulation.ttl);
            ip.set_protocol(protocol);
            ip.set_source(source.to_bits());
            ip.set_destination(destination.to_bits());
        }
        IpAddr::V6(destination) => {
            let source = match source {
                Some(IpAddr::V6(source)) => source,
                _ => Ipv6Addr::UNSPECIFIED,
            };
            let mut ip = Ipv6::new(network_bytes)?;
            ip.set_version_class_label(6 << 28);
            ip.set_traffic_class(tos);
            ip.set_next_header(protocol);
            ip.set_hop_limit(encapsulation.ttl);
            ip.set_source(source.to_bits());
            ip.set_destination(destination.to_bits());
        }
    }
    if protocol == ip_proto::UDP {
        let mut udp = Udp::new(transport_bytes)?;
        udp.set_destination(encapsulation.udp_port.or(tunnel.udp_port)?);
        if encapsulation.flags & tunnel_flag::CHECKSUM != 0 {
            udp.set_checksum(super::fill::CHECKSUM_WANTED);
        }
    }
    Some(frame)
}

/// Where the outer frame goes: group addresses as RFC 1112 and RFC 2464 have it, else who was heard under the address,
/// else everybody.
fn next_hop(destination: IpAddr, underlay: &PortState) -> Mac {
    match destination {
        IpAddr::V4(address) if address.is_multicast() => {
            let [_, b, c, d] = address.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(address) if address.is_multicast() => {
            let [.., a, b, c, d] = address.octets();
            [0x33, 0x33, a, b, c, d]
        }
        _ => underlay.neighbour(destination).unwrap_or([0xff; 6]),
    }
}

/// Who sent a frame: the address that its network header gives.
pub(crate) fn sender(parsed: &Parsed) -> Option<IpAddr> {
    let address = |field| parsed.key.get(field);
    match parsed.layout.network.filter(|_| parsed.layout.tags == 0)?.0 {
        Network::Ipv4 | Network::Arp => u32::try_from(address(Field::Ipv4Src)).ok().map(|ip| Ipv4Addr::from(ip).into()),
        Network::Ipv6 => Some(Ipv6Addr::from(address(Field::Ipv6Src)).into()),
    }
}

/// The Ethernet address that goes with [`sender`].
pub(crate) fn sender_mac(frame: &[u8], parsed: &Parsed) -> Option<Mac> {
    match parsed.layout.network?.0 {
        Network::Arp => Some(crate::packet::mac_from_bits(parsed.key.get(Field::ArpSha))),
        Network::Ipv4 | Network::Ipv6 => Ethernet::new(frame).map(|ethernet| ethernet.source()),
    }
}

/// The IP protocol of a frame, and where what is of this protocol begins. Behind IPv6 options, with which Linux limits how
/// often a packet may be encapsulated (RFC 2473), it is found; behind other extension headers it is not.
pub(super) fn transport(frame: &[u8], parsed: &Parsed) -> Option<(u8, usize)> {
    if let Some((_, at)) = parsed.layout.transport {
        return u8::try_from(parsed.key.get(Field::Ipv4Proto)).ok().map(|protocol| (protocol, at));
    }
    let (network, at) = parsed.layout.network?;
    match network {
        Network::Arp => None,
        Network::Ipv4 => {
            let ip = Ipv4::new(frame.get(at..)?)?;
            Some((ip.protocol(), at + ip.header_length()))
        }
        Network::Ipv6 => {
            let mut headers = Extensions::of(frame.get(at..)?)?;
            while matches!(headers.protocol, ip_proto::HOP_BY_HOP | ip_proto::DESTINATION) {
                headers.step()?;
            }
            Some((headers.protocol, at + headers.at))
        }
    }
}

/// What the network header outside says.
pub(super) struct Outer {
    pub(super) addresses: TunnelAddresses,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    pub(super) flags: u8,
}

impl Outer {
    /// The sum of the pseudo header.
    pub(super) fn pseudo(&self, protocol: u8, length: usize) -> Sum {
        match self.addresses {
            TunnelAddresses::V4 { source, destination } => {
                pseudo_header(&source.to_be_bytes(), &destination.to_be_bytes(), protocol, length)
            }
            TunnelAddresses::V6 { source, destination } => {
                pseudo_header(&source.to_be_bytes(), &destination.to_be_bytes(), protocol, length)
            }
        }
    }
}

/// Reads the network header; `None` if it is none or its checksum is wrong.
pub(super) fn read(frame: &[u8], parsed: &Parsed) -> Option<Outer> {
    let (network, at) = parsed.layout.network?;
    match network {
        Network::Ipv4 => {
            let ip = Ipv4::new(frame.get(at..)?)?;
            if !is_checksum_right(frame.get(at..at + ip.header_length())?) {
                return None;
            }
            let addresses = TunnelAddresses::V4 { source: ip.source(), destination: ip.destination() };
            let is_whole = ip.flags_and_offset() & IPV4_DONT_FRAGMENT != 0;
            let flags = if is_whole { tunnel_flag::DONT_FRAGMENT } else { 0 };
            Some(Outer { addresses, tos: ip.tos(), ttl: ip.ttl(), flags })
        }
        Network::Ipv6 => {
            let ip = Ipv6::new(frame.get(at..)?)?;
            let addresses = TunnelAddresses::V6 { source: ip.source(), destination: ip.destination() };
            Some(Outer { addresses, tos: ip.traffic_class(), ttl: ip.hop_limit(), flags: 0 })
        }
        Network::Arp => None,
    }
}
