//! `hash(…)`: what the next lookup sees as `dp_hash`.
#![expect(clippy::cast_possible_truncation, reason = "fields are as narrow as the table says, and a hash may be cut")]

use sluice_flow::action::HashAlgorithm;
use sluice_flow::field::{FRAGMENT_NO, Field};
use sluice_flow::key::Key;

use crate::packet::{eth_type, ip_proto};

/// A hash over addresses and ports of IP, never zero (`execute_hash` in net/openvswitch/actions.c).
///
/// It is the same after a restart. The datapaths of OVS do not agree on a function either, so that nothing but "equal
/// connections, equal hashes" can be counted on.
pub(super) fn connection(key: &Key, algorithm: HashAlgorithm, basis: u32) -> u32 {
    let mut ends = ends(key);
    if algorithm == HashAlgorithm::SymmetricL4 && ends[1] < ends[0] {
        ends.swap(0, 1);
    }
    let kind = key.get(Field::EthType) as u64;
    let protocol = if is_whole(key) { key.get(Field::Ipv4Proto) as u64 } else { 0 };
    let words = ends.into_iter().flat_map(|(address, port)| [(address >> 64) as u64, address as u64, u64::from(port)]);
    let hash = words.chain([kind << 8 | protocol]).fold(u64::from(basis), |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ mixed >> 32).wrapping_mul(0xc4ce_b9fe_1a85_ec53) ^ mixed >> 29
    });
    ((hash >> 32) as u32).max(1)
}

/// Address and port of source and destination.
fn ends(key: &Key) -> [(u128, u16); 2] {
    let ethernet_type = key.get(Field::EthType);
    let addresses = if ethernet_type == u128::from(eth_type::IPV4) {
        [Field::Ipv4Src, Field::Ipv4Dst]
    } else if ethernet_type == u128::from(eth_type::IPV6) {
        [Field::Ipv6Src, Field::Ipv6Dst]
    } else {
        return [(0, 0); 2];
    };
    let protocol = u8::try_from(key.get(Field::Ipv4Proto));
    let has_ports = is_whole(key) && matches!(protocol, Ok(ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP));
    let port = |field| if has_ports { key.get(field) as u16 } else { 0 };
    [(key.get(addresses[0]), port(Field::TcpSrc)), (key.get(addresses[1]), port(Field::TcpDst))]
}

/// A fragment is of its packet's connection whichever it is, so nothing counts that only the first one has: ports, and
/// in IPv6 the protocol.
fn is_whole(key: &Key) -> bool {
    key.get(Field::Ipv4Frag) == u128::from(FRAGMENT_NO)
}
