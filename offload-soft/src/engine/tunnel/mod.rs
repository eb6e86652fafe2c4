//! Tunnels: putting outer headers on and taking them off.
//!
//! The outer header of `set(tunnel(…))` is written as asked for, except that congestion marks go from one header to the
//! other ([`ecn`]). Its IPv4 identification is zero, as in OVS's userspace. It carries no VLAN tag.
//!
//! A frame is taken out of a tunnel when it comes in on the underlay without a tag, is no fragment, and goes to the UDP
//! port of the tunnel or is of its IP protocol, whatever its addresses. Wrong checksums and headers that Linux would not
//! take are dropped; a UDP checksum of zero is taken for both families.
//!
//! Most tunnels carry Ethernet frames. GRE and GTP-U carry packets without an Ethernet header too, which then are of type
//! (1, their Ethernet type).

pub(crate) mod ecn;
mod erspan;
mod fill;
mod geneve;
mod gre;
mod gtpu;
mod header;
mod outer;
mod push;
mod segments;
mod vxlan;

use std::ops::Range;

use sluice_flow::action::{Encapsulation, tunnel_flag};
use sluice_flow::field::{FRAGMENT_NO, Field};
use sluice_flow::port::{PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::time::Timestamp;

use crate::packet::checksum::crc32c;
use crate::packet::headers::{Gre, Udp};
use crate::packet::{MIN_FRAME, Metadata, Parsed, Transport, TunnelMetadata, TunnelOptions, eth_type, ip_proto, parse};
use crate::ports::{Entrance, PortState, Sequence};
use fill::PerPacket;
use header::UDP;

pub(crate) use header::Payload;
pub(crate) use outer::{sender, sender_mac};
pub(crate) use push::Push;

/// The UDP source ports that carry the entropy of the inner flow.
const SOURCE_PORTS: Range<u16> = 32768..61000;

/// The frame with an outer header on it; `None` if the tunnel cannot carry it, or if it would be longer than IP can
/// carry.
pub(crate) fn encapsulate(
    payload: Payload<'_>,
    encapsulation: &Encapsulation,
    sequence: &Sequence,
    tunnel: &Tunnel,
    underlay: &PortState,
    now: Timestamp,
) -> Option<Vec<u8>> {
    let tos = ecn::encapsulate(encapsulation.tos, payload);
    let mut frame = outer::headers(encapsulation, tos, tunnel, underlay)?;
    match tunnel.protocol {
        TunnelProtocol::Vxlan => vxlan::write(&mut frame, payload, encapsulation),
        TunnelProtocol::Geneve => geneve::write(&mut frame, payload, encapsulation),
        TunnelProtocol::Gre => gre::write(&mut frame, payload, encapsulation),
        TunnelProtocol::Erspan => erspan::write(&mut frame, payload, encapsulation),
        TunnelProtocol::Gtpu => gtpu::write(&mut frame, payload, encapsulation),
    }?;
    frame.extend_from_slice(payload.bytes);
    fill::fill(&mut frame, tunnel.protocol, &PerPacket { payload, sequence, now })?;
    Some(frame)
}

impl Payload<'_> {
    /// The Ethernet type that says what it is in a tunnel that carries more than Ethernet frames.
    fn protocol(&self) -> u16 {
        self.layer3.unwrap_or(eth_type::TEB)
    }

    /// A source port that is the same for all packets of the flow, fragments included.
    fn entropy(&self) -> u16 {
        let metadata = Metadata { layer3: self.layer3, ..Metadata::default() };
        let key = parse(self.bytes, PortNumber(0), &metadata).key;
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
        let values: Vec<u8> = flow.into_iter().chain(ports).flat_map(|field| key.get(field).to_be_bytes()).collect();
        let hash = u64::from(crc32c(&[&values]));
        let ports = u64::from(SOURCE_PORTS.end - SOURCE_PORTS.start);
        u16::try_from((hash * ports) >> 32).map_or(SOURCE_PORTS.start, |offset| SOURCE_PORTS.start + offset)
    }
}

/// What a frame on an underlay holds.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack for one packet, and must not allocate for each")]
pub(crate) enum Decapsulated {
    /// Nothing of a tunnel: it is looked up as it is.
    Plain,
    /// A tunnel packet that Linux would not take.
    Malformed,
    /// A packet that was in the tunnel.
    Inner {
        /// Where in the frame it is.
        range: Range<usize>,
        /// Its Ethernet type, if it has no Ethernet header.
        layer3: Option<u16>,
        /// What the outer header said.
        metadata: TunnelMetadata,
    },
}

/// The way into a tunnel that an unfragmented, untagged frame takes, if it is a tunnel packet at all.
pub(crate) fn entrance(frame: &[u8], parsed: &Parsed) -> Option<Entrance> {
    let is_whole = parsed.key.get(Field::Ipv4Frag) == u128::from(FRAGMENT_NO);
    let is_here = parsed.layout.tags == 0 && !parsed.layout.source_route;
    if !is_whole || !is_here {
        return None;
    }
    if let Some((Transport::Udp, _)) = parsed.layout.transport {
        return u16::try_from(parsed.key.get(Field::UdpDst)).ok().map(Entrance::Udp);
    }
    let (ip_proto::GRE, at) = outer::transport(frame, parsed)? else {
        return None;
    };
    let gre = Gre::new(frame.get(at..parsed.layout.end)?).filter(gre::is_version_0)?;
    Some(if matches!(gre.protocol(), eth_type::ERSPAN | eth_type::ERSPAN2) { Entrance::Erspan } else { Entrance::Gre })
}

/// Takes the outer header off a frame that comes out of a tunnel.
pub(crate) fn decapsulate(frame: &[u8], parsed: &Parsed, protocol: TunnelProtocol) -> Decapsulated {
    let Some((ip_protocol, at)) = outer::transport(frame, parsed) else {
        return Decapsulated::Plain;
    };
    let is_over_udp = !matches!(protocol, TunnelProtocol::Gre | TunnelProtocol::Erspan);
    if ip_protocol != if is_over_udp { ip_proto::UDP } else { ip_proto::GRE } {
        return Decapsulated::Plain;
    }
    take_off(frame, parsed, protocol, at, is_over_udp).unwrap_or(Decapsulated::Malformed)
}

fn take_off(
    frame: &[u8],
    parsed: &Parsed,
    protocol: TunnelProtocol,
    at: usize,
    is_over_udp: bool,
) -> Option<Decapsulated> {
    let outer = outer::read(frame, parsed)?;
    let (start, end, ports, checksum) = if is_over_udp {
        let udp = Udp::new(frame.get(at..)?)?;
        let end = at + usize::from(udp.length());
        if usize::from(udp.length()) < UDP || end > parsed.layout.end {
            return None;
        }
        if udp.checksum() != 0 && outer.pseudo(ip_proto::UDP, end - at).bytes(&frame[at..end]).finish() != 0 {
            return None;
        }
        let flag = if udp.checksum() == 0 { 0 } else { tunnel_flag::CHECKSUM };
        (at + UDP, end, (udp.source(), udp.destination()), flag)
    } else {
        (at, parsed.layout.end, (0, 0), 0)
    };
    let bytes = frame.get(start..end)?;
    let tunnel = match protocol {
        TunnelProtocol::Vxlan => vxlan::read(bytes),
        TunnelProtocol::Geneve => geneve::read(bytes),
        TunnelProtocol::Gre => gre::read(bytes),
        TunnelProtocol::Erspan => erspan::read(bytes),
        TunnelProtocol::Gtpu => gtpu::read(bytes),
    }?;
    let is_message = matches!(tunnel.options, TunnelOptions::Gtpu { message_type, .. } if message_type != gtpu::G_PDU);
    let range = if is_message {
        // As in OVS, the whole packet goes on to who handles such messages (`netdev_gtpu_pop_header`).
        0..frame.len()
    } else {
        start + tunnel.payload.start..start + tunnel.payload.end
    };
    if tunnel.layer3.is_none() && range.len() < MIN_FRAME {
        return None;
    }
    let metadata = TunnelMetadata {
        id: tunnel.id,
        addresses: outer.addresses,
        tos: outer.tos,
        ttl: outer.ttl,
        source_port: ports.0,
        destination_port: ports.1,
        flags: outer.flags | checksum | tunnel.flags,
        options: tunnel.options,
    };
    Some(Decapsulated::Inner { range, layer3: tunnel.layer3, metadata })
}
