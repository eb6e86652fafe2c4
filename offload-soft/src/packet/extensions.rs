//! The chain of extension headers of an IPv6 packet (RFC 8200, section 4).
//!
//! There is one way along it. Who walks it decides where it ends, since the functions of Linux end at different places.

use super::headers::{IPV6_OFFSET, Ipv6, Ipv6Extension, Ipv6Fragment};
use super::ip_proto;

/// Where the IPv6 header says what follows it.
const NEXT_HEADER: usize = 6;

/// A place in the chain of headers.
#[derive(Clone, Copy)]
pub(crate) struct Extensions<'a> {
    /// From the IPv6 header on.
    packet: &'a [u8],
    /// Where in the packet the byte is that says which header stands here.
    pub(crate) announced_at: usize,
    /// Which header that is.
    pub(crate) protocol: u8,
    /// Where it begins: in the packet, or behind its end.
    pub(crate) at: usize,
}

impl<'a> Extensions<'a> {
    /// The place behind the IPv6 header with which a packet begins.
    #[inline]
    pub(crate) fn of(packet: &'a [u8]) -> Option<Self> {
        let protocol = Ipv6::new(packet)?.next_header();
        Some(Self { packet, announced_at: NEXT_HEADER, protocol, at: Ipv6::<&[u8]>::LENGTH })
    }

    /// Whether what stands here is an extension header (`ipv6_ext_hdr`, without what says that nothing follows).
    #[inline]
    pub(crate) fn is_extension(&self) -> bool {
        matches!(
            self.protocol,
            ip_proto::HOP_BY_HOP
                | ip_proto::ROUTING
                | ip_proto::FRAGMENT
                | ip_proto::AUTHENTICATION
                | ip_proto::DESTINATION
        )
    }

    /// Goes on behind the extension header that stands here; `None` if none does, or if it is cut off where Linux reads it
    /// (`ipv6_skip_exthdr`): what comes behind is read of one that is cut off behind that, too.
    pub(crate) fn step(&mut self) -> Option<()> {
        let header = Ipv6Extension::new(self.header())?;
        let length = usize::from(header.length());
        let length = match self.protocol {
            ip_proto::HOP_BY_HOP | ip_proto::ROUTING | ip_proto::DESTINATION => (length + 1) * 8,
            ip_proto::AUTHENTICATION => (length + 2) * 4,
            ip_proto::FRAGMENT if self.fragment_offset().is_some() => Ipv6Fragment::<&[u8]>::LENGTH,
            _ => return None,
        };
        (self.announced_at, self.protocol, self.at) = (self.at, header.next_header(), self.at + length);
        Some(())
    }

    /// Whether the header before this place is cut off, so that it lies behind the packet.
    pub(crate) fn is_behind_packet(&self) -> bool {
        self.at > self.packet.len()
    }

    /// Whether a fragment header stands here, of which as much is there as makes a fragment for Linux (`ipv6_find_hdr`).
    pub(crate) fn is_fragment(&self) -> bool {
        self.protocol == ip_proto::FRAGMENT && Ipv6Extension::new(self.header()).is_some()
    }

    /// Whether it is that of a fragment without the transport header. Behind it no other header stands.
    pub(crate) fn is_later_fragment(&self) -> bool {
        self.fragment_offset().is_some_and(|offset| offset != 0)
    }

    fn fragment_offset(&self) -> Option<u16> {
        match self.header() {
            [_, _, high, low, ..] if self.protocol == ip_proto::FRAGMENT => {
                Some(u16::from_be_bytes([*high, *low]) & IPV6_OFFSET)
            }
            _ => None,
        }
    }

    /// Whether a source route stands here that has stations left.
    pub(crate) fn is_source_route(&self) -> bool {
        matches!(self.header(), [_, _, _, left, ..] if self.protocol == ip_proto::ROUTING && *left > 0)
    }

    /// The packet from here on.
    fn header(&self) -> &'a [u8] {
        self.packet.get(self.at..).unwrap_or_default()
    }
}
