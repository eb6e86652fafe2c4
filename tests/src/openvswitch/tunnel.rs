//! The outer header in a key and in `set(tunnel(…))` (`enum ovs_tunnel_key_attr`).

use sluice_flow::field::{Field, GENEVE_CHUNKS, TUNNEL_FLAGS};
use sluice_flow::key::{Key, Match};

use super::attributes::Attributes;

const ID: u16 = 0;
const IPV4_SRC: u16 = 1;
const IPV4_DST: u16 = 2;
const TOS: u16 = 3;
const TTL: u16 = 4;
const DONT_FRAGMENT: u16 = 5;
const CSUM: u16 = 6;
const OAM: u16 = 7;
const GENEVE_OPTS: u16 = 8;
const TP_SRC: u16 = 9;
const TP_DST: u16 = 10;
const VXLAN_OPTS: u16 = 11;
const IPV6_SRC: u16 = 12;
const IPV6_DST: u16 = 13;
const ERSPAN_OPTS: u16 = 15;

const VXLAN_EXT_GBP: u16 = 1;

/// Which half of a match is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Key,
    Mask,
}

impl Side {
    /// This half of a match.
    pub(super) fn of(self, full: &Match) -> &Key {
        match self {
            Self::Key => &full.key,
            Self::Mask => &full.mask,
        }
    }
}

/// One half of the outer header's match.
///
/// The module wants a destination and a time to live in every key, so that they are there even where nothing is matched.
pub(super) fn encode(side: Side, full: &Match) -> Attributes {
    let mut out = Attributes::default();
    let values = side.of(full);
    let is_matched = |field| full.mask.get(field) != 0;
    let is_there = |field| full.key.get(field) != 0;

    if is_matched(Field::TunnelId) || flag(values, "key") {
        out.put(ID, &low(values, Field::TunnelId, 8));
    }
    let is_ipv6 = is_matched(Field::TunnelIpv6Src) || is_matched(Field::TunnelIpv6Dst);
    let addresses = if is_ipv6 {
        [(Field::TunnelIpv6Src, IPV6_SRC, 16), (Field::TunnelIpv6Dst, IPV6_DST, 16)]
    } else {
        [(Field::TunnelIpv4Src, IPV4_SRC, 4), (Field::TunnelIpv4Dst, IPV4_DST, 4)]
    };
    for (field, number, bytes) in addresses {
        let is_any = side == Side::Key && matches!(number, IPV4_DST | IPV6_DST) && !is_matched(field);
        out.put(number, &if is_any { vec![0xff; bytes] } else { low(values, field, bytes) });
    }
    for (field, number, bytes) in
        [(Field::TunnelTos, TOS, 1), (Field::TunnelTpSrc, TP_SRC, 2), (Field::TunnelTpDst, TP_DST, 2)]
    {
        if is_matched(field) {
            out.put(number, &low(values, field, bytes));
        }
    }
    out.put(TTL, &low(values, Field::TunnelTtl, 1));
    for (name, number) in [("df", DONT_FRAGMENT), ("csum", CSUM), ("oam", OAM)] {
        if flag(values, name) {
            out.put_flag(number);
        }
    }
    if is_there(Field::GenevePresent) {
        // The options of a mask are as long as those of the key.
        let length = usize::try_from(full.key.get(Field::GeneveLength)).expect("eight bits");
        let all: Vec<u8> = GENEVE_CHUNKS.iter().flat_map(|chunk| values.get(*chunk).to_be_bytes()).collect();
        out.put(GENEVE_OPTS, &all[..length]);
    }
    if is_there(Field::VxlanGbpPresent) {
        let policy = values.get(Field::VxlanGbpId) | values.get(Field::VxlanGbpFlags) << 16;
        let mut extension = Attributes::default();
        extension.put(VXLAN_EXT_GBP, &policy.to_le_bytes()[..4]);
        out.nest(VXLAN_OPTS, &extension);
    }
    if is_there(Field::ErspanPresent) {
        out.put(ERSPAN_OPTS, &erspan_metadata(values, full.key.get(Field::ErspanVersion)));
    }
    out
}

/// The lowest bytes of a field.
fn low(values: &Key, field: Field, bytes: usize) -> Vec<u8> {
    values.get(field).to_be_bytes()[16 - bytes..].to_vec()
}

fn flag(values: &Key, name: &str) -> bool {
    let bit = TUNNEL_FLAGS.iter().find(|(word, _)| *word == name).map_or(0, |(_, bit)| u128::from(*bit));
    values.get(Field::TunnelFlags) & bit != 0
}

/// `struct erspan_metadata` (`include/uapi/linux/erspan.h`).
fn erspan_metadata(values: &Key, version: u128) -> Vec<u8> {
    let byte = |field| u8::try_from(values.get(field)).expect("eight bits");
    let mut bytes = u32::from(byte(Field::ErspanVersion)).to_le_bytes().to_vec();
    if version == 2 {
        let (hardware, direction) = (byte(Field::ErspanHardwareId), byte(Field::ErspanDirection));
        // Time stamp and security group tag are the sender's own.
        bytes.extend([0; 6]);
        bytes.extend([hardware >> 4 & 0x3, hardware << 4 | (direction & 1) << 3]);
    } else {
        bytes.extend(low(values, Field::ErspanIndex, 4));
        bytes.extend([0; 4]);
    }
    bytes
}
