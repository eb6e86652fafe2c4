//! Where fields are in `fte_match_param` (PRM): first bit and width.

use sluice_flow::field::{Attribute, Field};

use crate::mlx5::MatchParameter;

/// A field of `fte_match_param`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    at: usize,
    width: usize,
}

impl Place {
    const fn new(at: usize, width: usize) -> Self {
        Self { at, width }
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

    /// Returns the bits that a value can have.
    pub(super) const fn full_mask(self) -> u128 {
        u128::MAX >> (128 - self.width)
    }
}

pub(super) const ETHERTYPE: Place = Place::new(0x030, 16);
pub(super) const CVLAN_TAG: Place = Place::new(0x090, 1);
pub(super) const SVLAN_TAG: Place = Place::new(0x091, 1);
pub(super) const FRAGMENT: Place = Place::new(0x092, 1);
pub(super) const IP_VERSION: Place = Place::new(0x093, 4);
pub(super) const SOURCE_PORT: Place = Place::new(0x230, 16);
pub(super) const SECOND_CVLAN_TAG: Place = Place::new(0x260, 1);
pub(super) const SECOND_SVLAN_TAG: Place = Place::new(0x262, 1);

/// Fields that the device matches as they are, under any mask of the bits that it has.
const FIELDS: &[(Field, Place)] = &[
    (Field::EthSrc, Place::new(0x000, 48)),
    (Field::EthDst, Place::new(0x040, 48)),
    (Field::VlanPcp, Place::new(0x070, 3)),
    (Field::VlanVid, Place::new(0x074, 12)),
    (Field::CvlanPcp, Place::new(0x240, 3)),
    (Field::CvlanVid, Place::new(0x244, 12)),
    (Field::Ipv4Proto, Place::new(0x080, 8)),
    // DSCP and ECN.
    (Field::Ipv4Tos, Place::new(0x088, 8)),
    (Field::Ipv4Ttl, Place::new(0x0d8, 8)),
    (Field::Ipv4Src, Place::new(0x160, 32)),
    (Field::Ipv4Dst, Place::new(0x1e0, 32)),
    (Field::Ipv6Proto, Place::new(0x080, 8)),
    (Field::Ipv6Tclass, Place::new(0x088, 8)),
    (Field::Ipv6Hlimit, Place::new(0x0d8, 8)),
    (Field::Ipv6Src, Place::new(0x100, 128)),
    (Field::Ipv6Dst, Place::new(0x180, 128)),
    (Field::Ipv6Label, Place::new(0x2ec, 20)),
    (Field::TcpFlags, Place::new(0x097, 9)),
    (Field::TcpSrc, Place::new(0x0a0, 16)),
    (Field::TcpDst, Place::new(0x0b0, 16)),
    (Field::UdpSrc, Place::new(0x0e0, 16)),
    (Field::UdpDst, Place::new(0x0f0, 16)),
    (Field::IcmpType, Place::new(0x900, 8)),
    (Field::IcmpCode, Place::new(0x908, 8)),
    (Field::Icmpv6Type, Place::new(0x910, 8)),
    (Field::Icmpv6Code, Place::new(0x918, 8)),
];

/// The rows of an attribute.
pub(super) fn of_attribute(attribute: Attribute) -> impl Iterator<Item = (Field, Place)> {
    FIELDS.iter().copied().filter(move |(field, _)| field.spec().attribute == attribute)
}
