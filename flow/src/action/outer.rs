//! The outer headers that `tnl_push` puts on: as a plain value and as bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// Transparent Ethernet bridging: what Geneve carries here.
const ETH_P_TEB: u16 = 0x6558;
/// The protocol types of GRE for ERSPAN types II and III, which OVS calls versions 1 and 2.
const ETH_P_ERSPAN: u16 = 0x88be;
const ETH_P_ERSPAN2: u16 = 0x22eb;
/// Kinds of tunnels (`enum ovs_vport_type` in `include/uapi/linux/openvswitch.h`, from ERSPAN on OVS's own).
mod tunnel_type {
    pub(super) const GRE: u32 = 3;
    pub(super) const VXLAN: u32 = 4;
    pub(super) const GENEVE: u32 = 5;
    pub(super) const ERSPAN: u32 = 107;
    pub(super) const ERSPAN_OVER_IPV6: u32 = 108;
    pub(super) const GRE_OVER_IPV6: u32 = 109;
    pub(super) const GTPU: u32 = 110;
    pub(super) const SRV6: u32 = 112;
}

/// The bit of GRE that says that there is a checksum.
pub const GRE_CHECKSUM: u16 = 0x8000;
/// The bit of GRE that says that there is a key.
pub const GRE_KEY: u16 = 0x2000;
/// The bit of GRE that says that there is a sequence number.
pub const GRE_SEQUENCE: u16 = 0x1000;
/// The routing type of a segment routing header (RFC 8754).
const SEGMENT_ROUTING: u8 = 4;

/// Outer headers from Ethernet on, as far as the text of `tnl_push` tells of them; all that it does not tell is zero, but
/// for the checksum of IPv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OuterHeaders {
    /// Ethernet destination, the lowest 48 bits.
    pub destination: u64,
    /// Ethernet source, the lowest 48 bits.
    pub source: u64,
    /// The network header.
    pub network: OuterNetwork,
    /// The rest.
    pub tunnel: OuterTunnel,
}

/// An outer network header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OuterNetwork {
    /// IPv4 without options.
    Ipv4 {
        /// Source.
        source: Ipv4Addr,
        /// Destination.
        destination: Ipv4Addr,
        /// Protocol.
        protocol: u8,
        /// Type of service.
        tos: u8,
        /// Time to live.
        ttl: u8,
        /// Fragment offset and flags, as on the wire: 0x4000 is "do not fragment".
        fragment: u16,
    },
    /// IPv6.
    Ipv6 {
        /// Source.
        source: Ipv6Addr,
        /// Destination.
        destination: Ipv6Addr,
        /// Flow label, 20 bits.
        label: u32,
        /// Next header.
        next_header: u8,
        /// Traffic class.
        traffic_class: u8,
        /// Hop limit.
        hop_limit: u8,
    },
}

/// An outer UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterUdp {
    /// Source port; 0 is to be filled in.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Checksum; 0 is none, 0xffff is to be filled in.
    pub checksum: u16,
}

/// What is behind the network header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OuterTunnel {
    /// RFC 7348 and its extensions.
    Vxlan {
        /// The UDP header.
        udp: OuterUdp,
        /// The first 32 bits.
        flags: u32,
        /// The network identifier, 24 bits.
        vni: u32,
    },
    /// RFC 8926.
    Geneve {
        /// The UDP header.
        udp: OuterUdp,
        /// A control packet.
        oam: bool,
        /// Some option must be understood.
        critical: bool,
        /// The network identifier, 24 bits.
        vni: u32,
        /// The options, at most 252 bytes with their headers.
        options: Vec<GeneveOption>,
    },
    /// 3GPP TS 29.281.
    Gtpu {
        /// The UDP header.
        udp: OuterUdp,
        /// The first byte.
        flags: u8,
        /// The message type.
        message_type: u8,
        /// The tunnel endpoint.
        endpoint: u32,
    },
    /// RFC 2784 and 2890.
    Gre {
        /// The first 16 bits, among them [`GRE_CHECKSUM`], [`GRE_KEY`] and [`GRE_SEQUENCE`], which go with the fields.
        flags: u16,
        /// The Ethernet type of what is inside.
        protocol: u16,
        /// The checksum, if there is to be one.
        checksum: Option<u16>,
        /// The key.
        key: Option<u32>,
        /// The sequence number.
        sequence: Option<u32>,
    },
    /// ERSPAN type II.
    Erspan1 {
        /// The session, 10 bits.
        session: u16,
        /// The index of the mirrored port.
        index: u32,
    },
    /// ERSPAN type III.
    Erspan2 {
        /// The session, 10 bits.
        session: u16,
        /// Whether egress is mirrored.
        direction: bool,
        /// The hardware, 6 bits.
        hardware_id: u8,
    },
    /// RFC 8754: the segments in the order in which they are visited.
    Srv6(Vec<Ipv6Addr>),
}

/// An option of Geneve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneveOption {
    /// Who defines the type.
    pub class: u16,
    /// The type, with the critical bit.
    pub kind: u8,
    /// The value: whole words of 4 bytes, at most 31.
    pub data: Vec<u8>,
}

impl GeneveOption {
    /// Bytes with its header.
    pub fn length(&self) -> usize {
        4 + self.data.len()
    }
}

impl OuterHeaders {
    /// The kind of tunnel (`enum ovs_vport_type`).
    pub fn tunnel_type(&self) -> u32 {
        let over_ipv4 = matches!(self.network, OuterNetwork::Ipv4 { .. });
        match self.tunnel {
            OuterTunnel::Gre { .. } if over_ipv4 => tunnel_type::GRE,
            OuterTunnel::Gre { .. } => tunnel_type::GRE_OVER_IPV6,
            OuterTunnel::Vxlan { .. } => tunnel_type::VXLAN,
            OuterTunnel::Geneve { .. } => tunnel_type::GENEVE,
            OuterTunnel::Erspan1 { .. } | OuterTunnel::Erspan2 { .. } if over_ipv4 => tunnel_type::ERSPAN,
            OuterTunnel::Erspan1 { .. } | OuterTunnel::Erspan2 { .. } => tunnel_type::ERSPAN_OVER_IPV6,
            OuterTunnel::Gtpu { .. } => tunnel_type::GTPU,
            OuterTunnel::Srv6(_) => tunnel_type::SRV6,
        }
    }

    /// The headers as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&self.destination.to_be_bytes()[2..]);
        bytes.extend_from_slice(&self.source.to_be_bytes()[2..]);
        self.network.push(&mut bytes);
        self.tunnel.push(&mut bytes);
        bytes
    }

    /// Reads bytes; `None` if they say anything that this type has no place for.
    pub fn read(tunnel_type: u32, bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mac = |rest: &mut &[u8]| {
            let [a, b, c, d, e, f] = take(rest)?;
            Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
        };
        let destination = mac(&mut rest)?;
        let source = mac(&mut rest)?;
        let network = OuterNetwork::take(&mut rest)?;
        let tunnel = OuterTunnel::take(tunnel_type, &mut rest)?;
        let headers = Self { destination, source, network, tunnel };
        (headers.tunnel_type() == tunnel_type && headers.bytes() == bytes).then_some(headers)
    }
}

impl OuterNetwork {
    fn push(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Ipv4 { source, destination, protocol, tos, ttl, fragment } => {
                bytes.extend_from_slice(&ETH_P_IP.to_be_bytes());
                let start = bytes.len();
                bytes.extend_from_slice(&[0x45, *tos, 0, 0, 0, 0]);
                bytes.extend_from_slice(&fragment.to_be_bytes());
                bytes.extend_from_slice(&[*ttl, *protocol, 0, 0]);
                bytes.extend_from_slice(&source.octets());
                bytes.extend_from_slice(&destination.octets());
                let checksum = internet_checksum(&bytes[start..]);
                bytes[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            Self::Ipv6 { source, destination, label, next_header, traffic_class, hop_limit } => {
                bytes.extend_from_slice(&ETH_P_IPV6.to_be_bytes());
                bytes.extend_from_slice(&(6 << 28 | u32::from(*traffic_class) << 20 | label).to_be_bytes());
                bytes.extend_from_slice(&[0, 0, *next_header, *hop_limit]);
                bytes.extend_from_slice(&source.octets());
                bytes.extend_from_slice(&destination.octets());
            }
        }
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        match u16::from_be_bytes(take(rest)?) {
            ETH_P_IP => {
                let [_, tos, _, _, _, _] = take(rest)?;
                let fragment = u16::from_be_bytes(take(rest)?);
                let [ttl, protocol, _, _] = take(rest)?;
                let (source, destination) = (Ipv4Addr::from(take::<4>(rest)?), Ipv4Addr::from(take::<4>(rest)?));
                Some(Self::Ipv4 { source, destination, protocol, tos, ttl, fragment })
            }
            ETH_P_IPV6 => {
                let first = u32::from_be_bytes(take(rest)?);
                let [_, _, next_header, hop_limit] = take(rest)?;
                let (source, destination) = (Ipv6Addr::from(take::<16>(rest)?), Ipv6Addr::from(take::<16>(rest)?));
                let [high, low, ..] = first.to_be_bytes();
                let traffic_class = high << 4 | low >> 4;
                Some(Self::Ipv6 { source, destination, label: first & 0xf_ffff, next_header, traffic_class, hop_limit })
            }
            _ => None,
        }
    }
}

impl OuterUdp {
    fn push(self, bytes: &mut Vec<u8>) {
        let length = 0;
        for field in [self.source, self.destination, length, self.checksum] {
            bytes.extend_from_slice(&field.to_be_bytes());
        }
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let mut field = || take(rest).map(u16::from_be_bytes);
        let (source, destination, _, checksum) = (field()?, field()?, field()?, field()?);
        Some(Self { source, destination, checksum })
    }
}

impl OuterTunnel {
    fn push(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Vxlan { udp, flags, vni } => {
                udp.push(bytes);
                bytes.extend_from_slice(&flags.to_be_bytes());
                bytes.extend_from_slice(&(vni << 8).to_be_bytes());
            }
            Self::Geneve { udp, oam, critical, vni, options } => {
                udp.push(bytes);
                let words = options.iter().map(GeneveOption::length).sum::<usize>() / 4;
                bytes.push(low_byte(words) & 0x3f);
                bytes.push(u8::from(*oam) << 7 | u8::from(*critical) << 6);
                bytes.extend_from_slice(&ETH_P_TEB.to_be_bytes());
                bytes.extend_from_slice(&(vni << 8).to_be_bytes());
                for option in options {
                    bytes.extend_from_slice(&option.class.to_be_bytes());
                    bytes.extend_from_slice(&[option.kind, low_byte(option.data.len() / 4) & 0x1f]);
                    bytes.extend_from_slice(&option.data);
                }
            }
            Self::Gtpu { udp, flags, message_type, endpoint } => {
                udp.push(bytes);
                bytes.extend_from_slice(&[*flags, *message_type, 0, 0]);
                bytes.extend_from_slice(&endpoint.to_be_bytes());
            }
            Self::Gre { flags, protocol, checksum, key, sequence } => {
                bytes.extend_from_slice(&flags.to_be_bytes());
                bytes.extend_from_slice(&protocol.to_be_bytes());
                if let Some(checksum) = checksum {
                    bytes.extend_from_slice(&checksum.to_be_bytes());
                    bytes.extend_from_slice(&[0; 2]);
                }
                for field in [key, sequence].into_iter().flatten() {
                    bytes.extend_from_slice(&field.to_be_bytes());
                }
            }
            Self::Erspan1 { session, index } => {
                push_erspan(bytes, ETH_P_ERSPAN, 1, *session);
                bytes.extend_from_slice(&index.to_be_bytes());
            }
            Self::Erspan2 { session, direction, hardware_id } => {
                push_erspan(bytes, ETH_P_ERSPAN2, 2, *session);
                bytes.extend_from_slice(&[0; 6]);
                bytes.extend_from_slice(&[hardware_id >> 4 & 3, hardware_id << 4 | u8::from(*direction) << 3]);
            }
            Self::Srv6(segments) => {
                let last = low_byte(segments.len().saturating_sub(1));
                let next_header = 0;
                bytes.extend_from_slice(&[next_header, low_byte(2 * segments.len()), SEGMENT_ROUTING, last]);
                bytes.extend_from_slice(&[last, 0, 0, 0]);
                segments.iter().rev().for_each(|segment| bytes.extend_from_slice(&segment.octets()));
            }
        }
    }

    fn take(tunnel_type: u32, rest: &mut &[u8]) -> Option<Self> {
        let word = |rest: &mut &[u8]| take(rest).map(u32::from_be_bytes);
        match tunnel_type {
            tunnel_type::VXLAN => {
                let (udp, flags, vni) = (OuterUdp::take(rest)?, word(rest)?, word(rest)? >> 8);
                Some(Self::Vxlan { udp, flags, vni })
            }
            tunnel_type::GENEVE => {
                let udp = OuterUdp::take(rest)?;
                let [_, bits, _, _] = take(rest)?;
                let vni = word(rest)? >> 8;
                let mut options = Vec::new();
                while !rest.is_empty() {
                    options.push(GeneveOption::take(rest)?);
                }
                Some(Self::Geneve { udp, oam: bits & 0x80 != 0, critical: bits & 0x40 != 0, vni, options })
            }
            tunnel_type::GTPU => {
                let udp = OuterUdp::take(rest)?;
                let [flags, message_type, _, _] = take(rest)?;
                Some(Self::Gtpu { udp, flags, message_type, endpoint: word(rest)? })
            }
            tunnel_type::GRE | tunnel_type::GRE_OVER_IPV6 => {
                let (flags, protocol) = (u16::from_be_bytes(take(rest)?), u16::from_be_bytes(take(rest)?));
                let mut optional = |bit| if flags & bit == 0 { Some(None) } else { word(rest).map(Some) };
                let (checksum, key, sequence) = (optional(GRE_CHECKSUM)?, optional(GRE_KEY)?, optional(GRE_SEQUENCE)?);
                let checksum = checksum.map(|word| u16::try_from(word >> 16).unwrap_or_default());
                Some(Self::Gre { flags, protocol, checksum, key, sequence })
            }
            tunnel_type::ERSPAN | tunnel_type::ERSPAN_OVER_IPV6 => {
                take::<8>(rest)?;
                let [version, _, high, low] = take(rest)?;
                let session = u16::from_be_bytes([high & 3, low]);
                if version >> 4 == 1 {
                    return Some(Self::Erspan1 { session, index: word(rest)? });
                }
                let [_, _, _, _, _, _, high, low] = take(rest)?;
                let hardware_id = (high & 3) << 4 | low >> 4;
                Some(Self::Erspan2 { session, direction: low & 8 != 0, hardware_id })
            }
            tunnel_type::SRV6 => {
                take::<8>(rest)?;
                let mut segments = Vec::new();
                while !rest.is_empty() {
                    segments.insert(0, Ipv6Addr::from(take::<16>(rest)?));
                }
                Some(Self::Srv6(segments))
            }
            _ => None,
        }
    }
}

impl GeneveOption {
    fn take(rest: &mut &[u8]) -> Option<Self> {
        let class = u16::from_be_bytes(take(rest)?);
        let [kind, words] = take(rest)?;
        let (data, behind) = rest.split_at_checked(usize::from(words & 0x1f) * 4)?;
        *rest = behind;
        Some(Self { class, kind, data: data.to_vec() })
    }
}

/// The GRE header with a sequence number, and the word that both versions of ERSPAN begin with.
fn push_erspan(bytes: &mut Vec<u8>, protocol: u16, version: u8, session: u16) {
    let [high, low] = session.to_be_bytes();
    bytes.extend_from_slice(&GRE_SEQUENCE.to_be_bytes());
    bytes.extend_from_slice(&protocol.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[version << 4, 0, high & 3, low]);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

/// RFC 1071.
fn internet_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    let [.., high, low] = (folded + (folded >> 16)).to_be_bytes();
    !u16::from_be_bytes([high, low])
}
