//! Tunnel headers that packets get, as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::action::{
    ActionKind, Encapsulation, EncapsulationOptions, GRE_KEY, GeneveOption, OuterHeaders, OuterNetwork, OuterTunnel,
    OuterUdp, tunnel_flag,
};
use sluice_flow::field::Field;
use sluice_flow::port::Tunnel;
use sluice_flow::refusal::Refusal;

use super::tunnel::Protocol;
use super::vports::Vports;

/// `IP_DF`
const DONT_FRAGMENT: u16 = 0x4000;
/// `VXLAN_HF_VNI` and `VXLAN_HF_GBP`
const VXLAN_VNI: u32 = 0x0800_0000;
const VXLAN_GBP: u32 = 0x8000_0000;
/// Transparent Ethernet bridging.
const ETH_P_TEB: u16 = 0x6558;
/// Marks of congestion (RFC 3168).
const MARK: u8 = 0x03;
const CAPABLE: u8 = 0x02;

/// Headers that are put in front of packets, and where these go then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wrapping {
    /// From Ethernet on. Ethernet addresses and, if the flow does not say it, the source are zero: they are those of the next hop.
    /// Lengths, the checksum of IPv4 and the source port of UDP are the device's to fill in.
    pub headers: Box<[u8]>,
    /// Where they go.
    pub hop: Hop,
}

/// The other end of a tunnel, by all that decides about the way to it, and about who may send packets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// The other end.
    pub destination: IpAddr,
    /// This end; `None` if it follows from the way.
    pub source: Option<IpAddr>,
    /// The vport by which packets leave.
    pub underlay: u16,
    /// The encapsulation.
    pub protocol: Protocol,
    /// The UDP port that packets go to; `None` if it is not in UDP.
    pub udp_port: Option<u16>,
}

impl Wrapping {
    /// Returns the headers that `set(tunnel(…))` asks for at a tunnel port, for packets of which the mark of congestion is known. Fails
    /// for what the device does not put on.
    pub(super) fn new(
        asked: &Encapsulation,
        tunnel: &Tunnel,
        mark: Option<u8>,
        vports: &dyn Vports,
    ) -> Result<Self, Refusal> {
        let protocol = Protocol::of(tunnel).map_err(|reason| refuse(&reason))?;
        asked.fits(tunnel.protocol)?;
        if asked.flags & tunnel_flag::CHECKSUM != 0 && !may_lack_checksum(asked, protocol) {
            let reason =
                "the device does not compute checksums of outer headers, which are left out only in UDP over IPv4";
            return Err(Refusal::Field { field: Field::TunnelFlags, reason: reason.into() });
        }
        let network = network(asked, protocol, tos(asked.tos, mark)?);
        let udp_port = protocol.udp_port().and(asked.udp_port.or(tunnel.udp_port));
        let tunnel_header = header(asked, protocol, udp_port.unwrap_or_default())?;
        let headers = OuterHeaders { destination: 0, source: 0, network, tunnel: tunnel_header }.bytes();
        let underlay = vports.vport(tunnel.underlay)?;
        let hop = Hop { destination: asked.destination, source: asked.source, underlay, protocol, udp_port };
        Ok(Self { headers: headers.into(), hop })
    }
}

/// Whether every receiver takes packets without the checksum that was asked for: in UDP over IPv4 a sender need not make one (RFC 768). The
/// kernel's driver of these devices makes none either (`mlx5e_gen_ip_tunnel_header_geneve`), and OVN asks for it by default.
fn may_lack_checksum(asked: &Encapsulation, protocol: Protocol) -> bool {
    protocol != Protocol::Gre && asked.destination.is_ipv4()
}

/// Returns the mark of congestion after bits of the type of service were set.
pub(super) fn mark_after(mark: Option<u8>, tos: u128, mask: u128) -> Option<u8> {
    let low = |bits: u128| u8::try_from(bits & u128::from(MARK)).unwrap_or_default();
    match (mark, low(mask)) {
        (_, MARK) => Some(low(tos)),
        (Some(mark), set) => Some(mark & !set | low(tos) & set),
        (None, _) => None,
    }
}

/// The type of service of the outer header, which has the mark of congestion of the packet inside, except that congestion is not told
/// (`INET_ECN_encapsulate` in the kernel). The device puts the same headers on every packet, so that the match must say the mark; OVS has
/// it match that (`tnl_wc_init`).
fn tos(asked: u8, mark: Option<u8>) -> Result<u8, Refusal> {
    let mark = match mark {
        Some(MARK) => CAPABLE,
        Some(mark) => mark,
        None => {
            return Err(refuse("the match does not say the packet's mark of congestion, which the outer header gets"));
        }
    };
    Ok(asked & !MARK | mark)
}

fn network(asked: &Encapsulation, protocol: Protocol, tos: u8) -> OuterNetwork {
    let carried = protocol.number();
    match asked.destination {
        IpAddr::V4(destination) => OuterNetwork::Ipv4 {
            source: match asked.source {
                Some(IpAddr::V4(source)) => source,
                _ => Ipv4Addr::UNSPECIFIED,
            },
            destination,
            protocol: carried,
            tos,
            ttl: asked.ttl,
            fragment: if asked.flags & tunnel_flag::DONT_FRAGMENT == 0 { 0 } else { DONT_FRAGMENT },
        },
        IpAddr::V6(destination) => OuterNetwork::Ipv6 {
            source: match asked.source {
                Some(IpAddr::V6(source)) => source,
                _ => Ipv6Addr::UNSPECIFIED,
            },
            destination,
            label: 0,
            next_header: carried,
            traffic_class: tos,
            hop_limit: asked.ttl,
        },
    }
}

fn header(asked: &Encapsulation, protocol: Protocol, udp_port: u16) -> Result<OuterTunnel, Refusal> {
    let udp = OuterUdp { source: 0, destination: udp_port, checksum: 0 };
    Ok(match protocol {
        Protocol::Vxlan => {
            let flags = match asked.options {
                // A policy of nothing is not sent (`vxlan_build_gbp_hdr` in the kernel).
                EncapsulationOptions::VxlanGbp { id, flags } if id != 0 || flags != 0 => {
                    VXLAN_VNI | VXLAN_GBP | u32::from(flags) << 16 | u32::from(id)
                }
                _ => VXLAN_VNI,
            };
            OuterTunnel::Vxlan { udp, flags, vni: asked.id }
        }
        Protocol::Geneve => {
            let (options, critical) = match &asked.options {
                EncapsulationOptions::Geneve { bytes, is_critical } => (options(bytes)?, *is_critical),
                _ => (Vec::new(), false),
            };
            let oam = asked.flags & tunnel_flag::CONTROL != 0;
            OuterTunnel::Geneve { udp, oam, critical, vni: asked.id, options }
        }
        Protocol::Gre => {
            let key = (asked.flags & tunnel_flag::KEY != 0).then_some(asked.id);
            let flags = if key.is_some() { GRE_KEY } else { 0 };
            OuterTunnel::Gre { flags, protocol: ETH_P_TEB, checksum: None, key, sequence: None }
        }
    })
}

/// Takes whole options apart.
fn options(mut bytes: &[u8]) -> Result<Vec<GeneveOption>, Refusal> {
    let mut options = Vec::new();
    while let Some(([high, low, kind, words], rest)) = bytes.split_first_chunk() {
        let Some((data, behind)) = rest.split_at_checked(usize::from(words & 0x1f) * 4) else {
            return Err(refuse("the last option of Geneve is cut off"));
        };
        options.push(GeneveOption { class: u16::from_be_bytes([*high, *low]), kind: *kind, data: data.to_vec() });
        bytes = behind;
    }
    Ok(options)
}

fn refuse(reason: &str) -> Refusal {
    Refusal::Action { action: ActionKind::SetTunnel, reason: reason.to_owned().into() }
}
