//! Entries of format 0: what they say, and what their lookups see.
//!
//! The side that an entry is on is in its type, and so are the few actions that it can do; a list of rewrites makes it a type of its
//! own. Lookups have numbers of their own, three for most: of the outer headers, of the inner, and of the outer on the receive side.

use super::definer::{Fields, Side, fragmented, l3_type, l4_type, ports};
use super::entry::{Action, Anchor, Entry, Lookup, Table, Wanted, part};
use crate::packet::layer::number;
use crate::packet::{Fragment, Headers, Layer, Transport, TunnelKind, Vlan};
use crate::steering::bits::Bits;
use crate::steering::format::ENTRY;
use crate::steering::key::Metadata;

const TYPE: Bits = Bits::new(0x00, 4);
const LOOKUP: Bits = Bits::new(0x08, 8);
const BYTE_MASK: Bits = Bits::new(0x10, 16);
const NEXT_LOOKUP: Bits = Bits::new(0x30, 8);
const NEXT_TABLE_39_32: Bits = Bits::new(0x38, 8);
/// In units of 32 bytes; the lowest bit that is set is the size of the table in entries.
const NEXT_TABLE_31_5: Bits = Bits::new(0x40, 27);
const COUNTER_15_0: Bits = Bits::new(0xb0, 16);
const COUNTER_23_16: Bits = Bits::new(0xd0, 8);
const MISS_39_32: Bits = Bits::new(0xd8, 8);
const MISS_31_6: Bits = Bits::new(0xe0, 26);
const POLARITY: Bits = Bits::new(0xfc, 1);
const TAG: usize = 32;
const MASK: usize = 48;

/// Of entries on the transmit side.
mod transmit {
    use super::Bits;
    pub(in crate::steering) const TYPE: u32 = 1;
    pub(in crate::steering) const ACTION: Bits = Bits::new(0x66, 3);
    /// Of an encapsulation, the length in units of 2 bytes.
    pub(in crate::steering) const LENGTH: Bits = Bits::new(0x6a, 6);
    /// A VLAN tag, or a packet reformat context.
    pub(in crate::steering) const DATA: Bits = Bits::new(0x80, 32);
}

/// Of entries on the receive side.
mod receive {
    use super::Bits;
    pub(in crate::steering) const TYPE: u32 = 2;
    pub(in crate::steering) const ACTION: Bits = Bits::new(0xa1, 3);
    /// The flow tag, and a bit that says that there is one.
    pub(in crate::steering) const TAG: Bits = Bits::new(0x80, 32);
    pub(in crate::steering) const HAS_TAG: u32 = 1 << 31;
}

/// Of entries with a list of rewrites.
mod rewrites {
    use super::Bits;
    pub(in crate::steering) const TYPE: u32 = 6;
    pub(in crate::steering) const ACTIONS: Bits = Bits::new(0x60, 16);
    pub(in crate::steering) const LINE: Bits = Bits::new(0x80, 32);
    /// Of the decapsulation of an IP packet: whether its new Ethernet header has a tag.
    pub(in crate::steering) const DESCRIPTION: Bits = Bits::new(0xa4, 4);
}

pub(in crate::steering) fn decode(bytes: &[u8; ENTRY]) -> Result<Entry, String> {
    if POLARITY.is_set(bytes) {
        return Err("inverted matches are not modelled".to_owned());
    }
    let index = u64::from(NEXT_TABLE_39_32.u32(bytes)) << 27 | u64::from(NEXT_TABLE_31_5.u32(bytes));
    let entries = index & index.wrapping_neg();
    Ok(Entry {
        lookup: Lookup::Fixed(LOOKUP.u16(bytes)),
        counter: COUNTER_23_16.u32(bytes) << 16 | COUNTER_15_0.u32(bytes),
        miss: u64::from(MISS_39_32.u32(bytes)) << 32 | u64::from(MISS_31_6.u32(bytes)) << 6,
        next: Table {
            lookup: Lookup::Fixed(NEXT_LOOKUP.u16(bytes)),
            base: (index ^ entries) << 5,
            entries,
            byte_mask: BYTE_MASK.u16(bytes),
            // Hashes are of the packet as the next table finds it.
            after_actions: true,
        },
        actions: actions(bytes),
        wanted: Wanted::Masked { mask: part(bytes, MASK), tag: part(bytes, TAG) },
    })
}

fn actions(bytes: &[u8; ENTRY]) -> Result<Vec<Action>, String> {
    match TYPE.u32(bytes) {
        transmit::TYPE => transmitted(bytes),
        receive::TYPE => {
            let tag = receive::TAG.u32(bytes);
            let tagged = (tag & receive::HAS_TAG != 0).then_some(Action::Tag(tag & !receive::HAS_TAG & 0xff_ffff));
            Ok(received(bytes)?.into_iter().chain(tagged).collect())
        }
        rewrites::TYPE => {
            let line = u64::from(rewrites::LINE.u32(bytes));
            let actions = usize::from(rewrites::ACTIONS.u16(bytes));
            Ok(rewriting(bytes)?.into_iter().chain([Action::RewriteList { line, actions }]).collect())
        }
        kind => Err(format!("entry type {kind:#x} is not modelled")),
    }
}

fn transmitted(bytes: &[u8; ENTRY]) -> Result<Vec<Action>, String> {
    const NOTHING: u32 = 0;
    const PUSH_VLAN: u32 = 1;
    const ENCAP_OF_IP: u32 = 3;
    const ENCAP: u32 = 4;
    const AFTER_ADDRESSES: usize = 12;
    let data = transmit::DATA.u32(bytes);
    let length = usize::from(transmit::LENGTH.u8(bytes)) * 2;
    let encap = |anchor| Action::InsertContext { id: data, anchor, offset: 0, bytes: length, encapsulates: true };
    Ok(match transmit::ACTION.u32(bytes) {
        NOTHING => vec![],
        PUSH_VLAN => {
            vec![Action::Insert { anchor: Anchor::Start, offset: AFTER_ADDRESSES, bytes: data.to_be_bytes() }]
        }
        ENCAP_OF_IP => vec![Action::RemoveUpTo { start: Anchor::Start, end: Anchor::Ip }, encap(Anchor::Start)],
        ENCAP => vec![encap(Anchor::Start)],
        action => return Err(format!("action {action:#x} of an entry for sending is not modelled")),
    })
}

fn received(bytes: &[u8; ENTRY]) -> Result<Option<Action>, String> {
    const NOTHING: u32 = 0;
    const DECAP: u32 = 2;
    const POP_VLAN: u32 = 4;
    const TAG: usize = 4;
    Ok(match receive::ACTION.u32(bytes) {
        NOTHING => None,
        DECAP => Some(Action::RemoveUpTo { start: Anchor::Start, end: Anchor::InnerEthernet }),
        POP_VLAN => Some(Action::Remove { anchor: Anchor::FirstVlan, offset: 0, bytes: TAG }),
        action => return Err(format!("action {action:#x} of an entry for receiving is not modelled")),
    })
}

/// What an entry with a list does before it.
fn rewriting(bytes: &[u8; ENTRY]) -> Result<Option<Action>, String> {
    const DECAP_OF_IP: u32 = 3;
    const ETHERNET: usize = 14;
    if receive::ACTION.u32(bytes) != DECAP_OF_IP {
        return received(bytes);
    }
    // Where libmlx5 44 writes the tag and the EtherType then is not where it writes them at other times, so that one of the two
    // must be wrong, or mean something that is not published.
    if rewrites::DESCRIPTION.is_set(bytes) {
        return Err("the decapsulation of IP into a tagged frame is not modelled".to_owned());
    }
    Ok(Some(Action::ReplaceTunnel { ethernet: ETHERNET }))
}

/// The fields of a lookup; None for one that is not modelled.
pub(in crate::steering) fn fields(lookup: u16, headers: &Headers, metadata: &Metadata, gvmi: u16) -> Option<[u8; 16]> {
    let absent = Layer::default();
    let outer = &headers.outer;
    let inner = headers.inner.as_ref().unwrap_or(&absent);
    let mut fields = Fields([0; 16]);
    match lookup {
        0x05 => {
            fields.put(0x10, 16, gvmi);
            fields.put(0x28, 24, metadata.sqn);
        }
        0x06 | 0x1b => ethernet(&mut fields, outer, Side::Destination),
        0x07 => ethernet(&mut fields, inner, Side::Destination),
        0x08 | 0x1c => ethernet(&mut fields, outer, Side::Source),
        0x09 => ethernet(&mut fields, inner, Side::Source),
        0x0a => tunnel(&mut fields, headers, inner),
        0x0d | 0x1e => fields.ipv6(outer, Side::Destination),
        0x0e => fields.ipv6(inner, Side::Destination),
        0x0f | 0x1f => fields.ipv6(outer, Side::Source),
        0x10 => fields.ipv6(inner, Side::Source),
        0x11 | 0x20 => ipv4_5_tuple(&mut fields, outer),
        0x12 => ipv4_5_tuple(&mut fields, inner),
        0x13 | 0x21 => transport(&mut fields, outer),
        0x14 => transport(&mut fields, inner),
        0x15 | 0x25 => fields.put(0, 32, outer.mpls.unwrap_or(0)),
        0x24 => fields.put(0, 32, inner.mpls.unwrap_or(0)),
        0x16 => fields.gre(headers),
        0x18 => fields.put(0, 32, metadata.register_a),
        0x19 | 0x34 => fields.tunnel_header(headers),
        0x22 => fields.samples(headers, 0),
        0x23 => fields.samples(headers, 4),
        0x29 | 0x2b => ipv4_rest(&mut fields, outer),
        0x2a => ipv4_rest(&mut fields, inner),
        0x2c | 0x2e => tcp_numbers(&mut fields, outer),
        0x2d => tcp_numbers(&mut fields, inner),
        0x2f => fields.registers(&metadata.registers_c[..4]),
        0x30 => fields.registers(&metadata.registers_c[4..]),
        0x36 | 0x38 => both_addresses(&mut fields, outer),
        0x37 => both_addresses(&mut fields, inner),
        _ => return None,
    }
    Some(fields.0)
}

fn ethernet(fields: &mut Fields, layer: &Layer, side: Side) {
    if let Some(ethernet) = layer.ethernet {
        let address = if side == Side::Source { ethernet.source } else { ethernet.destination };
        fields.0[..6].copy_from_slice(&address);
    }
    fields.put(0x30, 16, layer.ethertype);
    vlan(fields, layer.vlans.first(), 0x4c, 0x50);
    fields.put(0x60, 1, fragmented(layer));
    fields.put(0x64, 2, l3_type(layer));
    fields.put(0x66, 2, l4_type(layer));
    vlan(fields, layer.vlans.get(1), 0x6c, 0x70);
}

/// Priority and CFI, and apart from them the kind of tag and its number.
fn vlan(fields: &mut Fields, vlan: Option<&Vlan>, priority: usize, qualifier: usize) {
    const SERVICE: u32 = 1;
    const CUSTOMER: u32 = 2;
    if let Some(vlan) = vlan {
        fields.put(priority, 4, vlan.tci >> 12);
        fields.put(qualifier, 2, if vlan.ethertype == number::SERVICE_VLAN { SERVICE } else { CUSTOMER });
        fields.put(qualifier + 4, 12, vlan.tci & 0xfff);
    }
}

fn both_addresses(fields: &mut Fields, layer: &Layer) {
    if let Some(ethernet) = layer.ethernet {
        fields.0[..6].copy_from_slice(&ethernet.destination);
        fields.0[6..12].copy_from_slice(&ethernet.source);
    }
    fields.put(0x64, 2, l3_type(layer));
    vlan(fields, layer.vlans.first(), 0x6c, 0x70);
}

fn tunnel(fields: &mut Fields, headers: &Headers, inner: &Layer) {
    if let Some(ethernet) = inner.ethernet {
        fields.0[..6].copy_from_slice(&ethernet.destination);
    }
    fields.put(0x30, 16, inner.ethertype);
    if let Some(TunnelKind::Vxlan { vni }) = headers.tunnel.map(|tunnel| tunnel.kind) {
        fields.put(0x40, 24, vni);
    }
    fields.put(0x60, 1, fragmented(inner));
    fields.put(0x64, 2, l3_type(inner));
    fields.put(0x66, 2, l4_type(inner));
    vlan(fields, inner.vlans.first(), 0x68, 0x70);
}

fn ipv4_5_tuple(fields: &mut Fields, layer: &Layer) {
    let Some(ip) = layer.ip.filter(|ip| ip.version == 4) else { return };
    fields.0[..4].copy_from_slice(&ip.destination.to_be_bytes()[12..]);
    fields.0[4..8].copy_from_slice(&ip.source.to_be_bytes()[12..]);
    if let Some((source, destination)) = ports(layer) {
        fields.put(0x40, 16, source);
        fields.put(0x50, 16, destination);
    }
    fields.put(0x60, 1, fragmented(layer));
    fields.put(0x61, 1, ip.fragment == Fragment::First);
    fields.put(0x65, 2, ip.ecn);
    flags(fields, layer, 0x67);
    fields.put(0x70, 6, ip.dscp);
    fields.put(0x78, 8, ip.protocol);
}

fn transport(fields: &mut Fields, layer: &Layer) {
    let Some(ip) = layer.ip else { return };
    fields.put(0x00, 1, fragmented(layer));
    fields.put(0x01, 1, ip.fragment == Fragment::First);
    fields.put(0x08, 8, ip.protocol);
    fields.put(0x20, 4, ip.version);
    fields.put(0x25, 2, ip.ecn);
    flags(fields, layer, 0x27);
    if let Some((source, destination)) = ports(layer) {
        fields.put(0x10, 16, destination);
        fields.put(0x30, 16, source);
    }
    fields.put(0x50, 8, ip.ttl);
    fields.put(0x58, 6, ip.dscp);
    fields.put(0x6c, 20, ip.flow_label);
}

fn ipv4_rest(fields: &mut Fields, layer: &Layer) {
    let Some(ip) = layer.ip else { return };
    fields.put(0x00, 4, ip.version);
    fields.put(0x04, 4, ip.ihl);
    fields.put(0x40, 8, ip.ttl);
}

/// Nine TCP flags.
fn flags(fields: &mut Fields, layer: &Layer, at: usize) {
    if let Some(Transport::Tcp { flags, .. }) = layer.transport {
        fields.put(at, 9, flags);
    }
}

fn tcp_numbers(fields: &mut Fields, layer: &Layer) {
    if let Some(Transport::Tcp { sequence, acknowledgement, .. }) = layer.transport {
        fields.put(0x20, 32, sequence);
        fields.put(0x40, 32, acknowledgement);
    }
}
