//! The flow key of a frame, as the OVS kernel datapath extracts it (`key_extract` in `net/openvswitch/flow.c`).
//!
//! What OVS has no field for is extracted as flower has it (`__skb_flow_dissect` in `net/core/flow_dissector.c`): of a header that
//! is cut off all is zero.
//!
//! Where the kernel and OVS's userspace (`miniflow_extract` in `lib/flow.c`) differ, the kernel is followed, with two
//! exceptions, in which userspace and hardware agree: a frame without an Ethernet type has [`ETH_TYPE_NONE`], and a
//! later IPv6 fragment is one whatever header stands behind the fragment header.

use sluice_flow::chain::ChainId;
use sluice_flow::field::{FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field, MPLS_DEPTH, MPLS_ENTRIES, MPLS_PRESENT};
use sluice_flow::key::Key;
use sluice_flow::port::PortNumber;

use crate::conntrack::ConnectionKey;

use super::extensions::Extensions;
use super::headers::{
    Arp, Authentication, Cfm, Ethernet, Icmp, Ipv4, Ipv6, LabelStackEntry, LlcSnap, Neighbour, NeighbourOption, Nsh,
    NshContexts, Number, Pppoe, Sctp, Security, Tcp, Udp, VlanTagged, Wire,
};
use super::tunnel::TunnelMetadata;
use super::{ETH_TYPE_NONE, Mac, eth_type, ip_proto, is_vlan, mac_to_bits};

/// The namespace of packet types that are Ethernet types (`OFPHTN_ETHERTYPE`).
const NAMESPACE_ETHERNET_TYPE: u16 = 1;

/// Tags that are counted besides the two in the key. Linux reads so many headers in a row and no more
/// (`MAX_FLOW_DISSECT_HDRS` in `net/core/flow_dissector.c`).
const FURTHER_TAGS: usize = 14;

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The chain in which it is looked up.
    pub chain: ChainId,
    /// `skb_mark`.
    pub mark: u32,
    /// `skb_priority`.
    pub priority: u32,
    /// `dp_hash`.
    pub hash: u32,
    /// The Ethernet type of what the packet begins with, where that is no Ethernet header: `packet_type(ns=1,id=…)`.
    pub layer3: Option<u16>,
    /// The VLAN tag of the frame that is behind the header that the packet begins with.
    pub tag: Option<[u8; 4]>,
    /// The outer header that was taken off, if one was.
    pub tunnel: Option<TunnelMetadata>,
    /// What connection tracking found.
    pub connection: ConnectionKey,
    /// Whether connection tracking has taken it for a whole packet. Until other headers come or go it counts as no fragment,
    /// whatever its headers say (`handle_fragments` in net/openvswitch/conntrack.c, `invalidate_flow_key` in actions.c).
    pub is_whole: bool,
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
    /// The type of what comes behind the Ethernet header and its tags, or of what the packet begins with.
    pub ethernet_type: u16,
    /// Where that begins.
    pub payload_at: usize,
    /// The network header.
    pub network: Option<(Network, usize)>,
    /// What was the network header when the packet was looked up, if labels were pushed or taken off since.
    pub under_labels: Option<(Network, usize)>,
    /// The transport header.
    pub transport: Option<(Transport, usize)>,
    /// The end of the IP packet: behind it is padding. Never beyond the frame.
    pub end: usize,
    /// Whether it is an IP fragment without the transport header.
    pub later_fragment: bool,
    /// Whether an IPv6 source route has stations left, so that checksums hold another destination (RFC 8200, 8.1).
    pub source_route: bool,
    /// Whether no key can be made of the packet (where `ovs_flow_key_extract` fails).
    pub is_malformed: bool,
}

impl Layout {
    /// Where the fixed part of the transport header ends; 0 if there is none.
    pub(crate) fn transport_end(&self) -> usize {
        self.transport.map_or(0, |(transport, at)| at + transport.length())
    }
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

impl Transport {
    /// Bytes of its fixed part.
    const fn length(self) -> usize {
        match self {
            Self::Tcp => Tcp::<&[u8]>::LENGTH,
            Self::Udp => Udp::<&[u8]>::LENGTH,
            Self::Sctp => Sctp::<&[u8]>::LENGTH,
            Self::Icmp | Self::Icmpv6 => Icmp::<&[u8]>::LENGTH,
        }
    }
}

/// The flow key of a frame that came in at a port.
pub fn extract(frame: &[u8], in_port: PortNumber, metadata: &Metadata) -> Key {
    parse(frame, in_port, metadata).key
}

/// The flow key of a frame, and where its headers stand.
///
/// A frame that is too short for an Ethernet header is malformed and has no field but those of the metadata.
pub fn parse(frame: &[u8], in_port: PortNumber, metadata: &Metadata) -> Parsed {
    let mut key = Key::ZERO;
    let layout = parse_into(frame, in_port, metadata, &mut key);
    Parsed { key, layout }
}

/// The same, with the key put where the caller wants it: whatever was there is gone.
pub fn parse_into(frame: &[u8], in_port: PortNumber, metadata: &Metadata, key: &mut Key) -> Layout {
    *key = Key::ZERO;
    let mut parser = Parser { frame, key, layout: Layout { end: frame.len(), ..Layout::default() } };
    parser.metadata(in_port, metadata);
    match metadata.layer3 {
        None => parser.ethernet(),
        Some(ethernet_type) => parser.layer3(ethernet_type),
    }
    if metadata.is_whole {
        parser.set(Field::Ipv6Frag, FRAGMENT_NO);
    }
    parser.layout
}

struct Parser<'a> {
    frame: &'a [u8],
    key: &'a mut Key,
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
        self.set(Field::DpHash, metadata.hash);
        metadata.connection.write(self.key);
        if let Some(tunnel) = &metadata.tunnel {
            tunnel.write(self.key);
        }
    }

    fn ethernet(&mut self) {
        let Some(header) = Ethernet::new(self.frame) else {
            self.layout.is_malformed = true;
            return;
        };
        header.write(self.key);

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
        if self.layout.tags > 0 {
            self.number_of_tags(type_at);
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
        self.payload(ethernet_type, payload_at);
    }

    /// How many tags there are, with those that are not in the key and stand from a type on.
    fn number_of_tags(&mut self, type_at: usize) {
        let is_tag = |at: &usize| VlanTagged::new(self.rest(*at)).is_some_and(|tag| is_vlan(tag.tpid()));
        let further = (type_at..).step_by(4).take(FURTHER_TAGS).take_while(is_tag).count();
        self.set(Field::NumOfVlans, (self.layout.tags + further) as u128);
    }

    /// A packet without an Ethernet header.
    fn layer3(&mut self, ethernet_type: u16) {
        self.set(Field::PacketTypeNs, NAMESPACE_ETHERNET_TYPE);
        self.set(Field::PacketTypeId, ethernet_type);
        if is_vlan(ethernet_type) {
            self.layout.is_malformed = true;
        } else {
            self.payload(ethernet_type, 0);
        }
    }

    /// What comes behind the Ethernet header and its tags.
    fn payload(&mut self, ethernet_type: u16, at: usize) {
        self.layout.ethernet_type = ethernet_type;
        self.layout.payload_at = at;
        self.set(Field::EthType, ethernet_type);
        match ethernet_type {
            eth_type::IPV4 => self.ipv4(at),
            eth_type::IPV6 => self.ipv6(at),
            eth_type::ARP | eth_type::RARP => self.arp(at),
            eth_type::MPLS | eth_type::MPLS_MULTICAST => self.mpls(at),
            eth_type::NSH => self.layout.is_malformed = self.nsh(at).is_none(),
            eth_type::PPPOE => self.pppoe(at),
            eth_type::CFM => self.cfm(at),
            _ => {}
        }
    }

    fn pppoe(&mut self, at: usize) {
        if let Some(header) = Pppoe::new(self.rest(at)).filter(Pppoe::is_valid) {
            header.write(self.key);
        }
    }

    fn cfm(&mut self, at: usize) {
        if let Some(message) = Cfm::new(self.rest(at)) {
            message.write(self.key);
        }
    }

    /// The first entries of a label stack. Of a stack that breaks off before its bottom nothing is in the key, since in
    /// the kernel it has no entry that could be matched (`num_labels_mask`).
    fn mpls(&mut self, at: usize) {
        let entries = self.rest(at).chunks_exact(LabelStackEntry::<&[u8]>::LENGTH).filter_map(LabelStackEntry::new);
        let Some(bottom) = entries.clone().position(|entry| entry.is_bottom()) else {
            return;
        };
        let known = entries.take((bottom + 1).min(MPLS_DEPTH));
        for ((entry, [label, tc, ttl, bos]), present) in known.zip(MPLS_ENTRIES).zip(MPLS_PRESENT) {
            self.set(present, 1u8);
            self.set(label, entry.label());
            self.set(tc, entry.tc());
            self.set(ttl, entry.ttl());
            self.set(bos, u8::from(entry.is_bottom()));
        }
    }

    /// A network service header; `None` if it is malformed (`parse_nsh` in net/openvswitch/flow.c).
    fn nsh(&mut self, at: usize) -> Option<()> {
        let nsh = Nsh::new(self.rest(at))?;
        let length = nsh.header_length();
        let header = self.rest(at).get(..length).filter(|_| nsh.version() == 0)?;
        match nsh.metadata_type() {
            1 if length == Nsh::<&[u8]>::LENGTH + NshContexts::<&[u8]>::LENGTH => {
                NshContexts::new(header.get(Nsh::<&[u8]>::LENGTH..)?)?.write(self.key);
            }
            2 => {}
            _ => return None,
        }
        nsh.write(self.key);
        Some(())
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
        arp.write(self.key);
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
        ip.write(self.key);
        if !ip.is_later_fragment() {
            let icmp = (ip_proto::ICMP, Transport::Icmp);
            self.transport(ip.protocol(), at + header_length, icmp);
        }
    }

    fn ipv6(&mut self, at: usize) {
        let packet = self.rest(at);
        let (Some(ip), Some(mut headers)) = (Ipv6::new(packet), Extensions::of(packet)) else {
            return;
        };
        self.layout.network = Some((Network::Ipv6, at));
        let payload_at = at + Ipv6::<&[u8]>::LENGTH;
        // A jumbogram has a length of zero here (RFC 2675).
        if ip.payload_length() != 0 {
            self.layout.end = (payload_at + usize::from(ip.payload_length())).min(self.frame.len());
        }
        ip.write(self.key);

        // As `ipv6_find_hdr` walks them (`net/ipv6/exthdrs_core.c`).
        let mut is_fragment = false;
        let (protocol, transport_at) = loop {
            if !headers.is_extension() {
                break (headers.protocol, Some(at + headers.at));
            }
            is_fragment |= headers.is_fragment();
            self.layout.source_route |= headers.is_source_route();
            if headers.is_later_fragment() {
                self.layout.later_fragment = true;
                break (headers.protocol, None);
            }
            if headers.step().is_none() || headers.is_behind_packet() {
                // The kernel says that there is no next header when the chain of them breaks off.
                break (ip_proto::NONE, None);
            }
        };
        self.set(Field::Ipv6Frag, fragment(is_fragment, self.layout.later_fragment));
        self.set(Field::Ipv6Proto, protocol);
        if let Some(transport_at) = transport_at {
            let icmp = (ip_proto::ICMPV6, Transport::Icmpv6);
            self.transport(protocol, transport_at, icmp);
        }
    }

    fn transport(&mut self, protocol: u8, at: usize, (icmp_protocol, icmp): (u8, Transport)) {
        let bytes = self.rest(at);
        let found = match protocol {
            ip_proto::TCP => Tcp::new(bytes).map(|tcp| {
                // With a wrong length the ports are not in the key, but the header is where the kernel rewrites it.
                if (Tcp::<&[u8]>::LENGTH..=bytes.len()).contains(&tcp.header_length()) {
                    tcp.write(self.key);
                }
                Transport::Tcp
            }),
            ip_proto::UDP => Udp::new(bytes).map(|udp| {
                udp.write(self.key);
                Transport::Udp
            }),
            ip_proto::SCTP => Sctp::new(bytes).map(|sctp| {
                sctp.write(self.key);
                Transport::Sctp
            }),
            _ if protocol == icmp_protocol => Icmp::new(bytes).map(|header| {
                header.write(self.key);
                if icmp == Transport::Icmpv6 && header.code() == 0 && matches!(header.kind(), 135 | 136) {
                    self.neighbour(bytes);
                }
                icmp
            }),
            _ => {
                self.session(protocol, bytes);
                None
            }
        };
        self.layout.transport = found.map(|transport| (transport, at));
    }

    /// What OVS does not look into.
    fn session(&mut self, protocol: u8, bytes: &[u8]) {
        match protocol {
            ip_proto::L2TPV3 => {
                if let Some(session) = Number::new(bytes) {
                    self.set(Field::L2tpv3Session, session.value());
                }
            }
            ip_proto::SECURITY => Security::new(bytes).into_iter().for_each(|header| header.write(self.key)),
            ip_proto::AUTHENTICATION => {
                Authentication::new(bytes).into_iter().for_each(|header| header.write(self.key));
            }
            _ => {}
        }
    }

    /// What the kernel has of a neighbour message (`parse_icmpv6` in net/openvswitch/flow.c), and what only OVS's
    /// userspace has: the reserved bits, and of which kind the first address is (`parse_icmpv6` in lib/flow.c).
    fn neighbour(&mut self, bytes: &[u8]) {
        if let Some(reserved) = bytes.get(4..8) {
            self.set(Field::NdReserved, u32::read(reserved, 0));
        }
        let Some(message) = Neighbour::new(bytes) else {
            return;
        };
        let mut addresses: [Mac; 2] = [[0; 6]; 2];
        let mut first_kind = 0;
        for (option, _) in neighbour_options(bytes) {
            let Some(address) = addresses.get_mut(usize::from(option.kind().wrapping_sub(1))) else {
                continue;
            };
            if option.length() != 1 {
                continue;
            }
            // An address that is given twice makes the message invalid: no address of it is in the key.
            if *address != [0; 6] {
                self.set(Field::NdOptionsType, first_kind);
                return;
            }
            *address = option.mac();
            if first_kind == 0 {
                first_kind = option.kind();
            }
        }
        self.set(Field::NdOptionsType, first_kind);
        self.set(Field::NdTarget, message.target());
        self.set_mac(Field::NdSll, addresses[0]);
        self.set_mac(Field::NdTll, addresses[1]);
    }
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

/// How `frag` of IP calls a packet that is any fragment, and one without the transport header.
pub(crate) fn fragment(any: bool, later: bool) -> u8 {
    match (any, later) {
        (_, true) => FRAGMENT_LATER,
        (true, false) => FRAGMENT_FIRST,
        (false, false) => FRAGMENT_NO,
    }
}

/// Whether the number is an Ethernet type and not a length (`ETH_P_802_3_MIN`).
fn is_ethernet_type(number: u16) -> bool {
    number >= 0x0600
}
