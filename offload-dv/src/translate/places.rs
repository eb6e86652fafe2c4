//! Where fields are in `fte_match_param` (PRM): first bit and width.

use sluice_flow::field::{Attribute, Field};

use super::registers::{CT_LABEL, CT_MARK, CT_STATE, CT_ZONE};
use crate::mlx5::MatchParameter;

/// A field of `fte_match_param`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    name: &'static str,
    at: usize,
    width: usize,
}

impl Place {
    pub(super) const fn new(name: &'static str, at: usize, width: usize) -> Self {
        Self { name, at, width }
    }

    /// Returns the block and the field.
    pub(super) const fn name(self) -> &'static str {
        self.name
    }

    /// Returns whether libmlx5 wants the value for a mask.
    pub(super) fn is_its_own_mask(self) -> bool {
        self == IP_VERSION
    }

    /// Returns whether it is an address of another version of IP than the one that a mask is for.
    pub(super) fn is_of_other_version(self, mask: &MatchParameter) -> bool {
        let version = IP_VERSION.get(mask);
        matches!(self, SRC_IPV4 | DST_IPV4) && version != 4 || matches!(self, SRC_IPV6 | DST_IPV6) && version != 6
    }

    /// Returns the bits that are there.
    pub(super) fn get(self, parameter: &MatchParameter) -> u128 {
        if self.width == 128 {
            u128::from(parameter.get(self.at, 64)) << 64 | u128::from(parameter.get(self.at + 64, 64))
        } else {
            parameter.get(self.at, self.width).into()
        }
    }

    /// Puts the low bits of `value` there.
    #[expect(clippy::cast_possible_truncation, reason = "halves, and bits above the width are not put")]
    pub(super) fn put(self, parameter: &mut MatchParameter, value: u128) {
        if self.width == 128 {
            parameter.set(self.at, 64, (value >> 64) as u64);
            parameter.set(self.at + 64, 64, value as u64);
        } else {
            parameter.set(self.at, self.width, value as u64);
        }
    }

    /// Returns the number of bytes that a value has.
    pub(super) fn bytes(self) -> u32 {
        u32::try_from(self.width.div_ceil(8)).unwrap_or_default()
    }

    /// Returns where a byte of a value is, counted from its lowest: the word of 64 bits, and how far it is shifted there.
    pub(super) fn byte(self, byte: u32) -> (usize, usize) {
        let last = self.at + self.width - 8 * byte as usize - 1;
        (last / 64, 63 - last % 64)
    }

    /// Returns the bits that a value can have.
    pub(super) const fn full_mask(self) -> u128 {
        u128::MAX >> (128 - self.width)
    }
}

pub(super) const ETHERTYPE: Place = Place::new("outer.ethertype", 0x030, 16);
pub(super) const CVLAN_TAG: Place = Place::new("outer.cvlan_tag", 0x090, 1);
pub(super) const SVLAN_TAG: Place = Place::new("outer.svlan_tag", 0x091, 1);
pub(super) const FRAGMENT: Place = Place::new("outer.frag", 0x092, 1);
pub(super) const IP_VERSION: Place = Place::new("outer.ip_version", 0x093, 4);
pub(super) const SOURCE_PORT: Place = Place::new("misc.source_port", 0x230, 16);
pub(super) const SECOND_CVLAN_TAG: Place = Place::new("misc.outer_second_cvlan_tag", 0x260, 1);
pub(super) const SECOND_SVLAN_TAG: Place = Place::new("misc.outer_second_svlan_tag", 0x262, 1);

const SMAC: Place = Place::new("outer.smac", 0x000, 48);
const DMAC: Place = Place::new("outer.dmac", 0x040, 48);
const FIRST_PRIO: Place = Place::new("outer.first_prio", 0x070, 3);
const FIRST_VID: Place = Place::new("outer.first_vid", 0x074, 12);
const OUTER_SECOND_PRIO: Place = Place::new("misc.outer_second_prio", 0x240, 3);
const OUTER_SECOND_VID: Place = Place::new("misc.outer_second_vid", 0x244, 12);
pub(super) const IP_PROTOCOL: Place = Place::new("outer.ip_protocol", 0x080, 8);
const IP_DSCP_ECN: Place = Place::new("outer.ip_dscp_ecn", 0x088, 8);
const TTL_HOPLIMIT: Place = Place::new("outer.ttl_hoplimit", 0x0d8, 8);
pub(super) const SRC_IPV4: Place = Place::new("outer.src_ipv4", 0x160, 32);
pub(super) const DST_IPV4: Place = Place::new("outer.dst_ipv4", 0x1e0, 32);
pub(super) const SRC_IPV6: Place = Place::new("outer.src_ipv6", 0x100, 128);
pub(super) const DST_IPV6: Place = Place::new("outer.dst_ipv6", 0x180, 128);
const OUTER_IPV6_FLOW_LABEL: Place = Place::new("misc.outer_ipv6_flow_label", 0x2ec, 20);
pub(super) const TCP_FLAGS: Place = Place::new("outer.tcp_flags", 0x097, 9);
pub(super) const TCP_SPORT: Place = Place::new("outer.tcp_sport", 0x0a0, 16);
pub(super) const TCP_DPORT: Place = Place::new("outer.tcp_dport", 0x0b0, 16);
pub(super) const UDP_SPORT: Place = Place::new("outer.udp_sport", 0x0e0, 16);
pub(super) const UDP_DPORT: Place = Place::new("outer.udp_dport", 0x0f0, 16);
const ICMP_TYPE: Place = Place::new("misc3.icmp_type", 0x900, 8);
const ICMP_CODE: Place = Place::new("misc3.icmp_code", 0x908, 8);
const ICMPV6_TYPE: Place = Place::new("misc3.icmpv6_type", 0x910, 8);
const ICMPV6_CODE: Place = Place::new("misc3.icmpv6_code", 0x918, 8);
const ICMPV6_HEADER_DATA: Place = Place::new("misc3.icmpv6_header_data", 0x8e0, 32);
const MPLS_LABEL: Place = Place::new("misc2.outer_first_mpls_label", 0x600, 20);
const MPLS_EXP: Place = Place::new("misc2.outer_first_mpls_exp", 0x614, 3);
const MPLS_S_BOS: Place = Place::new("misc2.outer_first_mpls_s_bos", 0x617, 1);
const MPLS_TTL: Place = Place::new("misc2.outer_first_mpls_ttl", 0x618, 8);

/// Every field that a match may be on.
pub(super) const ALL: &[Place] = &[
    SMAC,
    DMAC,
    ETHERTYPE,
    FIRST_PRIO,
    FIRST_VID,
    CVLAN_TAG,
    SVLAN_TAG,
    OUTER_SECOND_PRIO,
    OUTER_SECOND_VID,
    SECOND_CVLAN_TAG,
    SECOND_SVLAN_TAG,
    SOURCE_PORT,
    IP_VERSION,
    FRAGMENT,
    IP_PROTOCOL,
    IP_DSCP_ECN,
    TTL_HOPLIMIT,
    SRC_IPV4,
    DST_IPV4,
    SRC_IPV6,
    DST_IPV6,
    OUTER_IPV6_FLOW_LABEL,
    TCP_FLAGS,
    TCP_SPORT,
    TCP_DPORT,
    UDP_SPORT,
    UDP_DPORT,
    ICMP_TYPE,
    ICMP_CODE,
    ICMPV6_TYPE,
    ICMPV6_CODE,
    ICMPV6_HEADER_DATA,
    MPLS_LABEL,
    MPLS_EXP,
    MPLS_S_BOS,
    MPLS_TTL,
    CT_STATE.place(),
    CT_ZONE.place(),
    CT_MARK.place(),
    CT_LABEL.place(),
];

/// Fields that the device matches as they are, under any mask of the bits that it has. What depends on the value of one besides is in
/// [`DECISIVE`].
const FIELDS: &[(Field, Place)] = &[
    (Field::EthSrc, SMAC),
    (Field::EthDst, DMAC),
    (Field::VlanPcp, FIRST_PRIO),
    (Field::VlanVid, FIRST_VID),
    (Field::CvlanPcp, OUTER_SECOND_PRIO),
    (Field::CvlanVid, OUTER_SECOND_VID),
    (Field::MplsLabel, MPLS_LABEL),
    (Field::MplsTc, MPLS_EXP),
    (Field::MplsTtl, MPLS_TTL),
    (Field::MplsBos, MPLS_S_BOS),
    (Field::Ipv4Proto, IP_PROTOCOL),
    // DSCP and ECN.
    (Field::Ipv4Tos, IP_DSCP_ECN),
    (Field::Ipv4Ttl, TTL_HOPLIMIT),
    (Field::Ipv4Src, SRC_IPV4),
    (Field::Ipv4Dst, DST_IPV4),
    (Field::Ipv6Proto, IP_PROTOCOL),
    (Field::Ipv6Tclass, IP_DSCP_ECN),
    (Field::Ipv6Hlimit, TTL_HOPLIMIT),
    (Field::Ipv6Src, SRC_IPV6),
    (Field::Ipv6Dst, DST_IPV6),
    (Field::Ipv6Label, OUTER_IPV6_FLOW_LABEL),
    (Field::TcpFlags, TCP_FLAGS),
    (Field::TcpSrc, TCP_SPORT),
    (Field::TcpDst, TCP_DPORT),
    (Field::UdpSrc, UDP_SPORT),
    (Field::UdpDst, UDP_DPORT),
    (Field::IcmpType, ICMP_TYPE),
    (Field::IcmpCode, ICMP_CODE),
    (Field::Icmpv6Type, ICMPV6_TYPE),
    (Field::Icmpv6Code, ICMPV6_CODE),
    // What a message has behind its checksum.
    (Field::NdReserved, ICMPV6_HEADER_DATA),
];

/// Fields on whose value more depends than what is matched: which headers follow, or whether a TTL can wrap.
const DECISIVE: &[Field] =
    &[Field::Ipv4Proto, Field::Ipv6Proto, Field::Ipv4Ttl, Field::Ipv6Hlimit, Field::Icmpv6Type, Field::Icmpv6Code];

/// Fields whose value goes into its place, and on which nothing else depends.
pub(super) fn plain() -> impl Iterator<Item = (Field, Place)> {
    FIELDS.iter().copied().filter(|(field, _)| !DECISIVE.contains(field))
}

/// The rows of an attribute.
pub(super) fn of_attribute(attribute: Attribute) -> impl Iterator<Item = (Field, Place)> {
    FIELDS.iter().copied().filter(move |(field, _)| field.spec().attribute == attribute)
}
