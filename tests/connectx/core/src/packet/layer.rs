//! One layer of headers: Ethernet, VLAN tags, MPLS, IP and transport.

use super::BytesAt;

/// EtherTypes and IP protocols that the parser acts on, by their IANA names.
pub(crate) mod number {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const VLAN: u16 = 0x8100;
    pub(crate) const IPV6: u16 = 0x86dd;
    pub(crate) const MPLS: u16 = 0x8847;
    pub(crate) const MPLS_MULTICAST: u16 = 0x8848;
    pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
    pub(crate) const BRIDGED: u16 = 0x6558;

    pub(crate) const ICMP: u8 = 1;
    pub(crate) const IPV4_IN_IP: u8 = 4;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const IPV6_IN_IP: u8 = 41;
    pub(crate) const GRE: u8 = 47;
    pub(crate) const ESP: u8 = 50;
    pub(crate) const ICMPV6: u8 = 58;

    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION_OPTIONS: u8 = 60;
}

/// The device tells two VLAN tags apart; a third one is payload.
const VLAN_TAGS: usize = 2;

/// IPv6 extension headers that are skipped at most, so that a frame full of them ends.
const EXTENSION_HEADERS: usize = 8;

/// Headers of one layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// None inside a tunnel that carries IP.
    pub ethernet: Option<Ethernet>,
    /// The outermost tag first; two at most.
    pub vlans: Vec<Vlan>,
    /// The EtherType after the tags.
    pub ethertype: u16,
    /// The first MPLS entry straight on Ethernet.
    pub mpls: Option<u32>,
    /// The IP header.
    pub ip: Option<Ip>,
    /// The transport header; none in a later fragment.
    pub transport: Option<Transport>,
}

/// An Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    /// Offset of the destination address.
    pub at: usize,
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
}

/// A VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vlan {
    /// Offset of the tag's EtherType.
    pub at: usize,
    /// 0x8100 or 0x88a8.
    pub ethertype: u16,
    /// Priority (3 bits), CFI (1), VLAN id (12).
    pub tci: u16,
}

/// An IP header. Addresses of IPv4 are in the low 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip {
    /// Offset of the header.
    pub at: usize,
    /// 4 or 6.
    pub version: u8,
    /// IPv4 header length in units of 4 bytes; 0 for IPv6.
    pub ihl: u8,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Explicit congestion notification.
    pub ecn: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Protocol of what follows; for IPv6 that of the last extension header that was skipped.
    pub protocol: u8,
    /// IPv6 flow label; 0 for IPv4.
    pub flow_label: u32,
    /// Source address.
    pub source: u128,
    /// Destination address.
    pub destination: u128,
    /// Whether the packet is a fragment.
    pub fragment: Fragment,
    /// Offset of what follows the header and its extensions.
    pub payload: usize,
}

/// Whether, and where, a packet is part of a larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    /// It is whole.
    No,
    /// It has the transport header.
    First,
    /// It has none.
    Later,
}

/// A transport header. Ports and flags are in host order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp {
        /// Offset of the header.
        at: usize,
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Sequence number.
        sequence: u32,
        /// Acknowledgement number.
        acknowledgement: u32,
        /// Nine flags, NS the highest.
        flags: u16,
    },
    /// UDP.
    Udp {
        /// Offset of the header.
        at: usize,
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP for IPv4.
    Icmp {
        /// Offset of the header.
        at: usize,
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The second word of the header.
        data: u32,
    },
    /// ICMPv6.
    Icmpv6 {
        /// Offset of the header.
        at: usize,
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The second word of the header.
        data: u32,
    },
    /// IPsec encapsulating security payload.
    Esp {
        /// Offset of the header.
        at: usize,
        /// Security parameters index.
        spi: u32,
    },
}

impl Layer {
    /// The layer whose Ethernet header is at `at`; empty if there is none.
    pub(super) fn ethernet(frame: &[u8], at: usize) -> Self {
        let mut layer = Self::default();
        let (Some(destination), Some(source)) = (frame.bytes_at(at), frame.bytes_at(at + 6)) else { return layer };
        let Some(mut ethertype) = frame.u16_at(at + 12) else { return layer };
        layer.ethernet = Some(Ethernet { at, destination, source });
        let mut next = at + 14;
        while matches!(ethertype, number::VLAN | number::SERVICE_VLAN) && layer.vlans.len() < VLAN_TAGS {
            let (Some(tci), Some(following)) = (frame.u16_at(next), frame.u16_at(next + 2)) else { break };
            layer.vlans.push(Vlan { at: next - 2, ethertype, tci });
            ethertype = following;
            next += 4;
        }
        layer.ethertype = ethertype;
        match ethertype {
            number::IPV4 | number::IPV6 => layer.network(frame, next),
            number::MPLS | number::MPLS_MULTICAST => layer.mpls = frame.u32_at(next),
            _ => {}
        }
        layer
    }

    /// The layer that begins with an IP header at `at`, as the header's own version says.
    pub(super) fn bare_ip(frame: &[u8], at: usize) -> Option<Self> {
        let ethertype = match frame.u8_at(at)? >> 4 {
            4 => number::IPV4,
            6 => number::IPV6,
            _ => return None,
        };
        let mut layer = Self { ethertype, ..Self::default() };
        layer.network(frame, at);
        layer.ip.is_some().then_some(layer)
    }

    fn network(&mut self, frame: &[u8], at: usize) {
        self.ip = if self.ethertype == number::IPV4 { Ip::v4(frame, at) } else { Ip::v6(frame, at) };
        self.transport = self.ip.as_ref().and_then(|ip| Transport::after(frame, ip));
    }
}

impl Ip {
    fn v4(frame: &[u8], at: usize) -> Option<Self> {
        let header: [u8; 20] = frame.bytes_at(at)?;
        let ihl = header[0] & 0xf;
        if header[0] >> 4 != 4 || ihl < 5 {
            return None;
        }
        let payload = at + usize::from(ihl) * 4;
        if payload > frame.len() {
            return None;
        }
        let fragment = match header.u16_at(6)? & 0x3fff {
            0 => Fragment::No,
            0x2000 => Fragment::First,
            _ => Fragment::Later,
        };
        Some(Self {
            at,
            version: 4,
            ihl,
            dscp: header[1] >> 2,
            ecn: header[1] & 3,
            ttl: header[8],
            protocol: header[9],
            flow_label: 0,
            source: header.u32_at(12)?.into(),
            destination: header.u32_at(16)?.into(),
            fragment,
            payload,
        })
    }

    fn v6(frame: &[u8], at: usize) -> Option<Self> {
        let first = frame.u32_at(at)?;
        if first >> 28 != 6 {
            return None;
        }
        let [.., dscp_and_ecn] = (first >> 20).to_be_bytes();
        let mut ip = Self {
            at,
            version: 6,
            ihl: 0,
            dscp: dscp_and_ecn >> 2,
            ecn: dscp_and_ecn & 3,
            ttl: frame.u8_at(at + 7)?,
            protocol: frame.u8_at(at + 6)?,
            flow_label: first & 0xf_ffff,
            source: frame.bytes_at(at + 8).map(u128::from_be_bytes)?,
            destination: frame.bytes_at(at + 24).map(u128::from_be_bytes)?,
            fragment: Fragment::No,
            payload: at + 40,
        };
        for _ in 0..EXTENSION_HEADERS {
            if !ip.skip_extension(frame) {
                break;
            }
        }
        Some(ip)
    }

    /// Whether there was an extension header to step over.
    fn skip_extension(&mut self, frame: &[u8]) -> bool {
        let Some([next, length, high, low]) = frame.bytes_at(self.payload) else { return false };
        let length = match self.protocol {
            number::HOP_BY_HOP | number::ROUTING | number::DESTINATION_OPTIONS => usize::from(length) * 8 + 8,
            number::FRAGMENT => {
                let offset_and_more = u16::from_be_bytes([high, low]);
                // An "atomic" fragment, which is the whole packet, is no fragment.
                self.fragment = match (offset_and_more >> 3, offset_and_more & 1) {
                    (0, 0) => self.fragment,
                    (0, _) => Fragment::First,
                    _ => Fragment::Later,
                };
                8
            }
            _ => return false,
        };
        if self.payload + length > frame.len() {
            return false;
        }
        self.protocol = next;
        self.payload += length;
        self.fragment != Fragment::Later
    }
}

impl Transport {
    fn after(frame: &[u8], ip: &Ip) -> Option<Self> {
        if ip.fragment == Fragment::Later {
            return None;
        }
        let at = ip.payload;
        match (ip.version, ip.protocol) {
            (_, number::TCP) => {
                let header: [u8; 20] = frame.bytes_at(at)?;
                Some(Self::Tcp {
                    at,
                    source: header.u16_at(0)?,
                    destination: header.u16_at(2)?,
                    sequence: header.u32_at(4)?,
                    acknowledgement: header.u32_at(8)?,
                    flags: header.u16_at(12)? & 0x1ff,
                })
            }
            (_, number::UDP) => {
                let header: [u8; 8] = frame.bytes_at(at)?;
                Some(Self::Udp { at, source: header.u16_at(0)?, destination: header.u16_at(2)? })
            }
            (4, number::ICMP) => {
                let [kind, code, ..] = frame.bytes_at::<8>(at)?;
                Some(Self::Icmp { at, kind, code, data: frame.u32_at(at + 4)? })
            }
            (6, number::ICMPV6) => {
                let [kind, code, ..] = frame.bytes_at::<8>(at)?;
                Some(Self::Icmpv6 { at, kind, code, data: frame.u32_at(at + 4)? })
            }
            (_, number::ESP) => Some(Self::Esp { at, spi: frame.bytes_at::<8>(at)?.u32_at(0)? }),
            _ => None,
        }
    }

    /// Offset of the header.
    pub fn at(&self) -> usize {
        match *self {
            Self::Tcp { at, .. }
            | Self::Udp { at, .. }
            | Self::Icmp { at, .. }
            | Self::Icmpv6 { at, .. }
            | Self::Esp { at, .. } => at,
        }
    }

    /// Offset of the checksum, for those that have one.
    pub fn checksum_at(&self) -> Option<usize> {
        match *self {
            Self::Tcp { at, .. } => Some(at + 16),
            Self::Udp { at, .. } => Some(at + 6),
            Self::Icmp { at, .. } | Self::Icmpv6 { at, .. } => Some(at + 2),
            Self::Esp { .. } => None,
        }
    }
}
