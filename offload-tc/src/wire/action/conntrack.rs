//! Connection tracking (`act_ct`, `include/uapi/linux/tc_act/tc_ct.h`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_netdev::netlink::attribute::{Attributes, Fields, Malformed, Writer};

use super::common::{Common, without_parameters};

/// Bits of [`Conntrack::bits`] (`TCA_CT_ACT_*`).
pub mod bit {
    /// The connection is committed.
    pub const COMMIT: u16 = 1;
    /// An existing connection of the other direction is replaced.
    pub const FORCE: u16 = 2;
    /// The packet's connection is forgotten, and nothing else is done.
    pub const CLEAR: u16 = 4;
    /// Addresses are translated as when the connection was committed, unless another bit says how.
    pub const NAT: u16 = 8;
    /// The source is translated.
    pub const NAT_SOURCE: u16 = 16;
    /// The destination is translated.
    pub const NAT_DESTINATION: u16 = 32;
}

const PARAMETERS: u16 = 1;
const ACTION: u16 = 3;
const ZONE: u16 = 4;
const MARK: u16 = 5;
const MARK_MASK: u16 = 6;
const LABELS: u16 = 7;
const LABELS_MASK: u16 = 8;
const IPV4_FIRST: u16 = 9;
const IPV4_LAST: u16 = 10;
const IPV6_FIRST: u16 = 11;
const IPV6_LAST: u16 = 12;
const PORT_FIRST: u16 = 13;
const PORT_LAST: u16 = 14;
const HELPER_NAME: u16 = 16;
const HELPER_FAMILY: u16 = 17;
const HELPER_PROTOCOL: u16 = 18;

/// What `act_ct` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Bits of [`bit`].
    pub bits: u16,
    /// The zone.
    pub zone: u16,
    /// Value and mask of the mark that is set.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of the label that is set.
    pub label: Option<(u128, u128)>,
    /// The addresses and ports to translate to.
    pub translation: Translation,
    /// The helper, which expects further connections; Linux 6.2 and later.
    pub helper: Option<Helper>,
}

/// A connection tracking helper, which the kernel finds by all three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// The name, such as `ftp`.
    pub name: Box<str>,
    /// The address family.
    pub family: Family,
    /// The IP protocol.
    pub protocol: u8,
}

/// An address family (`NFPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4 = 2,
    /// IPv6.
    Ipv6 = 10,
}

/// A range of addresses and of ports, each with first and last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// Addresses of one family.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// Ports.
    pub ports: Option<(u16, u16)>,
}

impl Conntrack {
    pub(super) fn emit(&self, common: Common, writer: &mut Writer<'_>) {
        common.put(PARAMETERS, writer, |_| ());
        writer.put(ACTION, &self.bits.to_ne_bytes());
        if self.zone != 0 {
            writer.put(ZONE, &self.zone.to_ne_bytes());
        }
        if let Some((mark, mask)) = self.mark {
            writer.put(MARK, &mark.to_ne_bytes());
            writer.put(MARK_MASK, &mask.to_ne_bytes());
        }
        if let Some((label, mask)) = self.label {
            writer.put(LABELS, &label.to_ne_bytes());
            writer.put(LABELS_MASK, &mask.to_ne_bytes());
        }
        match self.translation.addresses {
            Some((IpAddr::V4(first), IpAddr::V4(last))) => {
                writer.put(IPV4_FIRST, &first.octets());
                writer.put(IPV4_LAST, &last.octets());
            }
            Some((IpAddr::V6(first), IpAddr::V6(last))) => {
                writer.put(IPV6_FIRST, &first.octets());
                writer.put(IPV6_LAST, &last.octets());
            }
            // Translation refuses a range of two families.
            Some(_) | None => {}
        }
        if let Some((first, last)) = self.translation.ports {
            writer.put(PORT_FIRST, &first.to_be_bytes());
            writer.put(PORT_LAST, &last.to_be_bytes());
        }
        if let Some(Helper { name, family, protocol }) = &self.helper {
            writer.put_text(HELPER_NAME, name);
            writer.put(HELPER_FAMILY, &[*family as u8]);
            writer.put(HELPER_PROTOCOL, &[*protocol]);
        }
    }

    pub(super) fn parse(options: Attributes<'_>) -> Result<(Self, Common), Malformed> {
        let (mut common, mut found) = (None, Self::default());
        let (mut first, mut last) = (None, None);
        let mut helper = Helper { name: Box::default(), family: Family::Ipv4, protocol: 0 };
        let (mut ports, mut mark_mask, mut label_mask) = ([None; 2], u32::MAX, u128::MAX);
        for attribute in options {
            let attribute = attribute?;
            match attribute.kind {
                PARAMETERS => common = Some(Common::read(&mut Fields::new(attribute.payload, "ct"))?),
                ACTION => found.bits = attribute.u16()?,
                ZONE => found.zone = attribute.u16()?,
                MARK => found.mark = Some((attribute.u32()?, 0)),
                MARK_MASK => mark_mask = attribute.u32()?,
                LABELS => found.label = Some((u128::from_ne_bytes(attribute.bytes()?), 0)),
                LABELS_MASK => label_mask = u128::from_ne_bytes(attribute.bytes()?),
                IPV4_FIRST => first = Some(Ipv4Addr::from(attribute.bytes::<4>()?).into()),
                IPV4_LAST => last = Some(Ipv4Addr::from(attribute.bytes::<4>()?).into()),
                IPV6_FIRST => first = Some(Ipv6Addr::from(attribute.bytes::<16>()?).into()),
                IPV6_LAST => last = Some(Ipv6Addr::from(attribute.bytes::<16>()?).into()),
                PORT_FIRST => ports[0] = Some(attribute.be16()?),
                PORT_LAST => ports[1] = Some(attribute.be16()?),
                HELPER_NAME => helper.name = attribute.text()?.into(),
                HELPER_FAMILY => {
                    helper.family = match attribute.u8()? {
                        2 => Family::Ipv4,
                        10 => Family::Ipv6,
                        other => return Err(attribute.value(other.to_string())),
                    }
                }
                HELPER_PROTOCOL => helper.protocol = attribute.u8()?,
                2 | 15 => {}
                _ => return Err(attribute.unknown()),
            }
        }
        found.helper = Some(helper).filter(|helper| !helper.name.is_empty());
        found.mark = found.mark.map(|(mark, _)| (mark, mark_mask));
        found.label = found.label.map(|(label, _)| (label, label_mask));
        // For a single address the kernel takes, and shows, no last one.
        found.translation.addresses = first.map(|first| (first, last.unwrap_or(first)));
        found.translation.ports = ports[0].map(|first| (first, ports[1].unwrap_or(first)));
        Ok((found, common.ok_or(without_parameters("ct", PARAMETERS))?))
    }
}
