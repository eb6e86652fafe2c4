//! A fragment as it is read: of which packet it is, and where in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::port::PortNumber;

use crate::packet::headers::{
    IPV4_DONT_FRAGMENT, IPV4_MORE_FRAGMENTS, IPV4_OFFSET, IPV6_MORE_FRAGMENTS, IPV6_OFFSET, Icmp, Ipv4, Ipv6,
    Ipv6Fragment, Tcp, Udp,
};
use crate::packet::{Extensions, ip_proto};

use super::tuple::Family;

/// Where a payload of IPv6 ends at the latest (`IPV6_MAXPLEN`).
const IPV6_LONGEST: usize = 65_535;

/// What the fragments of a packet have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    zone: u16,
    /// Where they came in, if the destination is another one at each port: of IPv6, if it is link-local or a group
    /// (`fq_find` in nf_conntrack_reasm.c).
    port: Option<PortNumber>,
    source: IpAddr,
    destination: IpAddr,
    pub(super) identification: u32,
    /// Of IPv4 only.
    protocol: u8,
}

/// A fragment in its place.
pub(super) struct Fragment<'a> {
    pub(super) key: Key,
    /// Bytes of the frame before the payload of the fragment.
    pub(super) headers: usize,
    pub(super) payload: &'a [u8],
    pub(super) offset: usize,
    pub(super) is_last: bool,
    pub(super) dont_fragment: bool,
    /// It is the first one of IPv6, and does not have all headers (RFC 8200, 4.5).
    pub(super) lacks_headers: bool,
    /// As it counts for [`Pieces::largest`](super::fragmentation::Pieces::largest).
    pub(super) size: usize,
    /// Its type of service or traffic class.
    pub(super) class: u8,
}

impl<'a> Fragment<'a> {
    /// Reads the fragment in a frame that came in at a port and has an IP header at `network`; `None` if it is malformed.
    pub(super) fn read(zone: u16, port: PortNumber, family: Family, frame: &'a [u8], network: usize) -> Option<Self> {
        match family {
            Family::V4 => read_v4(zone, frame, network),
            Family::V6 => read_v6(zone, port, frame, network),
        }
    }

    /// Bytes in front of the payload that are kept: those of the first fragment.
    pub(super) fn kept_headers(&self) -> usize {
        if self.offset == 0 { self.headers } else { 0 }
    }
}

fn read_v4(zone: u16, frame: &[u8], network: usize) -> Option<Fragment<'_>> {
    let packet = frame.get(network..)?;
    let ip = Ipv4::new(packet)?;
    // The kernel takes one that is cut off as long as it is (`ip_frag_queue`).
    let end = usize::from(ip.total_length()).min(packet.len());
    let mut payload = packet.get(ip.header_length()..end)?;
    let is_last = ip.flags_and_offset() & IPV4_MORE_FRAGMENTS == 0;
    if !is_last {
        payload = &payload[..payload.len() & !7];
    }
    Some(Fragment {
        key: Key {
            zone,
            port: None,
            source: Ipv4Addr::from(ip.source()).into(),
            destination: Ipv4Addr::from(ip.destination()).into(),
            identification: ip.identification().into(),
            protocol: ip.protocol(),
        },
        headers: network + ip.header_length(),
        payload,
        offset: usize::from(ip.flags_and_offset() & IPV4_OFFSET) * 8,
        is_last,
        dont_fragment: ip.flags_and_offset() & IPV4_DONT_FRAGMENT != 0,
        lacks_headers: false,
        size: ip.header_length() + payload.len(),
        class: ip.tos(),
    })
}

fn read_v6(zone: u16, port: PortNumber, frame: &[u8], network: usize) -> Option<Fragment<'_>> {
    let packet = frame.get(network..)?;
    let ip = Ipv6::new(packet)?;
    let destination = Ipv6Addr::from(ip.destination());
    let is_of_port = destination.is_unicast_link_local() || destination.is_multicast();
    let end = Ipv6::<&[u8]>::LENGTH + usize::from(ip.payload_length());
    let headers = fragment_header(packet)?;
    let at = headers.at;
    let header = Ipv6Fragment::new(packet.get(at..end)?)?;
    let payload = packet.get(at + Ipv6Fragment::<&[u8]>::LENGTH..end)?;
    let offset = usize::from(header.offset_and_more() & IPV6_OFFSET);
    if offset + payload.len() > IPV6_LONGEST {
        return None;
    }
    Some(Fragment {
        key: Key {
            zone,
            port: is_of_port.then_some(port),
            source: Ipv6Addr::from(ip.source()).into(),
            destination: destination.into(),
            identification: header.identification(),
            protocol: 0,
        },
        headers: network + at + Ipv6Fragment::<&[u8]>::LENGTH,
        payload,
        offset,
        is_last: header.offset_and_more() & IPV6_MORE_FRAGMENTS == 0,
        dont_fragment: false,
        lacks_headers: lacks_headers(headers, packet.len()),
        size: end,
        class: ip.traffic_class(),
    })
}

/// Where the fragment header of an IPv6 packet is (`find_prev_fhdr`).
pub(super) fn fragment_header(packet: &[u8]) -> Option<Extensions<'_>> {
    let mut headers = Extensions::of(packet)?;
    while !headers.is_fragment() {
        headers.step()?;
    }
    Some(headers)
}

/// Whether a packet of so many bytes ends before its transport header does, as far as that is known, and is no later
/// fragment (`ipv6frag_thdr_truncated`).
fn lacks_headers(mut headers: Extensions<'_>, length: usize) -> bool {
    while headers.is_extension() {
        if headers.is_later_fragment() || headers.step().is_none() {
            return false;
        }
    }
    let transport = match headers.protocol {
        ip_proto::NONE => 0,
        ip_proto::TCP => Tcp::<&[u8]>::LENGTH,
        ip_proto::UDP => Udp::<&[u8]>::LENGTH,
        ip_proto::ICMPV6 => Icmp::<&[u8]>::LENGTH,
        _ => 1,
    };
    headers.at + transport > length
}
