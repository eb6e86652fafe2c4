//! Adding and removing headers: VLAN tags and Ethernet headers (`act_vlan`), label stack entries (`act_mpls`); and the
//! checksums to update then (`act_csum`).

use sluice_netdev::netlink::attribute::{Attributes, Fields, Malformed, Writer};

use super::common::{Common, without_parameters};

/// Bits of `act_csum` (`TCA_CSUM_UPDATE_FLAG_*`).
pub mod checksum {
    /// The IPv4 header.
    pub const IPV4_HEADER: u32 = 1;
    /// ICMP and ICMPv6.
    pub const ICMP: u32 = 2;
    /// IGMP.
    pub const IGMP: u32 = 4;
    /// TCP.
    pub const TCP: u32 = 8;
    /// UDP, if the packet has a checksum.
    pub const UDP: u32 = 16;
    /// UDP-Lite.
    pub const UDP_LITE: u32 = 32;
    /// The CRC of SCTP.
    pub const SCTP: u32 = 64;
}

const PARAMETERS: u16 = 2;
const VLAN_ID: u16 = 3;
const VLAN_PROTOCOL: u16 = 4;
const VLAN_PRIORITY: u16 = 6;
const ETHERNET_DESTINATION: u16 = 7;
const ETHERNET_SOURCE: u16 = 8;
const MPLS_PROTOCOL: u16 = 4;
const MPLS_LABEL: u16 = 5;
const MPLS_CLASS: u16 = 6;
const MPLS_TTL: u16 = 7;
const MPLS_BOTTOM: u16 = 8;

/// What `act_vlan` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// Pops the outermost tag.
    Pop,
    /// Pushes a tag.
    Push {
        /// TPID.
        protocol: u16,
        /// VLAN id.
        id: u16,
        /// PCP.
        priority: u8,
    },
    /// Changes the outermost tag.
    Modify {
        /// VLAN id.
        id: u16,
        /// TPID.
        protocol: u16,
        /// PCP; `None` leaves it as it is.
        priority: Option<u8>,
    },
    /// Pops the Ethernet header.
    PopEthernet,
    /// Pushes an Ethernet header.
    PushEthernet {
        /// Destination.
        destination: [u8; 6],
        /// Source.
        source: [u8; 6],
    },
}

impl Vlan {
    pub(super) fn emit(self, common: Common, writer: &mut Writer<'_>) {
        let action: i32 = match self {
            Self::Pop => 1,
            Self::Push { .. } => 2,
            Self::Modify { .. } => 3,
            Self::PopEthernet => 4,
            Self::PushEthernet { .. } => 5,
        };
        common.put(PARAMETERS, writer, |writer| writer.raw(&action.to_ne_bytes()));
        match self {
            Self::Pop | Self::PopEthernet => {}
            Self::Push { protocol, id, priority } => put_tag(protocol, id, Some(priority), writer),
            Self::Modify { protocol, id, priority } => put_tag(protocol, id, priority, writer),
            Self::PushEthernet { destination, source } => {
                writer.put(ETHERNET_DESTINATION, &destination);
                writer.put(ETHERNET_SOURCE, &source);
            }
        }
    }

    pub(super) fn parse(options: Attributes<'_>) -> Result<(Self, Common), Malformed> {
        let (mut parameters, mut id, mut protocol, mut priority) = (None, 0, 0, None);
        let (mut destination, mut source) = ([0; 6], [0; 6]);
        for attribute in options {
            let attribute = attribute?;
            match attribute.kind {
                PARAMETERS => {
                    let mut fields = Fields::new(attribute.payload, "vlan");
                    parameters = Some((Common::read(&mut fields)?, fields.i32()?, attribute));
                }
                VLAN_ID => id = attribute.u16()?,
                VLAN_PROTOCOL => protocol = attribute.be16()?,
                VLAN_PRIORITY => priority = Some(attribute.u8()?),
                ETHERNET_DESTINATION => destination = attribute.bytes()?,
                ETHERNET_SOURCE => source = attribute.bytes()?,
                1 | 5 => {}
                _ => return Err(attribute.unknown()),
            }
        }
        let (common, action, attribute) = parameters.ok_or(without_parameters("vlan", PARAMETERS))?;
        let found = match action {
            1 => Self::Pop,
            2 => Self::Push { protocol, id, priority: priority.unwrap_or_default() },
            3 => Self::Modify { protocol, id, priority },
            4 => Self::PopEthernet,
            5 => Self::PushEthernet { destination, source },
            other => return Err(attribute.value(other.to_string())),
        };
        Ok((found, common))
    }
}

fn put_tag(protocol: u16, id: u16, priority: Option<u8>, writer: &mut Writer<'_>) {
    writer.put(VLAN_ID, &id.to_ne_bytes());
    writer.put(VLAN_PROTOCOL, &protocol.to_be_bytes());
    if let Some(priority) = priority {
        writer.put(VLAN_PRIORITY, &[priority]);
    }
}

/// What `act_mpls` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpls {
    /// Pops the outermost entry.
    Pop {
        /// The packet's Ethernet type afterwards.
        protocol: u16,
    },
    /// Pushes an entry behind the Ethernet header.
    Push(Entry),
    /// Changes fields of the outermost entry, without the Ethernet type.
    Modify(Entry),
    /// Decrements the TTL.
    DecrementTtl,
    /// Pushes an entry in front of the Ethernet header.
    PushOutside(Entry),
}

/// A label stack entry; `None` for fields that are not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The packet's Ethernet type afterwards, 0x8847 or 0x8848.
    pub protocol: Option<u16>,
    /// Label.
    pub label: Option<u32>,
    /// Traffic class.
    pub class: Option<u8>,
    /// TTL, not 0.
    pub ttl: Option<u8>,
    /// The bottom-of-stack bit; `None` lets the kernel compute it.
    pub bottom: Option<bool>,
}

impl Mpls {
    pub(super) fn emit(self, common: Common, writer: &mut Writer<'_>) {
        let (action, entry) = match self {
            Self::Pop { protocol } => (1i32, Entry { protocol: Some(protocol), ..Entry::default() }),
            Self::Push(entry) => (2, entry),
            Self::Modify(entry) => (3, entry),
            Self::DecrementTtl => (4, Entry::default()),
            Self::PushOutside(entry) => (5, entry),
        };
        common.put(PARAMETERS, writer, |writer| writer.raw(&action.to_ne_bytes()));
        if let Some(protocol) = entry.protocol {
            writer.put(MPLS_PROTOCOL, &protocol.to_be_bytes());
        }
        if let Some(label) = entry.label {
            writer.put(MPLS_LABEL, &label.to_ne_bytes());
        }
        if let Some(class) = entry.class {
            writer.put(MPLS_CLASS, &[class]);
        }
        if let Some(ttl) = entry.ttl {
            writer.put(MPLS_TTL, &[ttl]);
        }
        if let Some(bottom) = entry.bottom {
            writer.put(MPLS_BOTTOM, &[u8::from(bottom)]);
        }
    }

    pub(super) fn parse(options: Attributes<'_>) -> Result<(Self, Common), Malformed> {
        let (mut parameters, mut entry) = (None, Entry::default());
        for attribute in options {
            let attribute = attribute?;
            match attribute.kind {
                PARAMETERS => {
                    let mut fields = Fields::new(attribute.payload, "mpls");
                    parameters = Some((Common::read(&mut fields)?, fields.i32()?, attribute));
                }
                MPLS_PROTOCOL => entry.protocol = Some(attribute.be16()?),
                MPLS_LABEL => entry.label = Some(attribute.u32()?),
                MPLS_CLASS => entry.class = Some(attribute.u8()?),
                MPLS_TTL => entry.ttl = Some(attribute.u8()?),
                MPLS_BOTTOM => entry.bottom = Some(attribute.u8()? != 0),
                1 | 3 => {}
                _ => return Err(attribute.unknown()),
            }
        }
        let (common, action, attribute) = parameters.ok_or(without_parameters("mpls", PARAMETERS))?;
        let found = match action {
            1 => Self::Pop { protocol: entry.protocol.unwrap_or_default() },
            2 => Self::Push(entry),
            // The kernel shows an Ethernet type that it does not set.
            3 => Self::Modify(Entry { protocol: None, ..entry }),
            4 => Self::DecrementTtl,
            5 => Self::PushOutside(entry),
            other => return Err(attribute.value(other.to_string())),
        };
        Ok((found, common))
    }
}
