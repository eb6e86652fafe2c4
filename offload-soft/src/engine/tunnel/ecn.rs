//! Congestion marks of the packet inside and the header outside (RFC 6040), as in `include/net/inet_ecn.h`.

use sluice_flow::field::Field;
use sluice_flow::port::PortNumber;

use super::header::Payload;
use crate::packet::checksum::replace;
use crate::packet::headers::{Ipv4, Ipv6};
use crate::packet::{Metadata, Network, parse};

const MASK: u8 = 3;
const NOT_CAPABLE: u8 = 0;
const CAPABLE_1: u8 = 1;
const CAPABLE_0: u8 = 2;
const CONGESTION: u8 = 3;

/// The type of service of the outer header: the mark is that of the packet inside, except that congestion inside is not
/// told outside (`INET_ECN_encapsulate`).
pub(super) fn encapsulate(tos: u8, payload: Payload<'_>) -> u8 {
    let metadata = Metadata { layer3: payload.layer3, ..Metadata::default() };
    let parsed = parse(payload.bytes, PortNumber(0), &metadata);
    let is_ip = matches!(parsed.layout.network, Some((Network::Ipv4 | Network::Ipv6, _)));
    // The field of IPv4 and that of IPv6 are the same bits of the key.
    let inner = u8::try_from(parsed.key.get(Field::Ipv4Tos)).unwrap_or(0) & MASK;
    match inner {
        _ if !is_ip => tos & !MASK,
        CONGESTION => tos & !MASK | CAPABLE_0,
        mark => tos & !MASK | mark,
    }
}

/// Takes the mark of an outer header over into the packet that was inside; `None` if it tells of congestion to a packet
/// that does not know of it, which is dropped (`__INET_ECN_decapsulate`).
pub(crate) fn decapsulate(outer: u8, inner: &mut [u8], layer3: Option<u16>) -> Option<()> {
    let layout = parse(inner, PortNumber(0), &Metadata { layer3, ..Metadata::default() }).layout;
    let Some((network, at)) = layout.network.filter(|_| layout.tags == 0) else {
        return Some(());
    };
    let header = inner.get_mut(at..)?;
    match network {
        Network::Ipv4 => {
            let mut ip = Ipv4::new(header)?;
            let (old, new) = (ip.tos(), marked(ip.tos(), outer)?);
            let version = ip.version_and_length();
            ip.set_checksum(replace(ip.checksum(), &[version, old], &[version, new]));
            ip.set_tos(new);
        }
        Network::Ipv6 => {
            let mut ip = Ipv6::new(header)?;
            ip.set_traffic_class(marked(ip.traffic_class(), outer)?);
        }
        Network::Arp => {}
    }
    Some(())
}

fn marked(inner: u8, outer: u8) -> Option<u8> {
    match (inner & MASK, outer & MASK) {
        (NOT_CAPABLE, CONGESTION) => None,
        (NOT_CAPABLE, _) => Some(inner),
        (_, CONGESTION) => Some(inner | CONGESTION),
        (CAPABLE_0, CAPABLE_1) => Some(inner & !MASK | CAPABLE_1),
        _ => Some(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_meet_as_rfc_6040_has_it() {
        let all = |inner: u8| [0, 1, 2, 3].map(|outer| marked(0xb8 | inner, outer).map(|tos| tos & MASK));
        assert_eq!(all(0), [Some(0), Some(0), Some(0), None]);
        assert_eq!(all(1), [Some(1), Some(1), Some(1), Some(3)]);
        assert_eq!(all(2), [Some(2), Some(1), Some(2), Some(3)]);
        assert_eq!(all(3), [Some(3), Some(3), Some(3), Some(3)]);
    }
}
