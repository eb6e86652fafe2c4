//! Segment routing over IPv6 (RFC 8754), which `tnl_push` puts on; OVS knows it from version 3.2 on.

use super::fill::{IPV6, places};
use super::header::Payload;
use crate::packet::headers::{Ethernet, Ipv6};
use crate::packet::{eth_type, ip_proto};

/// Of a routing header: the fixed part, which a unit of its length is as long as.
const FIXED: usize = 8;
/// Its routing type (RFC 8754, 8.1).
const TYPE: u8 = 4;
/// A list entry, in units of the header's length.
const SEGMENT: u8 = 2;

/// IP protocols of what may stand behind the header (RFC 8986, 10.1).
mod next_header {
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 41;
    pub(super) const ETHERNET: u8 = 143;
}

/// Whether the bytes are Ethernet, IPv6 and a routing header with segments, and nothing else.
pub(super) fn is_whole(headers: &[u8]) -> bool {
    let Some((eth_type::IPV6, at, ip_proto::ROUTING)) = places(headers) else {
        return false;
    };
    let Some(routing @ [_, length, TYPE, left, last, ..]) = headers.get(at..) else {
        return false;
    };
    let is_list_only = last.checked_add(1).and_then(|count| count.checked_mul(SEGMENT)) == Some(*length);
    is_list_only && left <= last && routing.len() == FIXED * (1 + usize::from(*length))
}

/// Says in the headers in front of a payload how long it is and what; `None` if they cannot. The text form of a push has
/// no place for the latter, so that it never comes with the headers.
pub(super) fn fill(frame: &mut [u8], payload: Payload<'_>) -> Option<()> {
    let what = match payload.layer3 {
        None => next_header::ETHERNET,
        Some(eth_type::IPV4) => next_header::IPV4,
        Some(eth_type::IPV6) => next_header::IPV6,
        Some(_) => return None,
    };
    let network = frame.get_mut(Ethernet::<&[u8]>::LENGTH..)?;
    let length = u16::try_from(network.len().checked_sub(IPV6)?).ok()?;
    Ipv6::new(&mut *network)?.set_payload_length(length);
    *network.get_mut(IPV6)? = what;
    Some(())
}
