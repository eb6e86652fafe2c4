//! The neighbour on the underlay, as the software NIC gets to know it.

use sluice_flow::port::PortNumber;

use super::{OWN_IP, OWN_IPV6, OWN_MAC, PEER_IP, PEER_IPV6, PEER_MAC, UNDERLAY};
use crate::soft::Soft;

/// The kernel is told who is on the underlay; the software NIC learns it from what it hears.
pub fn introduce(soft: &Soft) {
    let arp = [&[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1][..], &PEER_MAC, &PEER_IP, &[0; 6], &OWN_IP].concat();
    // An IPv6 packet with nothing in it.
    let empty = [&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64][..], &PEER_IPV6, &OWN_IPV6].concat();
    for rest in [arp, empty] {
        soft.inject(PortNumber(UNDERLAY), &[&OWN_MAC[..], &PEER_MAC, &rest].concat());
    }
}
