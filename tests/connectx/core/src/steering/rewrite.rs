//! Modify-header contexts: lists of set, add and copy, and the fields that they work on.

use super::domain::TableKind;
use super::key::Metadata;
use super::layout::rewrite as list;
use crate::packet::{Headers, Layer, Transport, TunnelKind, edit};

#[derive(Debug)]
pub(super) struct Rewrite {
    pub(super) kind: TableKind,
    pub(super) actions: Vec<Action>,
}

/// One action of a list. Offsets and lengths are in bits, from the low end of the field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Set { field: &'static Field, offset: u32, length: u32, data: u32 },
    Add { field: &'static Field, data: u32 },
    Copy { from: &'static Field, from_offset: u32, to: &'static Field, to_offset: u32, length: u32 },
}

/// A field that can be rewritten.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) id: u16,
    pub(super) name: &'static str,
    width: u32,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outer(Part),
    Inner(Part),
    /// Of GTP-U.
    Endpoint,
    RegisterA,
    RegisterB,
    RegisterC(usize),
}

/// Part of a layer's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// From this byte of the Ethernet header on.
    Ethernet(usize),
    Ethertype,
    FirstTci,
    Dscp,
    Ecn,
    Ttl,
    HopLimit,
    /// From this byte of the header on.
    Ipv4(usize),
    Ipv6(usize),
    Tcp(usize),
    TcpFlags,
    Udp(usize),
}

const fn field(id: u16, name: &'static str, width: u32, place: Place) -> Field {
    Field { id, name, width, place }
}

/// Of the fields, the one that the flexible parser finds.
pub(super) const GTPU_ENDPOINT: u16 = 0x6e;

/// By PRM field id. Fields of the device that are not here are refused.
static FIELDS: [Field; 60] = {
    use Part::*;
    use Place::*;
    [
        field(0x01, "outer.smac_47_16", 32, Outer(Ethernet(6))),
        field(0x02, "outer.smac_15_0", 16, Outer(Ethernet(10))),
        field(0x03, "outer.ethertype", 16, Outer(Ethertype)),
        field(0x04, "outer.dmac_47_16", 32, Outer(Ethernet(0))),
        field(0x05, "outer.dmac_15_0", 16, Outer(Ethernet(4))),
        field(0x06, "outer.ip_dscp", 6, Outer(Dscp)),
        field(0x07, "outer.tcp_flags", 9, Outer(TcpFlags)),
        field(0x08, "outer.tcp_sport", 16, Outer(Tcp(0))),
        field(0x09, "outer.tcp_dport", 16, Outer(Tcp(2))),
        field(0x0a, "outer.ip_ttl", 8, Outer(Ttl)),
        field(0x0b, "outer.udp_sport", 16, Outer(Udp(0))),
        field(0x0c, "outer.udp_dport", 16, Outer(Udp(2))),
        field(0x0d, "outer.sipv6_127_96", 32, Outer(Ipv6(8))),
        field(0x0e, "outer.sipv6_95_64", 32, Outer(Ipv6(12))),
        field(0x0f, "outer.sipv6_63_32", 32, Outer(Ipv6(16))),
        field(0x10, "outer.sipv6_31_0", 32, Outer(Ipv6(20))),
        field(0x11, "outer.dipv6_127_96", 32, Outer(Ipv6(24))),
        field(0x12, "outer.dipv6_95_64", 32, Outer(Ipv6(28))),
        field(0x13, "outer.dipv6_63_32", 32, Outer(Ipv6(32))),
        field(0x14, "outer.dipv6_31_0", 32, Outer(Ipv6(36))),
        field(0x15, "outer.sipv4", 32, Outer(Ipv4(12))),
        field(0x16, "outer.dipv4", 32, Outer(Ipv4(16))),
        field(0x17, "outer.first_vid", 16, Outer(FirstTci)),
        field(0x31, "inner.smac_47_16", 32, Inner(Ethernet(6))),
        field(0x32, "inner.smac_15_0", 16, Inner(Ethernet(10))),
        field(0x33, "inner.ethertype", 16, Inner(Ethertype)),
        field(0x34, "inner.dmac_47_16", 32, Inner(Ethernet(0))),
        field(0x35, "inner.dmac_15_0", 16, Inner(Ethernet(4))),
        field(0x36, "inner.ip_dscp", 6, Inner(Dscp)),
        field(0x37, "inner.tcp_flags", 9, Inner(TcpFlags)),
        field(0x38, "inner.tcp_sport", 16, Inner(Tcp(0))),
        field(0x39, "inner.tcp_dport", 16, Inner(Tcp(2))),
        field(0x3a, "inner.ip_ttl", 8, Inner(Ttl)),
        field(0x3b, "inner.udp_sport", 16, Inner(Udp(0))),
        field(0x3c, "inner.udp_dport", 16, Inner(Udp(2))),
        field(0x3d, "inner.sipv6_127_96", 32, Inner(Ipv6(8))),
        field(0x3e, "inner.sipv6_95_64", 32, Inner(Ipv6(12))),
        field(0x3f, "inner.sipv6_63_32", 32, Inner(Ipv6(16))),
        field(0x40, "inner.sipv6_31_0", 32, Inner(Ipv6(20))),
        field(0x41, "inner.dipv6_127_96", 32, Inner(Ipv6(24))),
        field(0x42, "inner.dipv6_95_64", 32, Inner(Ipv6(28))),
        field(0x43, "inner.dipv6_63_32", 32, Inner(Ipv6(32))),
        field(0x44, "inner.dipv6_31_0", 32, Inner(Ipv6(36))),
        field(0x45, "inner.sipv4", 32, Inner(Ipv4(12))),
        field(0x46, "inner.dipv4", 32, Inner(Ipv4(16))),
        field(0x47, "outer.ipv6_hoplimit", 8, Outer(HopLimit)),
        field(0x49, "metadata_reg_a", 32, RegisterA),
        field(0x50, "metadata_reg_b", 32, RegisterB),
        field(0x51, "metadata_reg_c_0", 32, RegisterC(0)),
        field(0x52, "metadata_reg_c_1", 32, RegisterC(1)),
        field(0x53, "metadata_reg_c_2", 32, RegisterC(2)),
        field(0x54, "metadata_reg_c_3", 32, RegisterC(3)),
        field(0x55, "metadata_reg_c_4", 32, RegisterC(4)),
        field(0x56, "metadata_reg_c_5", 32, RegisterC(5)),
        field(0x57, "metadata_reg_c_6", 32, RegisterC(6)),
        field(0x58, "metadata_reg_c_7", 32, RegisterC(7)),
        field(0x59, "outer.tcp_seq_num", 32, Outer(Tcp(4))),
        field(0x5b, "outer.tcp_ack_num", 32, Outer(Tcp(8))),
        field(GTPU_ENDPOINT, "gtpu_teid", 32, Endpoint),
        field(0x73, "outer.ip_ecn", 2, Outer(Ecn)),
    ]
};

/// What an action changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The field's name.
    pub field: &'static str,
    /// Its value before and after; None if the packet has no such field, which changes nothing.
    pub change: Option<(u32, u32)>,
}

impl Action {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        // A length of 0 stands for 32.
        let length = match list::LENGTH.u32(bytes) {
            0 => 32,
            length => length,
        };
        let field = find(list::FIELD.u16(bytes))?;
        let offset = list::OFFSET.u32(bytes);
        match list::ACTION_TYPE.u8(bytes) {
            1 => {
                field.holds(offset, length)?;
                Ok(Self::Set { field, offset, length, data: list::DATA.u32(bytes) })
            }
            2 => Ok(Self::Add { field, data: list::DATA.u32(bytes) }),
            3 => {
                let to = find(list::DESTINATION_FIELD.u16(bytes))?;
                let to_offset = list::DESTINATION_OFFSET.u32(bytes);
                field.holds(offset, length)?;
                to.holds(to_offset, length)?;
                Ok(Self::Copy { from: field, from_offset: offset, to, to_offset, length })
            }
            kind => Err(format!("type {kind} is not one that is modelled")),
        }
    }

    /// Works on a packet; `headers` stay true, since no header moves.
    pub(super) fn apply(&self, frame: &mut [u8], headers: &Headers, metadata: &mut Metadata) -> Rewritten {
        let (to, new) = match *self {
            Self::Set { field, offset, length, data } => {
                (field, field.read(frame, headers, metadata).map(|old| (old, merge(old, data, offset, length))))
            }
            Self::Add { field, data } => (
                field,
                field.read(frame, headers, metadata).map(|old| (old, old.wrapping_add(data) & ones(field.width))),
            ),
            Self::Copy { from, from_offset, to, to_offset, length } => {
                let source = from.read(frame, headers, metadata);
                let old = to.read(frame, headers, metadata);
                (to, source.zip(old).map(|(source, old)| (old, merge(old, source >> from_offset, to_offset, length))))
            }
        };
        let change = new.filter(|(_, new)| to.write(frame, headers, metadata, *new));
        Rewritten { field: to.name, change }
    }
}

impl Field {
    pub(super) fn holds(&self, offset: u32, length: u32) -> Result<(), String> {
        if offset + length > self.width {
            return Err(format!("{} has {} bits, not {length} from bit {offset}", self.name, self.width));
        }
        Ok(())
    }

    fn read(&self, frame: &[u8], headers: &Headers, metadata: &Metadata) -> Option<u32> {
        let bit = match self.place {
            Place::RegisterA => return Some(metadata.register_a),
            Place::RegisterB => return Some(metadata.register_b),
            Place::RegisterC(number) => return metadata.registers_c.get(number).copied(),
            Place::Endpoint => endpoint(headers)?,
            Place::Outer(part) => part.find(&headers.outer)?,
            Place::Inner(part) => part.find(headers.inner.as_ref()?)?,
        };
        let (bytes, shift) = self.span(bit);
        let value = frame.get(bytes)?.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        u32::try_from(value >> shift & u64::from(ones(self.width))).ok()
    }

    fn write(&self, frame: &mut [u8], headers: &Headers, metadata: &mut Metadata, value: u32) -> bool {
        let bit = match self.place {
            Place::RegisterA => {
                metadata.register_a = value;
                return true;
            }
            Place::RegisterB => {
                metadata.register_b = value;
                return true;
            }
            Place::RegisterC(number) => {
                return metadata.registers_c.get_mut(number).map(|register| *register = value).is_some();
            }
            Place::Endpoint => endpoint(headers),
            Place::Outer(part) => part.find(&headers.outer),
            Place::Inner(part) => headers.inner.as_ref().and_then(|layer| part.find(layer)),
        };
        let Some(bit) = bit else { return false };
        let (bytes, shift) = self.span(bit);
        let Some(old) = frame.get(bytes.clone()) else { return false };
        let old = old.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        let mask = u64::from(ones(self.width)) << shift;
        let new = (old & !mask | u64::from(value) << shift & mask).to_be_bytes();
        let at = bytes.start;
        edit::overwrite(frame, headers, at, &new[new.len() - bytes.len()..])
    }

    /// The bytes that hold the field, and how far it is from their low end.
    fn span(&self, bit: usize) -> (std::ops::Range<usize>, u32) {
        let end = bit + usize::try_from(self.width).unwrap_or(32);
        let bytes = bit / 8..end.div_ceil(8);
        let shift = u32::try_from(bytes.end * 8 - end).unwrap_or(0);
        (bytes, shift)
    }
}

impl Part {
    /// The bit of the frame where it begins.
    fn find(self, layer: &Layer) -> Option<usize> {
        let ip = |version: u8| layer.ip.filter(|ip| ip.version == version).map(|ip| ip.at * 8);
        let tcp =
            || layer.transport.filter(|transport| matches!(transport, Transport::Tcp { .. })).map(|tcp| tcp.at() * 8);
        match self {
            Self::Ethernet(byte) => layer.ethernet.map(|ethernet| (ethernet.at + byte) * 8),
            Self::Ethertype => layer.ethernet.map(|ethernet| (ethernet.at + 12 + 4 * layer.vlans.len()) * 8),
            Self::FirstTci => layer.vlans.first().map(|vlan| (vlan.at + 2) * 8),
            // The class of an IPv6 header begins after the four bits of the version.
            Self::Dscp => ip(4).map(|bit| bit + 8).or(ip(6).map(|bit| bit + 4)),
            Self::Ecn => ip(4).map(|bit| bit + 14).or(ip(6).map(|bit| bit + 10)),
            Self::Ttl => ip(4).map(|bit| bit + 64),
            Self::HopLimit => ip(6).map(|bit| bit + 56),
            Self::Ipv4(byte) => ip(4).map(|bit| bit + byte * 8),
            Self::Ipv6(byte) => ip(6).map(|bit| bit + byte * 8),
            Self::Tcp(byte) => tcp().map(|bit| bit + byte * 8),
            Self::TcpFlags => tcp().map(|bit| bit + 103),
            Self::Udp(byte) => {
                let udp = layer.transport.filter(|transport| matches!(transport, Transport::Udp { .. }))?;
                Some((udp.at() + byte) * 8)
            }
        }
    }
}

/// The bit of the frame where GTP-U's tunnel endpoint identifier begins.
fn endpoint(headers: &Headers) -> Option<usize> {
    const ENDPOINT: usize = 4;
    let tunnel = headers.tunnel.filter(|tunnel| matches!(tunnel.kind, TunnelKind::Gtpu { .. }))?;
    Some((tunnel.at + ENDPOINT) * 8)
}

pub(super) fn find(id: u16) -> Result<&'static Field, String> {
    FIELDS.iter().find(|field| field.id == id).ok_or_else(|| format!("field {id:#x} is not one that is modelled"))
}

/// `old` with `length` bits from `offset` on taken from the low bits of `data`.
fn merge(old: u32, data: u32, offset: u32, length: u32) -> u32 {
    let mask = ones(length) << offset;
    old & !mask | data << offset & mask
}

fn ones(bits: u32) -> u32 {
    1_u32.checked_shl(bits).map_or(u32::MAX, |bit| bit - 1)
}
