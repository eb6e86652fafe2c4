//! Which key of flower stands for which field: one table for both directions.

use sluice_flow::field::{Attribute, Field};

use crate::label::Spelling;
use crate::wire::key::Key;

/// Fields that flower matches as they are, with any mask unless the key has none.
pub(super) const FIELDS: &[(Field, Key)] = &[
    (Field::EthSrc, Key::EthSrc),
    (Field::EthDst, Key::EthDst),
    (Field::CtZone, Key::CtZone),
    (Field::CtMark, Key::CtMark),
    (Field::CtLabel, Key::CtLabel),
    (Field::VlanVid, Key::VlanId),
    (Field::VlanPcp, Key::VlanPrio),
    (Field::CvlanVid, Key::CvlanId),
    (Field::CvlanPcp, Key::CvlanPrio),
    (Field::Ipv4Src, Key::Ipv4Src),
    (Field::Ipv4Dst, Key::Ipv4Dst),
    (Field::Ipv4Proto, Key::IpProto),
    (Field::Ipv4Tos, Key::IpTos),
    (Field::Ipv4Ttl, Key::IpTtl),
    (Field::Ipv6Src, Key::Ipv6Src),
    (Field::Ipv6Dst, Key::Ipv6Dst),
    (Field::Ipv6Proto, Key::IpProto),
    (Field::Ipv6Tclass, Key::IpTos),
    (Field::Ipv6Hlimit, Key::IpTtl),
    (Field::TcpSrc, Key::TcpSrc),
    (Field::TcpDst, Key::TcpDst),
    (Field::TcpFlags, Key::TcpFlags),
    (Field::UdpSrc, Key::UdpSrc),
    (Field::UdpDst, Key::UdpDst),
    (Field::SctpSrc, Key::SctpSrc),
    (Field::SctpDst, Key::SctpDst),
    (Field::IcmpType, Key::IcmpType),
    (Field::IcmpCode, Key::IcmpCode),
    (Field::Icmpv6Type, Key::Icmpv6Type),
    (Field::Icmpv6Code, Key::Icmpv6Code),
    (Field::PppoeSession, Key::PppoeSession),
    (Field::PppProtocol, Key::PppProtocol),
    (Field::L2tpv3Session, Key::L2tpv3Session),
    (Field::IpsecSpi, Key::Spi),
    (Field::ArpSip, Key::ArpSip),
    (Field::ArpTip, Key::ArpTip),
    (Field::ArpSha, Key::ArpSha),
    (Field::ArpTha, Key::ArpTha),
    (Field::TunnelIpv4Src, Key::EncIpv4Src),
    (Field::TunnelIpv4Dst, Key::EncIpv4Dst),
    (Field::TunnelIpv6Src, Key::EncIpv6Src),
    (Field::TunnelIpv6Dst, Key::EncIpv6Dst),
    (Field::TunnelTos, Key::EncTos),
    (Field::TunnelTtl, Key::EncTtl),
    (Field::TunnelTpSrc, Key::EncUdpSrc),
    (Field::TunnelTpDst, Key::EncUdpDst),
];

/// Fields on whose value more depends than a key: which headers follow, whether a TTL can wrap, or a refusal.
const DECISIVE: &[Field] = &[Field::Ipv4Proto, Field::Ipv6Proto, Field::Ipv4Ttl, Field::Ipv6Hlimit, Field::IpsecSpi];

/// Fields whose value goes into a key, and on which nothing else depends. A key may have only the field's lower bytes.
pub(crate) fn plain() -> impl Iterator<Item = (Field, Key)> {
    let rows = FIELDS.iter().copied().filter(|(field, _)| !DECISIVE.contains(field));
    // The upper half of an identifier must be zero.
    rows.chain([(Field::TunnelId, Key::EncKeyId)])
}

/// Headers that flower leaves unread in some packets, whose fields are zeros to it: the transport header of first fragments,
/// and ARP other than requests and replies. A match on nothing but zeros in one of them may be refused.
pub(crate) const MAY_BE_UNREAD: [&[Attribute]; 2] = [
    &[
        Attribute::Tcp,
        Attribute::TcpFlags,
        Attribute::Udp,
        Attribute::Sctp,
        Attribute::Icmp,
        Attribute::Icmpv6,
        Attribute::L2tpv3,
        Attribute::Ipsec,
    ],
    &[Attribute::Arp],
];

/// The rows of an attribute.
pub(super) fn of_attribute(attribute: Attribute) -> impl Iterator<Item = (Field, Key)> {
    FIELDS.iter().copied().filter(move |(field, _)| field.spec().attribute == attribute)
}

/// Connection states of OVS and flower (`OVS_CS_F_*`, `TCA_FLOWER_KEY_CT_FLAGS_*`).
pub(super) const STATES: &[(u8, u16)] = &[(0x01, 1), (0x02, 2), (0x04, 4), (0x20, 8), (0x10, 16), (0x08, 32)];
/// `OVS_CS_F_NEW`
pub(super) const NEW: u8 = 0x01;
/// `OVS_CS_F_ESTABLISHED`
pub(super) const ESTABLISHED: u8 = 0x02;
/// `OVS_CS_F_RELATED`
pub(super) const RELATED: u8 = 0x04;
/// `OVS_CS_F_TRACKED`
pub(super) const TRACKED: u8 = 0x20;

/// Flags of the outer header in OVS and flower (`TCA_FLOWER_KEY_FLAGS_TUNNEL_*`): checksum, don't fragment, OAM.
pub(super) const TUNNEL_FLAGS: &[(u8, u8)] = &[(CHECKSUM, 4), (DONT_FRAGMENT, 8), (8, 16)];
/// Flags that OVS's own tc offload ignores where the kernel does not know them: name, bit, and the bits of the spelling for
/// match and value.
pub(super) const PASSED_OVER: &[(&str, u8, Spelling, Spelling)] = &[
    ("df", DONT_FRAGMENT, Spelling::DF_MATCHED, Spelling::DF_IS_SET),
    ("csum", CHECKSUM, Spelling::CHECKSUM_MATCHED, Spelling::CHECKSUM_IS_SET),
];
/// The don't-fragment flag of the outer header.
pub(super) const DONT_FRAGMENT: u8 = 1;
/// The checksum flag of the outer header.
pub(super) const CHECKSUM: u8 = 2;
/// The key flag of the outer header.
pub(super) const TUNNEL_KEY: u8 = 4;

/// `TCA_FLOWER_KEY_FLAGS_IS_FRAGMENT`
pub(super) const FRAGMENT: u128 = 1;
/// `TCA_FLOWER_KEY_FLAGS_FRAG_IS_FIRST`
pub(super) const FIRST_FRAGMENT: u128 = 2;

/// Option fields that are wider than in the header, with the bits that the header has, and the spelling of a match on all
/// bits.
pub(super) const NARROW: &[(Field, u8, Spelling)] = &[
    // Don't learn, and policy applied (`VXLAN_GBP_MASK`).
    (Field::VxlanGbpFlags, 0x48, Spelling::WHOLE_POLICY),
    (Field::ErspanDirection, 0x01, Spelling::WHOLE_DIRECTION),
    (Field::ErspanHardwareId, 0x3f, Spelling::WHOLE_HARDWARE),
];

/// The bits of an ARP operation that OVS reads.
pub(super) const NARROW_OPERATION: u128 = 0xff;

/// Ethernet types.
pub(super) mod ethernet {
    pub(in crate::translate) const IPV4: u16 = 0x0800;
    pub(in crate::translate) const ARP: u16 = 0x0806;
    pub(in crate::translate) const TAG: u16 = 0x8100;
    pub(in crate::translate) const IPV6: u16 = 0x86dd;
    pub(in crate::translate) const MPLS: u16 = 0x8847;
    pub(in crate::translate) const MPLS_MULTICAST: u16 = 0x8848;
    pub(in crate::translate) const SERVICE_TAG: u16 = 0x88a8;
    pub(in crate::translate) const PPPOE_SESSION: u16 = 0x8864;
    pub(in crate::translate) const CFM: u16 = 0x8902;
    /// Smaller numbers are lengths (IEEE 802.3).
    pub(in crate::translate) const FIRST: u16 = 0x0600;
}

/// IP protocols.
pub(super) mod protocol {
    pub(in crate::translate) const ICMP: u8 = 1;
    pub(in crate::translate) const IGMP: u8 = 2;
    pub(in crate::translate) const IPIP: u8 = 4;
    pub(in crate::translate) const TCP: u8 = 6;
    pub(in crate::translate) const UDP: u8 = 17;
    pub(in crate::translate) const IPV6_FRAGMENT: u8 = 44;
    pub(in crate::translate) const GRE: u8 = 47;
    pub(in crate::translate) const ESP: u8 = 50;
    pub(in crate::translate) const AH: u8 = 51;
    pub(in crate::translate) const ICMPV6: u8 = 58;
    pub(in crate::translate) const L2TP: u8 = 115;
    pub(in crate::translate) const SCTP: u8 = 132;
    pub(in crate::translate) const UDP_LITE: u8 = 136;
}
