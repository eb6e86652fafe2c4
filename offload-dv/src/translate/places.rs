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
        matches!(self, IP_VERSION | INNER_IP_VERSION)
    }

    /// Returns whether it is an address of another version of IP than the one that a mask is for.
    pub(super) fn is_of_other_version(self, mask: &MatchParameter) -> bool {
        let is_not = |place: Self, version| place.get(mask) != version;
        match self {
            SRC_IPV4 | DST_IPV4 => is_not(IP_VERSION, 4),
            SRC_IPV6 | DST_IPV6 => is_not(IP_VERSION, 6),
            INNER_SRC_IPV4 | INNER_DST_IPV4 => is_not(INNER_IP_VERSION, 4),
            INNER_SRC_IPV6 | INNER_DST_IPV6 => is_not(INNER_IP_VERSION, 6),
            _ => false,
        }
    }

    /// Returns the same field of the headers inside a tunnel; `None` if the device does not look for it there.
    pub(super) fn inside(self) -> Option<Self> {
        HEADERS.iter().chain(MISCELLANEOUS).find(|(outer, _)| *outer == self).map(|(_, inner)| *inner)
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

/// Bits between the headers outside a tunnel and those inside (`outer_headers` and `inner_headers` of `fte_match_param`).
const INSIDE: usize = 0x400;

/// Fields that the device finds outside a tunnel and inside: the names of both places, and the name and the first bit of the field.
macro_rules! headers {
    ($($visible:vis $outer:ident $inner:ident $name:literal $at:literal $width:literal;)*) => {
        $(
            $visible const $outer: Place = Place::new(concat!("outer.", $name), $at, $width);
            const $inner: Place = Place::new(concat!("inner.", $name), INSIDE + $at, $width);
        )*
        const HEADERS: &[(Place, Place)] = &[$(($outer, $inner)),*];
    };
}

headers! {
    SMAC INNER_SMAC "smac" 0x000 48;
    DMAC INNER_DMAC "dmac" 0x040 48;
    pub(super) ETHERTYPE INNER_ETHERTYPE "ethertype" 0x030 16;
    FIRST_PRIO INNER_FIRST_PRIO "first_prio" 0x070 3;
    FIRST_VID INNER_FIRST_VID "first_vid" 0x074 12;
    pub(super) CVLAN_TAG INNER_CVLAN_TAG "cvlan_tag" 0x090 1;
    pub(super) SVLAN_TAG INNER_SVLAN_TAG "svlan_tag" 0x091 1;
    pub(super) IP_VERSION INNER_IP_VERSION "ip_version" 0x093 4;
    pub(super) FRAGMENT INNER_FRAGMENT "frag" 0x092 1;
    pub(super) IP_PROTOCOL INNER_IP_PROTOCOL "ip_protocol" 0x080 8;
    pub(super) IP_DSCP_ECN INNER_IP_DSCP_ECN "ip_dscp_ecn" 0x088 8;
    pub(super) TTL_HOPLIMIT INNER_TTL_HOPLIMIT "ttl_hoplimit" 0x0d8 8;
    pub(super) SRC_IPV4 INNER_SRC_IPV4 "src_ipv4" 0x160 32;
    pub(super) DST_IPV4 INNER_DST_IPV4 "dst_ipv4" 0x1e0 32;
    pub(super) SRC_IPV6 INNER_SRC_IPV6 "src_ipv6" 0x100 128;
    pub(super) DST_IPV6 INNER_DST_IPV6 "dst_ipv6" 0x180 128;
    pub(super) TCP_FLAGS INNER_TCP_FLAGS "tcp_flags" 0x097 9;
    pub(super) TCP_SPORT INNER_TCP_SPORT "tcp_sport" 0x0a0 16;
    pub(super) TCP_DPORT INNER_TCP_DPORT "tcp_dport" 0x0b0 16;
    pub(super) UDP_SPORT INNER_UDP_SPORT "udp_sport" 0x0e0 16;
    pub(super) UDP_DPORT INNER_UDP_DPORT "udp_dport" 0x0f0 16;
}

pub(super) const SOURCE_PORT: Place = Place::new("misc.source_port", 0x230, 16);
pub(super) const SECOND_CVLAN_TAG: Place = Place::new("misc.outer_second_cvlan_tag", 0x260, 1);
pub(super) const SECOND_SVLAN_TAG: Place = Place::new("misc.outer_second_svlan_tag", 0x262, 1);
pub(super) const GRE_C_PRESENT: Place = Place::new("misc.gre_c_present", 0x200, 1);
pub(super) const GRE_K_PRESENT: Place = Place::new("misc.gre_k_present", 0x202, 1);
pub(super) const GRE_PROTOCOL: Place = Place::new("misc.gre_protocol", 0x270, 16);
/// Both parts of the key, which lie side by side.
pub(super) const GRE_KEY: Place = Place::new("misc.gre_key", 0x280, 32);
pub(super) const GENEVE_VNI: Place = Place::new("misc.geneve_vni", 0x2c0, 24);
/// Whether there is the option that the parser looks for.
pub(super) const GENEVE_OPTION_EXISTS: Place = Place::new("misc.geneve_tlv_option_0_exist", 0x2de, 1);
pub(super) const GENEVE_OAM: Place = Place::new("misc.geneve_oam", 0x2df, 1);
pub(super) const GENEVE_OPT_LEN: Place = Place::new("misc.geneve_opt_len", 0x32a, 6);
pub(super) const GENEVE_PROTOCOL_TYPE: Place = Place::new("misc.geneve_protocol_type", 0x330, 16);
/// The first word of data of that option.
pub(super) const GENEVE_OPTION_DATA: Place = Place::new("misc3.geneve_tlv_option_0_data", 0x920, 32);
/// The first words of a tunnel header over UDP, as they are.
pub(super) const TUNNEL_HEADER_0: Place = Place::new("misc5.tunnel_header_0", 0xc80, 32);
pub(super) const TUNNEL_HEADER_1: Place = Place::new("misc5.tunnel_header_1", 0xca0, 32);

const OUTER_SECOND_PRIO: Place = Place::new("misc.outer_second_prio", 0x240, 3);
const OUTER_SECOND_VID: Place = Place::new("misc.outer_second_vid", 0x244, 12);
const OUTER_IPV6_FLOW_LABEL: Place = Place::new("misc.outer_ipv6_flow_label", 0x2ec, 20);
const INNER_SECOND_PRIO: Place = Place::new("misc.inner_second_prio", 0x250, 3);
const INNER_SECOND_VID: Place = Place::new("misc.inner_second_vid", 0x254, 12);
const INNER_SECOND_CVLAN_TAG: Place = Place::new("misc.inner_second_cvlan_tag", 0x261, 1);
const INNER_SECOND_SVLAN_TAG: Place = Place::new("misc.inner_second_svlan_tag", 0x263, 1);
const INNER_IPV6_FLOW_LABEL: Place = Place::new("misc.inner_ipv6_flow_label", 0x30c, 20);
const ICMP_TYPE: Place = Place::new("misc3.icmp_type", 0x900, 8);
const ICMP_CODE: Place = Place::new("misc3.icmp_code", 0x908, 8);
const ICMPV6_TYPE: Place = Place::new("misc3.icmpv6_type", 0x910, 8);
const ICMPV6_CODE: Place = Place::new("misc3.icmpv6_code", 0x918, 8);
const ICMPV6_HEADER_DATA: Place = Place::new("misc3.icmpv6_header_data", 0x8e0, 32);
const MPLS_LABEL: Place = Place::new("misc2.outer_first_mpls_label", 0x600, 20);
const MPLS_EXP: Place = Place::new("misc2.outer_first_mpls_exp", 0x614, 3);
const MPLS_S_BOS: Place = Place::new("misc2.outer_first_mpls_s_bos", 0x617, 1);
const MPLS_TTL: Place = Place::new("misc2.outer_first_mpls_ttl", 0x618, 8);

/// The same of fields that are in the other blocks.
const MISCELLANEOUS: &[(Place, Place)] = &[
    (SECOND_CVLAN_TAG, INNER_SECOND_CVLAN_TAG),
    (SECOND_SVLAN_TAG, INNER_SECOND_SVLAN_TAG),
    (OUTER_SECOND_PRIO, INNER_SECOND_PRIO),
    (OUTER_SECOND_VID, INNER_SECOND_VID),
    (OUTER_IPV6_FLOW_LABEL, INNER_IPV6_FLOW_LABEL),
];

/// Fields of which there is one.
const SINGLE: &[Place] = &[
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
    GRE_C_PRESENT,
    GRE_K_PRESENT,
    GRE_PROTOCOL,
    GRE_KEY,
    GENEVE_VNI,
    GENEVE_OPTION_EXISTS,
    GENEVE_OPTION_DATA,
    GENEVE_OAM,
    GENEVE_OPT_LEN,
    GENEVE_PROTOCOL_TYPE,
    TUNNEL_HEADER_0,
    TUNNEL_HEADER_1,
];

/// Returns every field that a match may be on, from the port over the headers outside to those inside.
pub(super) fn all() -> impl Iterator<Item = Place> {
    let pairs = || HEADERS.iter().chain(MISCELLANEOUS);
    let outside = std::iter::once(SOURCE_PORT).chain(pairs().map(|(outer, _)| *outer));
    outside.chain(SINGLE.iter().copied()).chain(pairs().map(|(_, inner)| *inner))
}

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

/// Fields on whose value more depends than what is matched: which headers follow, whether a TTL can wrap, or which mark of congestion an
/// outer header gets.
const DECISIVE: &[Field] = &[
    Field::Ipv4Proto,
    Field::Ipv6Proto,
    Field::Ipv4Tos,
    Field::Ipv6Tclass,
    Field::Ipv4Ttl,
    Field::Ipv6Hlimit,
    Field::Icmpv6Type,
    Field::Icmpv6Code,
];

/// Fields whose value goes into its place, and on which nothing else depends.
pub(super) fn plain() -> impl Iterator<Item = (Field, Place)> {
    FIELDS.iter().copied().filter(|(field, _)| !DECISIVE.contains(field))
}

/// The rows of an attribute.
pub(super) fn of_attribute(attribute: Attribute) -> impl Iterator<Item = (Field, Place)> {
    FIELDS.iter().copied().filter(move |(field, _)| field.spec().attribute == attribute)
}
