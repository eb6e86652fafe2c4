//! `tnl_push`: outer headers that come as bytes, as `netdev_tnl_push_udp_header` and its like in
//! `lib/netdev-native-tnl.c` of OVS put them on.

use sluice_flow::action::{ActionKind, TunnelPush};
use sluice_flow::field::FRAGMENT_NO;
use sluice_flow::port::{PortNumber, TunnelProtocol};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Timestamp;

use super::fill::{PerPacket, fill, places};
use super::header::{Payload, UDP};
use super::{gtpu, segments};
use crate::packet::headers::{Erspan, Erspan2, Ethernet, Geneve, Gre, Gtpu, Ipv4, Vxlan};
use crate::packet::{eth_type, fragment, ip_proto};
use crate::ports::Sequence;

/// Bytes of outer headers at most (`TNL_PUSH_HEADER_SIZE` in `lib/odp-util.h`).
const LONGEST: usize = 512;

/// Outer headers to be put on.
pub(crate) struct Push {
    /// The tunnel port that counts and numbers the packets.
    pub(crate) tunnel_port: PortNumber,
    /// The port out of which a packet goes that no further action is for.
    pub(crate) out_port: PortNumber,
    kind: Kind,
    header: Box<[u8]>,
}

/// What outer headers say of the packet that they make.
#[derive(Clone, Copy)]
pub(crate) struct Outer {
    pub(crate) eth_type: u16,
    /// The protocol of IP, as `proto` has it.
    pub(crate) protocol: u8,
    /// Which fragment it is, as `frag` has it.
    pub(crate) fragment: u8,
}

/// What the headers are of.
#[derive(Clone, Copy)]
enum Kind {
    Tunnel(TunnelProtocol),
    SegmentRouting,
}

impl Push {
    pub(crate) fn new(push: &TunnelPush) -> Result<Self, Refusal> {
        let Some(kind) = kind_of(push.tunnel_type) else {
            return refuse("headers of this type cannot be filled in");
        };
        let TunnelPush { tunnel_port, out_port, header, .. } = push.clone();
        if header.len() > LONGEST {
            return refuse("the headers are longer than 512 bytes");
        }
        let is_whole = match kind {
            Kind::Tunnel(protocol) => is_whole(&header, protocol),
            Kind::SegmentRouting => segments::is_whole(&header),
        };
        if !is_whole {
            return refuse("the headers are not of their type, or not whole");
        }
        Ok(Self { tunnel_port, out_port, kind, header })
    }

    /// What the headers say; `None` where that depends on the packet.
    pub(crate) fn outer(&self) -> Option<Outer> {
        // Behind a routing header stands what is inside.
        let Kind::Tunnel(_) = self.kind else { return None };
        let (eth_type, _, protocol) = places(&self.header)?;
        let fragment = match Ipv4::new(self.header.get(Ethernet::<&[u8]>::LENGTH..)?) {
            Some(ip) if eth_type == eth_type::IPV4 => fragment(ip.is_fragment(), ip.is_later_fragment()),
            _ => FRAGMENT_NO,
        };
        Some(Outer { eth_type, protocol, fragment })
    }

    /// The packet with the headers on it; `None` if it would be longer than IP can carry, or if they cannot carry it.
    pub(crate) fn apply(&self, payload: Payload<'_>, sequence: &Sequence, now: Timestamp) -> Option<Vec<u8>> {
        let mut frame = [&self.header[..], payload.bytes].concat();
        match self.kind {
            Kind::Tunnel(protocol) => fill(&mut frame, protocol, &PerPacket { payload, sequence, now })?,
            Kind::SegmentRouting => segments::fill(&mut frame, payload)?,
        }
        Some(frame)
    }
}

/// `enum ovs_vport_type` in `include/linux/openvswitch.h` of OVS.
fn kind_of(tunnel_type: u32) -> Option<Kind> {
    Some(Kind::Tunnel(match tunnel_type {
        3 | 109 => TunnelProtocol::Gre,
        4 => TunnelProtocol::Vxlan,
        5 => TunnelProtocol::Geneve,
        107 | 108 => TunnelProtocol::Erspan,
        110 => TunnelProtocol::Gtpu,
        112 => return Some(Kind::SegmentRouting),
        _ => return None,
    }))
}

/// Whether the bytes are the headers of a protocol and nothing else.
fn is_whole(header: &[u8], protocol: TunnelProtocol) -> bool {
    let Some((_, at, ip_protocol)) = places(header) else {
        return false;
    };
    let transport = header.get(at..).unwrap_or_default();
    let tunnel = transport.get(UDP..).unwrap_or_default();
    let (wanted_protocol, wanted) = match protocol {
        TunnelProtocol::Vxlan => (ip_proto::UDP, Some(UDP + Vxlan::<&[u8]>::LENGTH)),
        TunnelProtocol::Geneve => (ip_proto::UDP, Geneve::new(tunnel).map(|geneve| UDP + geneve.header_length())),
        TunnelProtocol::Gtpu => (ip_proto::UDP, Gtpu::new(tunnel).map(|gtpu| UDP + gtpu::header_length(gtpu.flags()))),
        TunnelProtocol::Gre => (ip_proto::GRE, Gre::new(transport).map(|gre| gre.header_length())),
        TunnelProtocol::Erspan => (
            ip_proto::GRE,
            Gre::new(transport).and_then(|gre| match gre.protocol() {
                eth_type::ERSPAN => Some(gre.header_length() + Erspan::<&[u8]>::LENGTH),
                eth_type::ERSPAN2 => Some(gre.header_length() + Erspan2::<&[u8]>::LENGTH),
                _ => None,
            }),
        ),
    };
    ip_protocol == wanted_protocol && wanted == Some(transport.len())
}

fn refuse<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Action { action: ActionKind::TnlPush, reason: reason.into() })
}
