//! One packet, and what headers at its front do to it.
//!
//! The kernel keeps the outermost VLAN tag beside the packet and not in it. Here it stands in the frame, where the wire
//! has it; [`Packet::length`] and [`Packet::type_at`] leave it out where the kernel's view of the packet can be seen.

use std::sync::Arc;

use sluice_flow::action::{Encapsulation, EthernetAddresses, VlanTag};
use sluice_flow::port::PortNumber;

use super::merge::Missing;
use crate::conntrack::Tracked;
use crate::packet::headers::{Ethernet, Ipv4, VlanTagged, Wire};
use crate::packet::{Layout, MIN_FRAME, Metadata, Network, Transport, eth_type, ip_proto, is_vlan, mac_from_bits};

/// Bytes of the two Ethernet addresses, behind which tags stand.
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag.
const TAG: usize = 4;

/// One packet and what is known of it.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) in_port: PortNumber,
    /// The place of the rule that took it last.
    pub(crate) rule: Option<u32>,
    pub(crate) metadata: Metadata,
    /// Where the headers are, kept up as headers come and go.
    pub(crate) layout: Layout,
    /// Bytes, without the outermost tag, that the next output leaves of it, however it has grown by then: so in Linux 6.1.192 of Debian. Older
    /// modules noted at `trunc` how much was over, and left that off.
    pub(crate) kept: usize,
    /// The outer header for outputs to tunnel ports.
    pub(crate) encapsulation: Option<Arc<Encapsulation>>,
    /// How likely it was that the packet got here: [`u32::MAX`] is for certain.
    pub(crate) probability: u32,
    pub(crate) tracked: Tracked,
}

impl Packet {
    pub(crate) fn new(bytes: Vec<u8>, in_port: PortNumber, metadata: Metadata) -> Self {
        let layout = Layout::default();
        Self {
            bytes,
            in_port,
            rule: None,
            metadata,
            layout,
            kept: usize::MAX,
            encapsulation: None,
            probability: u32::MAX,
            tracked: Tracked::default(),
        }
    }

    pub(super) fn network(&self, kind: Network) -> Result<usize, Missing> {
        self.layout.network.filter(|(is, _)| *is == kind).map(|(_, at)| at).ok_or(Missing)
    }

    /// Where the transport header is, or in a later fragment of IPv4 where it would be: the kernel rewrites what is
    /// there, so that flows had better match on `frag`, as those of OVS always do.
    pub(super) fn transport(&self, kind: Transport) -> Result<usize, Missing> {
        if let Some((is, at)) = self.layout.transport {
            return if is == kind { Ok(at) } else { Err(Missing) };
        }
        let at = self.network(Network::Ipv4)?;
        let ip = self.bytes.get(at..).and_then(Ipv4::new).ok_or(Missing)?;
        let wanted = match kind {
            Transport::Tcp => ip_proto::TCP,
            Transport::Udp => ip_proto::UDP,
            Transport::Sctp => ip_proto::SCTP,
            Transport::Icmp => ip_proto::ICMP,
            Transport::Icmpv6 => return Err(Missing),
        };
        if ip.is_later_fragment() && ip.protocol() == wanted { Ok(at + ip.header_length()) } else { Err(Missing) }
    }

    /// Whether it begins with an Ethernet header.
    pub(super) fn is_ethernet(&self) -> bool {
        self.metadata.layer3.is_none()
    }

    /// The type of what comes behind the Ethernet header and the outermost tag (`skb->protocol`).
    pub(super) fn protocol(&self) -> u16 {
        if self.layout.tags > 1 { eth_type::VLAN } else { self.layout.ethernet_type }
    }

    /// Bytes, without the outermost tag (`skb->len`).
    pub(crate) fn length(&self) -> usize {
        self.bytes.len() - self.tag_length()
    }

    /// Bytes of the outermost tag.
    pub(crate) fn tag_length(&self) -> usize {
        if self.has_tag() { TAG } else { 0 }
    }

    /// Bytes with all tags, also with one that is kept aside, as rules count them (`ovs_flow_stats_update`).
    pub(super) fn counted_length(&self) -> usize {
        self.bytes.len() + if self.metadata.tag.is_some() { TAG } else { 0 }
    }

    /// Bytes that are left when the next output cuts the packet (`do_output`).
    pub(super) fn cut_length(&self) -> usize {
        let length = self.length();
        let shortest = if self.is_ethernet() { MIN_FRAME } else { 0 };
        self.kept.max(shortest).min(length) + (self.bytes.len() - length)
    }

    /// Where the type behind the addresses and the outermost tag stands in a frame.
    pub(super) fn type_at(&self) -> usize {
        if self.has_tag() { ADDRESSES + TAG } else { ADDRESSES }
    }

    /// Whether there is a tag that the kernel knows of. In a frame that came out of another header it finds tags only
    /// when it looks the packet up.
    fn has_tag(&self) -> bool {
        let is_known = self.is_ethernet() && self.layout.payload_at > 0;
        let ethernet = Ethernet::new(self.bytes.as_slice()).filter(|_| is_known);
        self.bytes.len() >= MIN_FRAME + TAG && ethernet.is_some_and(|ethernet| is_vlan(ethernet.ethernet_type()))
    }

    pub(super) fn push_vlan(&mut self, tag: VlanTag) -> Result<(), Missing> {
        self.metadata.is_whole &= !self.has_tag();
        // The CFI bit only says that there is a tag; on the wire OVS sends it as zero (`push_vlan` in actions.c).
        self.insert_tag(tag.tpid, u16::from(tag.pcp) << 13 | tag.vid)
    }

    fn insert_tag(&mut self, tpid: u16, tci: u16) -> Result<(), Missing> {
        if self.bytes.len() < MIN_FRAME || !self.is_ethernet() {
            return Err(Missing);
        }
        self.bytes.splice(ADDRESSES..ADDRESSES, [0; TAG]);
        let mut header = VlanTagged::new(&mut self.bytes[ADDRESSES..]).ok_or(Missing)?;
        header.set_tpid(tpid);
        header.set_tci(tci);
        self.layout.tags += 1;
        self.layout.shift(|at| at + TAG);
        Ok(())
    }

    /// Takes the outermost tag off. A packet that has none stays as it is (`skb_vlan_pop` in net/core/skbuff.c).
    pub(super) fn pop_vlan(&mut self) -> Result<(), Missing> {
        if !self.has_tag() {
            return Ok(());
        }
        self.bytes.drain(ADDRESSES..ADDRESSES + TAG);
        self.layout.tags = self.layout.tags.saturating_sub(1);
        self.layout.shift(|at| at.saturating_sub(TAG));
        self.metadata.is_whole &= !self.has_tag();
        Ok(())
    }

    /// Puts an Ethernet header in front (`skb_eth_push`).
    pub(super) fn push_eth(&mut self, addresses: EthernetAddresses) -> Result<(), Missing> {
        if self.layout.payload_at != 0 || self.metadata.tag.is_some() {
            return Err(Missing);
        }
        let mut header = [0; MIN_FRAME];
        let mut ethernet = Ethernet::new(header.as_mut_slice()).ok_or(Missing)?;
        ethernet.set_source(mac_from_bits(addresses.source.into()));
        ethernet.set_destination(mac_from_bits(addresses.destination.into()));
        ethernet.set_ethernet_type(self.protocol());
        self.put_in_front(&header);
        self.layout.shift(|at| at + MIN_FRAME);
        self.metadata.layer3 = None;
        self.metadata.is_whole = false;
        Ok(())
    }

    /// Takes the Ethernet header off, with tags and LLC (`skb_eth_pop`).
    pub(super) fn pop_eth(&mut self) -> Result<(), Missing> {
        if !self.is_ethernet() || self.layout.payload_at < MIN_FRAME {
            return Err(Missing);
        }
        self.take_tag_aside();
        let header = self.layout.payload_at;
        self.bytes.drain(..header);
        let protocol = self.protocol();
        self.metadata.layer3 = Some(protocol);
        self.metadata.is_whole = false;
        self.layout.ethernet_type = protocol;
        self.layout.tags = 0;
        self.layout.shift(|at| at.saturating_sub(header));
        Ok(())
    }

    /// Takes the outermost tag out of the frame, where the kernel does not have it either, before something is put in
    /// front of the frame. It is back when the frame is.
    pub(super) fn take_tag_aside(&mut self) {
        if !self.has_tag() {
            return;
        }
        let mut tag = [0; TAG];
        tag.copy_from_slice(&self.bytes[ADDRESSES..ADDRESSES + TAG]);
        self.metadata.tag = Some(tag);
        self.bytes.drain(ADDRESSES..ADDRESSES + TAG);
        self.layout.shift(|at| at.saturating_sub(TAG));
    }

    pub(super) fn put_in_front(&mut self, header: &[u8]) {
        self.bytes.splice(..0, header.iter().copied());
    }

    /// Notes that the packet begins with a header of this Ethernet type, of which nothing is known yet.
    pub(super) fn begins_with(&mut self, ethernet_type: u16) {
        self.metadata.is_whole = false;
        self.metadata.layer3 = Some(ethernet_type);
        self.layout = Layout { ethernet_type, end: self.bytes.len(), ..Layout::default() };
    }

    /// Notes that something of this Ethernet type comes behind the Ethernet header, of which nothing is known yet.
    pub(super) fn is_followed_by(&mut self, ethernet_type: u16) {
        self.metadata.is_whole = false;
        let Layout { tags, payload_at, .. } = self.layout;
        self.layout = Layout { ethernet_type, tags, payload_at, end: self.bytes.len(), ..Layout::default() };
    }

    /// Notes that the packet begins with an Ethernet header, of which nothing is known yet, and puts back the tag that
    /// was taken aside.
    pub(super) fn is_a_frame_again(&mut self) {
        self.metadata.layer3 = None;
        if let Some(tag) = self.metadata.tag.take() {
            // What is too short for a tag is too short to be looked up or sent.
            let _ = self.insert_tag(u16::read(&tag, 0), u16::read(&tag, 2));
        }
    }
}

impl Layout {
    fn shift(&mut self, moved: impl Fn(usize) -> usize) {
        self.network = self.network.map(|(kind, at)| (kind, moved(at)));
        self.under_labels = self.under_labels.map(|(kind, at)| (kind, moved(at)));
        self.transport = self.transport.map(|(kind, at)| (kind, moved(at)));
        self.payload_at = moved(self.payload_at);
        self.end = moved(self.end);
    }
}
