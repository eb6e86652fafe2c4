//! VXLAN and Geneve: putting outer headers on and taking them off.
//!
//! The outer header is written as asked for: its ECN bits are not merged with the inner ones (RFC 6040), since hardware
//! writes a fixed header too. Its IPv4 identification is zero, as in OVS's userspace. It carries no VLAN tag.
//!
//! A frame is taken out of a tunnel when it comes in on the underlay without a tag, is no fragment, and goes to the UDP
//! port of the tunnel, whatever its addresses. Wrong checksums and headers that Linux would not take are dropped; a UDP
//! checksum of zero is taken for both families. Options of Geneve are skipped: the key has no place for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::field::{FRAGMENT_NO, Field};
use sluice_flow::port::{PortNumber, Tunnel, TunnelProtocol};

use crate::packet::checksum::{Sum, crc32c, pseudo_header};
use crate::packet::extract::TunnelAddresses;
use crate::packet::headers::{Ethernet, GENEVE_CONTROL, Geneve, IPV4_DONT_FRAGMENT, Ipv4, Ipv6, Udp, VXLAN_VNI, Vxlan};
use crate::packet::{Mac, Metadata, Network, Parsed, Transport, TunnelMetadata, eth_type, ip_proto, parse};
use crate::ports::PortState;
use crate::translate::{Encapsulation, MIN_FRAME, tunnel_flag};

const ETHERNET: usize = Ethernet::<&[u8]>::LENGTH;
const UDP: usize = Udp::<&[u8]>::LENGTH;
/// Both headers have the same length, without options.
const TUNNEL: usize = Vxlan::<&[u8]>::LENGTH;

/// The UDP source ports that carry the entropy of the inner flow.
const SOURCE_PORTS: std::ops::Range<u16> = 32768..61000;

/// The frame with an outer header on it; `None` if it would be longer than IP can carry.
pub(crate) fn encapsulate(
    inner: &[u8],
    encapsulation: &Encapsulation,
    tunnel: &Tunnel,
    underlay: &PortState,
) -> Option<Vec<u8>> {
    let source = encapsulation.source.or_else(|| underlay.own(encapsulation.destination.is_ipv6()));
    let ip = match encapsulation.destination {
        IpAddr::V4(_) => Ipv4::<&[u8]>::LENGTH,
        IpAddr::V6(_) => Ipv6::<&[u8]>::LENGTH,
    };
    let udp_length = u16::try_from(UDP + TUNNEL + inner.len()).ok()?;
    let mut frame = vec![0; ETHERNET + ip + UDP + TUNNEL];
    frame.extend_from_slice(inner);

    let (ethernet_bytes, rest) = frame.split_at_mut(ETHERNET);
    let (ip_bytes, udp_bytes) = rest.split_at_mut(ip);
    let mut ethernet = Ethernet::new(ethernet_bytes)?;
    ethernet.set_source(underlay.mac());
    ethernet.set_destination(next_hop(encapsulation.destination, underlay));
    ethernet.set_ethernet_type(if encapsulation.destination.is_ipv4() { eth_type::IPV4 } else { eth_type::IPV6 });

    write_tunnel(&mut udp_bytes[UDP..], encapsulation, tunnel.protocol)?;
    let mut udp = Udp::new(&mut *udp_bytes)?;
    udp.set_source(entropy(inner));
    udp.set_destination(encapsulation.udp_port.unwrap_or(tunnel.udp_port));
    udp.set_length(udp_length);
    let pseudo = match encapsulation.destination {
        IpAddr::V4(destination) => {
            let source = match source {
                Some(IpAddr::V4(source)) => source,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            write_ipv4(ip_bytes, encapsulation, source, destination, udp_length)?;
            pseudo_header(&source.octets(), &destination.octets(), ip_proto::UDP, udp_length.into())
        }
        IpAddr::V6(destination) => {
            let source = match source {
                Some(IpAddr::V6(source)) => source,
                _ => Ipv6Addr::UNSPECIFIED,
            };
            write_ipv6(ip_bytes, encapsulation, source, destination, udp_length)?;
            pseudo_header(&source.octets(), &destination.octets(), ip_proto::UDP, udp_length.into())
        }
    };
    if encapsulation.flags & tunnel_flag::CHECKSUM != 0 {
        let checksum = match pseudo.bytes(udp_bytes).finish() {
            0 => 0xffff,
            checksum => checksum,
        };
        Udp::new(udp_bytes)?.set_checksum(checksum);
    }
    Some(frame)
}

fn write_ipv4(
    bytes: &mut [u8],
    encapsulation: &Encapsulation,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    udp_length: u16,
) -> Option<()> {
    let mut ip = Ipv4::new(&mut *bytes)?;
    ip.set_version_and_length(0x45);
    ip.set_tos(encapsulation.tos);
    ip.set_total_length(udp_length.checked_add(20)?);
    if encapsulation.flags & tunnel_flag::DONT_FRAGMENT != 0 {
        ip.set_flags_and_offset(IPV4_DONT_FRAGMENT);
    }
    ip.set_ttl(encapsulation.ttl);
    ip.set_protocol(ip_proto::UDP);
    ip.set_source(source.to_bits());
    ip.set_destination(destination.to_bits());
    let checksum = Sum::default().bytes(bytes).finish();
    Ipv4::new(bytes)?.set_checksum(checksum);
    Some(())
}

fn write_ipv6(
    bytes: &mut [u8],
    encapsulation: &Encapsulation,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    udp_length: u16,
) -> Option<()> {
    let mut ip = Ipv6::new(bytes)?;
    ip.set_version_class_label(6 << 28);
    ip.set_traffic_class(encapsulation.tos);
    ip.set_payload_length(udp_length);
    ip.set_next_header(ip_proto::UDP);
    ip.set_hop_limit(encapsulation.ttl);
    ip.set_source(source.to_bits());
    ip.set_destination(destination.to_bits());
    Some(())
}

fn write_tunnel(bytes: &mut [u8], encapsulation: &Encapsulation, protocol: TunnelProtocol) -> Option<()> {
    match protocol {
        TunnelProtocol::Vxlan => {
            let mut vxlan = Vxlan::new(bytes)?;
            vxlan.set_flags(VXLAN_VNI);
            vxlan.set_vni_and_reserved(encapsulation.id << 8);
        }
        TunnelProtocol::Geneve => {
            let mut geneve = Geneve::new(bytes)?;
            let is_control = encapsulation.flags & tunnel_flag::CONTROL != 0;
            geneve.set_flags(if is_control { GENEVE_CONTROL } else { 0 });
            geneve.set_protocol(eth_type::TEB);
            geneve.set_vni_and_reserved(encapsulation.id << 8);
        }
    }
    Some(())
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

/// A source port that is the same for all packets of the inner flow, fragments included.
fn entropy(inner: &[u8]) -> u16 {
    let key = parse(inner, PortNumber(0), &Metadata::default()).key;
    let flow = [
        Field::EthSrc,
        Field::EthDst,
        Field::EthType,
        Field::Ipv4Src,
        Field::Ipv4Dst,
        Field::Ipv6Src,
        Field::Ipv6Dst,
        Field::Ipv4Proto,
    ];
    let is_whole = key.get(Field::Ipv4Frag) == u128::from(FRAGMENT_NO);
    let ports = [Field::TcpSrc, Field::TcpDst].into_iter().filter(|_| is_whole);
    let octets: Vec<u8> = flow.into_iter().chain(ports).flat_map(|field| key.get(field).to_be_bytes()).collect();
    let hash = u64::from(crc32c(&[&octets]));
    let ports = u64::from(SOURCE_PORTS.end - SOURCE_PORTS.start);
    u16::try_from((hash * ports) >> 32).map_or(SOURCE_PORTS.start, |offset| SOURCE_PORTS.start + offset)
}

/// What a frame on an underlay holds.
pub(crate) enum Decapsulated {
    /// Nothing of a tunnel: it is looked up as it is.
    Plain,
    /// A tunnel packet that Linux would not take.
    Malformed,
    /// An inner frame.
    Inner {
        /// Where in the frame it is.
        range: std::ops::Range<usize>,
        /// What the outer header said.
        metadata: TunnelMetadata,
    },
}

/// The UDP port that an unfragmented, untagged frame goes to, if it is UDP.
pub(crate) fn udp_port(parsed: &Parsed) -> Option<u16> {
    let is_udp = matches!(parsed.layout.transport, Some((Transport::Udp, _)));
    let is_whole = parsed.key.get(Field::Ipv4Frag) == u128::from(FRAGMENT_NO);
    let is_here = parsed.layout.tags == 0 && !parsed.layout.source_route;
    (is_udp && is_whole && is_here).then(|| u16::try_from(parsed.key.get(Field::UdpDst)).ok()).flatten()
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

/// Takes the outer header off a frame that goes to the UDP port of a tunnel.
pub(crate) fn decapsulate(frame: &[u8], parsed: &Parsed, protocol: TunnelProtocol) -> Decapsulated {
    let Some((Transport::Udp, udp_at)) = parsed.layout.transport else {
        return Decapsulated::Plain;
    };
    let Some(outer) = outer_header(frame, parsed, udp_at) else {
        return Decapsulated::Malformed;
    };
    let tunnel_at = udp_at + UDP;
    let Some(tunnel) = frame.get(tunnel_at..outer.end).and_then(|bytes| read_tunnel(bytes, protocol)) else {
        return Decapsulated::Malformed;
    };
    let range = tunnel_at + tunnel.header_length..outer.end;
    if range.len() < MIN_FRAME {
        return Decapsulated::Malformed;
    }
    let metadata = TunnelMetadata {
        id: tunnel.id.into(),
        addresses: outer.addresses,
        tos: outer.tos,
        ttl: outer.ttl,
        source_port: outer.source_port,
        destination_port: outer.destination_port,
        flags: outer.flags | tunnel.flags,
    };
    Decapsulated::Inner { range, metadata }
}

/// The network and UDP header outside.
struct Outer {
    end: usize,
    addresses: TunnelAddresses,
    tos: u8,
    ttl: u8,
    source_port: u16,
    destination_port: u16,
    flags: u8,
}

fn outer_header(frame: &[u8], parsed: &Parsed, udp_at: usize) -> Option<Outer> {
    let udp = Udp::new(frame.get(udp_at..)?)?;
    let length = usize::from(udp.length());
    let end = udp_at + length;
    if length < UDP || end > parsed.layout.end {
        return None;
    }
    let (network, at) = parsed.layout.network?;
    let (addresses, tos, ttl, is_whole, pseudo) = match network {
        Network::Ipv4 => {
            let ip = Ipv4::new(frame.get(at..)?)?;
            if Sum::default().bytes(frame.get(at..at + ip.header_length())?).finish() != 0 {
                return None;
            }
            let (source, destination) = (ip.source(), ip.destination());
            let is_whole = ip.flags_and_offset() & IPV4_DONT_FRAGMENT != 0;
            let pseudo = pseudo_header(&source.to_be_bytes(), &destination.to_be_bytes(), ip_proto::UDP, length);
            (TunnelAddresses::V4 { source, destination }, ip.tos(), ip.ttl(), is_whole, pseudo)
        }
        Network::Ipv6 => {
            let ip = Ipv6::new(frame.get(at..)?)?;
            let (source, destination) = (ip.source(), ip.destination());
            let pseudo = pseudo_header(&source.to_be_bytes(), &destination.to_be_bytes(), ip_proto::UDP, length);
            (TunnelAddresses::V6 { source, destination }, ip.traffic_class(), ip.hop_limit(), false, pseudo)
        }
        Network::Arp => return None,
    };
    if udp.checksum() != 0 && pseudo.bytes(&frame[udp_at..end]).finish() != 0 {
        return None;
    }
    let mut flags = tunnel_flag::KEY;
    if is_whole {
        flags |= tunnel_flag::DONT_FRAGMENT;
    }
    if udp.checksum() != 0 {
        flags |= tunnel_flag::CHECKSUM;
    }
    let (source_port, destination_port) = (udp.source(), udp.destination());
    Some(Outer { end, addresses, tos, ttl, source_port, destination_port, flags })
}

/// The tunnel header itself.
struct TunnelHeader {
    id: u32,
    header_length: usize,
    flags: u8,
}

fn read_tunnel(bytes: &[u8], protocol: TunnelProtocol) -> Option<TunnelHeader> {
    match protocol {
        TunnelProtocol::Vxlan => {
            // Linux drops what has bits set that it does not know (`vxlan_rcv` in drivers/net/vxlan/vxlan_core.c).
            let vxlan = Vxlan::new(bytes)?;
            let id = vxlan.vni_and_reserved();
            let is_known = vxlan.flags() == VXLAN_VNI && id & 0xff == 0;
            is_known.then_some(TunnelHeader { id: id >> 8, header_length: TUNNEL, flags: 0 })
        }
        TunnelProtocol::Geneve => {
            let geneve = Geneve::new(bytes)?;
            let is_known = geneve.version() == 0 && geneve.protocol() == eth_type::TEB;
            let flags = if geneve.flags() & GENEVE_CONTROL != 0 { tunnel_flag::CONTROL } else { 0 };
            is_known.then(|| TunnelHeader {
                id: geneve.vni_and_reserved() >> 8,
                header_length: geneve.header_length(),
                flags,
            })
        }
    }
}
