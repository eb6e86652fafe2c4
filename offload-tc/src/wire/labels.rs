//! Entries of an MPLS label stack (`TCA_FLOWER_KEY_MPLS_OPTS`).

use sluice_netdev::netlink::attribute::{Attribute, Malformed, Writer};

const ENTRY: u16 = 1;
const DEPTH: u16 = 1;
const TTL: u16 = 2;
const BOTTOM: u16 = 3;
const CLASS: u16 = 4;
const LABEL: u16 = 5;

/// A match on one entry. Without fields it only says that there is an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelMatch {
    /// The depth of the entry: 1 for the outermost, at most 7 (`FLOW_DIS_MPLS_MAX`).
    pub depth: u8,
    /// Label, 20 bits.
    pub label: Option<u32>,
    /// Traffic class, 3 bits.
    pub class: Option<u8>,
    /// Time to live.
    pub ttl: Option<u8>,
    /// The bottom-of-stack bit.
    pub bottom: Option<bool>,
}

pub(super) fn emit(kind: u16, entries: &[LabelMatch], writer: &mut Writer<'_>) {
    writer.nest(kind, |writer| {
        for entry in entries {
            writer.nest(ENTRY, |writer| {
                writer.put(DEPTH, &[entry.depth]);
                if let Some(ttl) = entry.ttl {
                    writer.put(TTL, &[ttl]);
                }
                if let Some(bottom) = entry.bottom {
                    writer.put(BOTTOM, &[u8::from(bottom)]);
                }
                if let Some(class) = entry.class {
                    writer.put(CLASS, &[class]);
                }
                if let Some(label) = entry.label {
                    writer.put(LABEL, &label.to_ne_bytes());
                }
            });
        }
    });
}

pub(super) fn parse(nest: &Attribute<'_>) -> Result<Vec<LabelMatch>, Malformed> {
    let mut entries = Vec::new();
    for entry in nest.nested("label stack") {
        let entry = entry?;
        if entry.kind != ENTRY {
            return Err(entry.unknown());
        }
        let mut found = LabelMatch::default();
        for attribute in entry.nested("label stack entry") {
            let attribute = attribute?;
            match attribute.kind {
                DEPTH => found.depth = attribute.u8()?,
                TTL => found.ttl = Some(attribute.u8()?),
                BOTTOM => found.bottom = Some(attribute.u8()? != 0),
                CLASS => found.class = Some(attribute.u8()?),
                LABEL => found.label = Some(attribute.u32()?),
                _ => return Err(attribute.unknown()),
            }
        }
        entries.push(found);
    }
    Ok(entries)
}
