//! Hashes, by which a TIR spreads frames over the receive queues of a table.
//!
//! Of two queues a symmetric hash picks the same for both directions; how hardware makes it so is not published, and here the smaller
//! of two addresses, or ports, comes first.
//!
//! Frozen: no test of Sluice needs them.

use crate::packet::checks::address_bytes;
use crate::packet::{Headers, Transport};

/// A hash over those fields that are selected (PRM, `RX_HASH_FIELD_SELECT`).
#[derive(Debug)]
pub(crate) struct Hash {
    pub(crate) function: HashFunction,
    pub(crate) symmetric: bool,
    pub(crate) outer: u32,
    pub(crate) inner: u32,
}

#[derive(Debug)]
pub(crate) enum HashFunction {
    /// All bytes by exclusive or, inverted.
    InvertedXor8,
    /// That of Microsoft's receive side scaling, with its key.
    Toeplitz([u8; 40]),
}

impl Hash {
    /// The hash of a packet, if it has any of the fields.
    pub(crate) fn of(&self, headers: &Headers) -> Option<u32> {
        const SOURCE_ADDRESS: u32 = 1;
        const DESTINATION_ADDRESS: u32 = 1 << 1;
        const SOURCE_PORT: u32 = 1 << 2;
        const DESTINATION_PORT: u32 = 1 << 3;
        /// Otherwise of TCP, and of IPv4.
        const OF_UDP: u32 = 1 << 30;
        const OF_V6: u32 = 1 << 31;
        let (layer, selected) = match &headers.inner {
            Some(inner) if self.inner & 0x3fff_ffff != 0 => (inner, self.inner),
            _ => (&headers.outer, self.outer),
        };
        let version = if selected & OF_V6 != 0 { 6 } else { 4 };
        let ip = layer.ip.as_ref().filter(|ip| ip.version == version)?;
        let ports = match layer.transport {
            Some(Transport::Tcp { source, destination, .. }) if selected & OF_UDP == 0 => Some((source, destination)),
            Some(Transport::Udp { source, destination, .. }) if selected & OF_UDP != 0 => Some((source, destination)),
            _ => None,
        };
        let (mut source, mut destination) = (ip.source, ip.destination);
        let (mut source_port, mut destination_port) = ports.unwrap_or_default();
        if self.symmetric {
            (source, destination) = (source.min(destination), source.max(destination));
            (source_port, destination_port) = (source_port.min(destination_port), source_port.max(destination_port));
        }
        let mut input = Vec::new();
        for (bit, address) in [(SOURCE_ADDRESS, source), (DESTINATION_ADDRESS, destination)] {
            if selected & bit != 0 {
                input.extend(address_bytes(ip.version, address));
            }
        }
        for (bit, port) in [(SOURCE_PORT, source_port), (DESTINATION_PORT, destination_port)] {
            if selected & bit != 0 && ports.is_some() {
                input.extend(port.to_be_bytes());
            }
        }
        (!input.is_empty()).then(|| match &self.function {
            HashFunction::InvertedXor8 => u32::from(!input.iter().fold(0, |all, byte| all ^ byte)),
            HashFunction::Toeplitz(key) => toeplitz(key, &input),
        })
    }
}

fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let bit = |number: usize| u32::from(key.get(number / 8).copied().unwrap_or_default() >> (7 - number % 8) & 1);
    let mut window = (0..32).fold(0, |window, number| window << 1 | bit(number));
    let mut hash = 0;
    for number in 0..input.len() * 8 {
        if input[number / 8] >> (7 - number % 8) & 1 == 1 {
            hash ^= window;
        }
        window = window << 1 | bit(number + 32);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::TunnelPorts;
    use crate::packet::sample::{ethernet, ipv4, tcp_frame, udp};

    /// Key and sums of Microsoft's "Verifying the RSS Hash Calculation".
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca,
        0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b,
        0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn the_hash_is_that_of_the_published_examples() {
        let addresses = [66, 9, 149, 187, 161, 142, 100, 80];
        assert_eq!(toeplitz(&KEY, &addresses), 0x323e_8fc2);
        let ports = [2794_u16.to_be_bytes(), 1766_u16.to_be_bytes()].concat();
        assert_eq!(toeplitz(&KEY, &[&addresses[..], &ports].concat()), 0x51cc_c178);
    }

    #[test]
    fn a_symmetric_hash_is_the_same_both_ways() {
        let hash = Hash { function: HashFunction::Toeplitz(KEY), symmetric: true, outer: 0xf, inner: 0 };
        let there = tcp_frame();
        let mut back = there.clone();
        back[26..30].copy_from_slice(&there[30..34]);
        back[30..34].copy_from_slice(&there[26..30]);
        back[34..36].copy_from_slice(&there[36..38]);
        back[36..38].copy_from_slice(&there[34..36]);
        let of = |frame: &[u8]| hash.of(&Headers::parse(frame, &TunnelPorts::default()));
        assert!(of(&there).is_some());
        assert_eq!(of(&there), of(&back));
    }

    #[test]
    fn a_hash_is_over_headers_of_its_kinds_only() {
        let udp = ethernet(0x0800, &ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, &udp(1, 2, &[7; 9])));
        let hash_of = |frame: &[u8], outer: u32| {
            let hash = Hash { function: HashFunction::Toeplitz(KEY), symmetric: false, outer, inner: 0 };
            hash.of(&Headers::parse(frame, &TunnelPorts::default()))
        };
        const ADDRESSES: u32 = 0x3;
        const PORTS: u32 = 0xc;
        const UDP: u32 = 1 << 30;
        const V6: u32 = 1 << 31;
        for (frame, own, other) in [(tcp_frame(), 0, UDP), (udp, UDP, 0)] {
            let without = hash_of(&frame, ADDRESSES | own);
            assert!(without.is_some());
            assert_ne!(hash_of(&frame, ADDRESSES | PORTS | own), without);
            assert_eq!(hash_of(&frame, ADDRESSES | PORTS | other), without, "ports of another kind");
            assert_eq!(hash_of(&frame, ADDRESSES | own | V6), None);
        }
    }
}
