//! The flow key of a frame, as the OVS kernel datapath extracts it (`key_extract` in `net/openvswitch/flow.c`).
//!
//! Where the kernel and OVS's userspace (`miniflow_extract` in `lib/flow.c`) differ, the kernel is followed, with two
//! exceptions, in which userspace and hardware agree: a frame without an Ethernet type has [`ETH_TYPE_NONE`], and a
//! later IPv6 fragment is one whatever header stands behind the fragment header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::chain::ChainId;
use sluice_flow::field::{FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field};
use sluice_flow::key::Key;
use sluice_flow::port::PortNumber;

use super::headers::{
    Arp, Ethernet, Icmp, Ipv4, Ipv6, Ipv6Extension, LlcSnap, Neighbour, NeighbourOption, Sctp, Tcp, Udp, VlanTagged,
};
use super::{ETH_TYPE_NONE, Mac, eth_type, ip_proto, mac_to_bits};

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The chain in which it is looked up.
    pub chain: ChainId,
    /// `skb_mark`.
    pub mark: u32,
    /// `skb_priority`.
    pub priority: u32,
    /// The outer header that was taken off, if one was.
    pub tunnel: Option<TunnelMetadata>,
}

/// The outer header of a packet that came through a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelMetadata {
    /// Network identifier.
    pub id: u64,
    /// Addresses.
    pub addresses: TunnelAddresses,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// Bits of [`sluice_flow::field::TUNNEL_FLAGS`].
    pub flags: u8,
}

impl TunnelMetadata {
    /// The outer destination address.
    pub fn destination(&self) -> IpAddr {
        match self.addresses {
            TunnelAddresses::V4 { destination, .. } => Ipv4Addr::from(destination).into(),
            TunnelAddresses::V6 { destination, .. } => Ipv6Addr::from(destination).into(),
        }
    }
}

/// Source and destination of an outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelAddresses {
    /// IPv4.
    V4 {
        /// Source.
        source: u32,
        /// Destination.
        destination: u32,
    },
    /// IPv6.
    V6 {
        /// Source.
        source: u128,
        /// Destination.
        destination: u128,
    },
}

/// A flow key and where in the frame its headers stand.
#[derive(Clone, Copy, Debug)]
pub struct Parsed {
    /// The key.
    pub key: Key,
    /// The places.
    pub layout: Layout,
}

/// Where the headers of a frame stand. A header that is absent, cut off or malformed has no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// VLAN tags that were taken into the key.
    pub tags: usize,
    /// The network header.
    pub network: Option<(Network, usize)>,
    /// The transport header.
    pub transport: Option<(Transport, usize)>,
    /// The end of the IP packet: behind it is padding. Never beyond the frame.
    pub end: usize,
    /// Whether it is an IP fragment without the transport header.
    pub later_fragment: bool,
    /// Whether an IPv6 source route has stations left, so that checksums hold another destination (RFC 8200, 8.1).
    pub source_route: bool,
}

/// A network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ARP or RARP, for Ethernet and IPv4.
    Arp,
}

/// A transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

/// The flow key of a frame that came in at a port.
pub fn extract(frame: &[u8], in_port: PortNumber, metadata: &Metadata) -> Key {
    parse(frame, in_port, metadata).key
}

/// The flow key of a frame, and where its headers stand.
///
/// A frame that is too short for an Ethernet header has no field but those of the metadata.
pub fn parse(frame: &[u8], in_port: PortNumber, metadata: &Metadata) -> Parsed {
    let mut parser = Parser { frame, key: Key::ZERO, layout: Layout { end: frame.len(), ..Layout::default() } };
    parser.metadata(in_port, metadata);
    parser.ethernet();
    Parsed { key: parser.key, layout: parser.layout }
}

struct Parser<'a> {
    frame: &'a [u8],
    key: Key,
    layout: Layout,
}

impl<'a> Parser<'a> {
    fn set(&mut self, field: Field, value: impl Into<u128>) {
        self.key.set(field, value.into());
    }

    fn set_mac(&mut self, field: Field, mac: Mac) {
        self.set(field, mac_to_bits(mac));
    }

    /// The frame from `at` on; empty behind its end.
    fn rest(&self, at: usize) -> &'a [u8] {
        self.frame.get(at..).unwrap_or_default()
    }

    fn metadata(&mut self, in_port: PortNumber, metadata: &Metadata) {
        self.set(Field::InPort, in_port.0);
        self.set(Field::RecircId, metadata.chain.0);
        self.set(Field::SkbMark, metadata.mark);
        self.set(Field::SkbPriority, metadata.priority);
        let Some(tunnel) = &metadata.tunnel else {
            return;
        };
        self.set(Field::TunnelPresent, 1u8);
        self.set(Field::TunnelId, tunnel.id);
        match tunnel.addresses {
            TunnelAddresses::V4 { source, destination } => {
                self.set(Field::TunnelIpv4Src, source);
                self.set(Field::TunnelIpv4Dst, destination);
            }
            TunnelAddresses::V6 { source, destination } => {
                self.set(Field::TunnelIpv6Src, source);
                self.set(Field::TunnelIpv6Dst, destination);
            }
        }
        self.set(Field::TunnelTos, tunnel.tos);
        self.set(Field::TunnelTtl, tunnel.ttl);
        self.set(Field::TunnelTpSrc, tunnel.source_port);
        self.set(Field::TunnelTpDst, tunnel.destination_port);
        self.set(Field::TunnelFlags, tunnel.flags);
    }

    fn ethernet(&mut self) {
        let Some(header) = Ethernet::new(self.frame) else {
            return;
        };
        self.set_mac(Field::EthSrc, header.source());
        self.set_mac(Field::EthDst, header.destination());

        // The type stands where the last tag that was taken left it; a third tag stays as the type, as in OVS.
        let mut found = header.ethernet_type();
        let mut type_at = Ethernet::<&[u8]>::LENGTH - 2;
        while let Some(tag) = is_vlan(found).then(|| VlanTagged::new(self.rest(type_at))).flatten() {
            if self.layout.tags == 2 {
                break;
            }
            self.tag(&tag);
            found = tag.next_type();
            type_at += 4;
        }

        let mut payload_at = type_at + 2;
        let ethernet_type = if is_ethernet_type(found) {
            found
        } else {
            let snap = LlcSnap::new(self.rest(payload_at)).filter(|llc| {
                llc.dsap() == 0xaa
                    && llc.ssap() == 0xaa
                    && llc.organisation_high() == 0
                    && llc.organisation_low() == 0
                    && is_ethernet_type(llc.ethernet_type())
            });
            match snap {
                Some(llc) => {
                    payload_at += LlcSnap::<&[u8]>::LENGTH;
                    llc.ethernet_type()
                }
                None => ETH_TYPE_NONE,
            }
        };
        self.set(Field::EthType, ethernet_type);
        match ethernet_type {
            eth_type::IPV4 => self.ipv4(payload_at),
            eth_type::IPV6 => self.ipv6(payload_at),
            eth_type::ARP | eth_type::RARP => self.arp(payload_at),
            _ => {}
        }
    }

    fn tag(&mut self, tag: &VlanTagged<&[u8]>) {
        let [present, tpid, vid, pcp, cfi] = if self.layout.tags == 0 {
            [Field::VlanPresent, Field::VlanTpid, Field::VlanVid, Field::VlanPcp, Field::VlanCfi]
        } else {
            [Field::CvlanPresent, Field::CvlanTpid, Field::CvlanVid, Field::CvlanPcp, Field::CvlanCfi]
        };
        self.layout.tags += 1;
        self.set(present, 1u8);
        self.set(tpid, tag.tpid());
        self.set(vid, tag.tci() & 0x0fff);
        self.set(pcp, tag.tci() >> 13);
        // OVS uses the bit to say that there is a tag (VLAN_CFI_MASK), whatever the frame has there.
        self.set(cfi, 1u8);
    }

    fn arp(&mut self, at: usize) {
        let Some(arp) = Arp::new(self.rest(at)).filter(Arp::is_ethernet_ipv4) else {
            return;
        };
        self.layout.network = Some((Network::Arp, at));
        if arp.operation() <= 0xff {
            self.set(Field::ArpOp, arp.operation());
        }
        self.set(Field::ArpSip, arp.sender_ip());
        self.set(Field::ArpTip, arp.target_ip());
        self.set_mac(Field::ArpSha, arp.sender_mac());
        self.set_mac(Field::ArpTha, arp.target_mac());
    }

    fn ipv4(&mut self, at: usize) {
        let Some(ip) = Ipv4::new(self.rest(at)) else {
            return;
        };
        let header_length = ip.header_length();
        if header_length < Ipv4::<&[u8]>::LENGTH || self.rest(at).len() < header_length {
            return;
        }
        self.layout.network = Some((Network::Ipv4, at));
        self.layout.later_fragment = ip.is_later_fragment();
        let end = at + usize::from(ip.total_length());
        if end >= at + header_length {
            self.layout.end = end.min(self.frame.len());
        }
        self.set(Field::Ipv4Src, ip.source());
        self.set(Field::Ipv4Dst, ip.destination());
        self.set(Field::Ipv4Proto, ip.protocol());
        self.set(Field::Ipv4Tos, ip.tos());
        self.set(Field::Ipv4Ttl, ip.ttl());
        self.set(Field::Ipv4Frag, fragment(ip.is_fragment(), ip.is_later_fragment()));
        if !ip.is_later_fragment() {
            let icmp = (ip_proto::ICMP, Transport::Icmp);
            self.transport(ip.protocol(), at + header_length, icmp);
        }
    }

    fn ipv6(&mut self, at: usize) {
        let Some(ip) = Ipv6::new(self.rest(at)) else {
            return;
        };
        self.layout.network = Some((Network::Ipv6, at));
        let payload_at = at + Ipv6::<&[u8]>::LENGTH;
        // A jumbogram has a length of zero here (RFC 2675).
        if ip.payload_length() != 0 {
            self.layout.end = (payload_at + usize::from(ip.payload_length())).min(self.frame.len());
        }
        self.set(Field::Ipv6Src, ip.source());
        self.set(Field::Ipv6Dst, ip.destination());
        self.set(Field::Ipv6Label, ip.flow_label());
        self.set(Field::Ipv6Tclass, ip.traffic_class());
        self.set(Field::Ipv6Hlimit, ip.hop_limit());

        let extensions = self.extensions(ip.next_header(), payload_at);
        self.layout.later_fragment = extensions.later_fragment;
        self.layout.source_route = extensions.source_route;
        self.set(Field::Ipv6Frag, fragment(extensions.fragment, extensions.later_fragment));
        self.set(Field::Ipv6Proto, extensions.protocol);
        if let Some(transport_at) = extensions.transport_at {
            let icmp = (ip_proto::ICMPV6, Transport::Icmpv6);
            self.transport(extensions.protocol, transport_at, icmp);
        }
    }

    /// Walks extension headers as `ipv6_find_hdr` does (`net/ipv6/exthdrs_core.c`).
    fn extensions(&self, first: u8, at: usize) -> Extensions {
        let mut found = Extensions { protocol: first, ..Extensions::default() };
        let mut at = at;
        loop {
            match found.protocol {
                ip_proto::HOP_BY_HOP
                | ip_proto::ROUTING
                | ip_proto::FRAGMENT
                | ip_proto::AUTHENTICATION
                | ip_proto::DESTINATION => {}
                _ => {
                    found.transport_at = Some(at);
                    return found;
                }
            }
            let Some(header) = Ipv6Extension::new(self.rest(at)) else {
                // The kernel says that there is no next header when the chain of them breaks off.
                found.protocol = ip_proto::NONE;
                return found;
            };
            let length = match found.protocol {
                ip_proto::FRAGMENT => {
                    found.fragment = true;
                    if header.fragment_offset() & 0xfff8 != 0 {
                        found.later_fragment = true;
                        return found;
                    }
                    Ipv6Extension::<&[u8]>::LENGTH
                }
                ip_proto::AUTHENTICATION => (usize::from(header.length()) + 2) * 4,
                protocol => {
                    found.source_route |= protocol == ip_proto::ROUTING && header.segments_left() > 0;
                    (usize::from(header.length()) + 1) * 8
                }
            };
            at += length;
            found.protocol = header.next_header();
        }
    }

    fn transport(&mut self, protocol: u8, at: usize, (icmp_protocol, icmp): (u8, Transport)) {
        let bytes = self.rest(at);
        let found = match protocol {
            ip_proto::TCP => Tcp::new(bytes).map(|tcp| {
                // With a wrong length the ports are not in the key, but the header is where the kernel rewrites it.
                if (Tcp::<&[u8]>::LENGTH..=bytes.len()).contains(&tcp.header_length()) {
                    self.set(Field::TcpSrc, tcp.source());
                    self.set(Field::TcpDst, tcp.destination());
                    self.set(Field::TcpFlags, tcp.flags());
                }
                Transport::Tcp
            }),
            ip_proto::UDP => Udp::new(bytes).map(|udp| {
                self.set(Field::UdpSrc, udp.source());
                self.set(Field::UdpDst, udp.destination());
                Transport::Udp
            }),
            ip_proto::SCTP => Sctp::new(bytes).map(|sctp| {
                self.set(Field::SctpSrc, sctp.source());
                self.set(Field::SctpDst, sctp.destination());
                Transport::Sctp
            }),
            _ if protocol == icmp_protocol => Icmp::new(bytes).map(|header| {
                // ICMP and ICMPv6 share their places in the key.
                self.set(Field::IcmpType, header.kind());
                self.set(Field::IcmpCode, header.code());
                if icmp == Transport::Icmpv6 && header.code() == 0 && matches!(header.kind(), 135 | 136) {
                    self.neighbour(bytes);
                }
                icmp
            }),
            _ => None,
        };
        self.layout.transport = found.map(|transport| (transport, at));
    }

    fn neighbour(&mut self, bytes: &[u8]) {
        let Some(message) = Neighbour::new(bytes) else {
            return;
        };
        let mut addresses: [Mac; 2] = [[0; 6]; 2];
        for (option, _) in neighbour_options(bytes) {
            let Some(address) = addresses.get_mut(usize::from(option.kind().wrapping_sub(1))) else {
                continue;
            };
            if option.length() != 1 {
                continue;
            }
            // An address that is given twice makes the message invalid: nothing of it is in the key.
            if *address != [0; 6] {
                return;
            }
            *address = option.mac();
        }
        self.set(Field::NdTarget, message.target());
        self.set_mac(Field::NdSll, addresses[0]);
        self.set_mac(Field::NdTll, addresses[1]);
    }
}

/// What the IPv6 extension headers say.
#[derive(Default)]
struct Extensions {
    protocol: u8,
    transport_at: Option<usize>,
    fragment: bool,
    later_fragment: bool,
    source_route: bool,
}

/// The options of a neighbour message, up to the first that is malformed, each with its offset in the message.
pub(crate) fn neighbour_options(message: &[u8]) -> impl Iterator<Item = (NeighbourOption<&[u8]>, usize)> {
    let mut at = Neighbour::<&[u8]>::LENGTH;
    std::iter::from_fn(move || {
        let rest = message.get(at..)?;
        let option = NeighbourOption::new(rest)?;
        let length = usize::from(option.length()) * 8;
        if length == 0 || length > rest.len() {
            return None;
        }
        let here = at;
        at += length;
        Some((option, here))
    })
}

fn fragment(any: bool, later: bool) -> u8 {
    match (any, later) {
        (_, true) => FRAGMENT_LATER,
        (true, false) => FRAGMENT_FIRST,
        (false, false) => FRAGMENT_NO,
    }
}

fn is_vlan(ethernet_type: u16) -> bool {
    matches!(ethernet_type, eth_type::VLAN | eth_type::QINQ)
}

/// Whether the number is an Ethernet type and not a length (`ETH_P_802_3_MIN`).
fn is_ethernet_type(number: u16) -> bool {
    number >= 0x0600
}
