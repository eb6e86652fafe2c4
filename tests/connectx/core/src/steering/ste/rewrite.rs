//! Rewriting of fields by entries and by lists in steering memory: 8 bytes each, which name a field by a dword of the parser's and
//! the bits in it.

use super::Sample;
use crate::steering::bits::Bits;
use crate::steering::format::Format;
use crate::steering::rewrite::{Action, Field, find};

/// Places of fields for format 0: code of 64 bits, lowest bit, field id.
const PLACES_0: [(u8, u32, u16); 35] = [
    (0x00, 16, 0x04),
    (0x00, 0, 0x05),
    (0x01, 16, 0x01),
    (0x01, 0, 0x02),
    (0x02, 32, 0x03),
    (0x02, 0, 0x17),
    (0x03, 32, 0x11),
    (0x03, 0, 0x12),
    (0x03, 0, 0x15),
    (0x03, 32, 0x16),
    (0x04, 0, 0x06),
    (0x04, 6, 0x73),
    (0x04, 8, 0x0a),
    (0x04, 8, 0x47),
    (0x05, 32, 0x13),
    (0x05, 0, 0x14),
    (0x06, 32, 0x0d),
    (0x06, 0, 0x0e),
    (0x07, 32, 0x0f),
    (0x07, 0, 0x10),
    (0x08, 0, 0x08),
    (0x08, 0, 0x0b),
    (0x08, 16, 0x09),
    (0x08, 16, 0x0c),
    (0x08, 48, 0x07),
    (0x09, 32, 0x59),
    (0x09, 0, 0x5b),
    (0x0c, 32, 0x51),
    (0x0c, 0, 0x52),
    (0x0d, 32, 0x53),
    (0x0d, 0, 0x54),
    (0x0e, 32, 0x55),
    (0x0e, 0, 0x56),
    (0x16, 0, 0x49),
    (0x16, 32, 0x50),
];

/// Fills a list up where two rewrites must not stand side by side.
const NOTHING: u8 = 0;

/// Bits of a dword count from this on.
const FIRST_BIT: u32 = 0x20;

/// The dword of the flexible parser's first sample; the others are in front of it.
const SAMPLE_0: u8 = 0x89;

/// Where fields of PRM modify-header are, besides registers C: dword, lowest bit, field id. Two fields share a place where a
/// packet can have only one of them.
const PLACES: [(u8, u32, u16); 30] = [
    (0x00, 0, 0x04),
    (0x01, 0, 0x03),
    (0x01, 16, 0x05),
    (0x02, 0, 0x17),
    (0x08, 0, 0x01),
    (0x09, 16, 0x02),
    (0x0e, 8, 0x0a),
    (0x0e, 8, 0x47),
    (0x0e, 16, 0x73),
    (0x0e, 18, 0x06),
    (0x18, 0, 0x09),
    (0x18, 0, 0x0c),
    (0x18, 16, 0x08),
    (0x18, 16, 0x0b),
    (0x19, 16, 0x07),
    (0x40, 0, 0x15),
    (0x41, 0, 0x16),
    (0x44, 0, 0x11),
    (0x45, 0, 0x12),
    (0x46, 0, 0x13),
    (0x47, 0, 0x14),
    (0x4c, 0, 0x0d),
    (0x4d, 0, 0x0e),
    (0x4e, 0, 0x0f),
    (0x4f, 0, 0x10),
    (0x5e, 0, 0x59),
    (0x5f, 0, 0x5b),
    (0x7b, 0, 0x50),
    (0x7c, 0, 0x49),
    (SAMPLE_0 - Sample::GtpuEndpoint as u8, 0, 0x6e),
];

/// Dwords of registers C by number.
const REGISTERS_C_1: [u8; 6] = [0x90, 0x91, 0x8e, 0x8f, 0x8c, 0x8d];
const REGISTERS_C_2: [u8; 6] = [0x94, 0x95, 0x92, 0x93, 0x90, 0x91];

/// Field ids of registers C by number.
const REGISTER_FIELDS: [u16; 6] = [0x51, 0x52, 0x53, 0x54, 0x55, 0x56];

/// What one of these 8 bytes may stand for, of which the packet decides: an address of IPv4 or IPv6, a port of TCP or UDP.
pub(in crate::steering) fn decode(bytes: &[u8; 8], format: Format) -> Result<Vec<Action>, String> {
    if bytes[0] == NOTHING {
        return Ok(vec![]);
    }
    let first_bit = if format == Format::Zero { 0 } else { FIRST_BIT };
    let place = |dword: usize, shift: usize| {
        (Bits::new(dword, 8).u8(bytes), Bits::new(shift, 6).u32(bytes).saturating_sub(first_bit))
    };
    let length = match Bits::new(0x1a, 6).u32(bytes) {
        0 if format == Format::Zero => 32,
        length => length,
    };
    let to = fields(format, place(0x08, 0x12), length)?;
    let data = Bits::new(0x20, 32).u32(bytes);
    const COPY: u32 = 0x05;
    const SET: u32 = 0x06;
    const ADD: u32 = 0x07;
    // Format 0 numbers the same three from 1 on.
    let id = Bits::new(0, 8).u32(bytes) + if format == Format::Zero { COPY - 1 } else { 0 };
    Ok(match id {
        COPY => {
            let from = fields(format, place(0x28, 0x32), length)?;
            let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (from, to)));
            pairs
                .map(|((from, from_offset), (to, to_offset))| Action::Copy {
                    from,
                    from_offset: *from_offset,
                    to,
                    to_offset: *to_offset,
                    length,
                })
                .collect()
        }
        SET => to.into_iter().map(|(field, offset)| Action::Set { field, offset, length, data }).collect(),
        ADD if to.iter().all(|(_, offset)| *offset == 0) => {
            to.into_iter().map(|(field, _)| Action::Add { field, data }).collect()
        }
        id => return Err(format!("{id:#04x} in a list of rewrites is not modelled")),
    })
}

/// Fields that have these bits, and how far up in them.
fn fields(format: Format, (dword, shift): (u8, u32), length: u32) -> Result<Vec<(&'static Field, u32)>, String> {
    let (places, dwords): (&[_], &[u8]) = match format {
        Format::Zero => (&PLACES_0, &[]),
        Format::One => (&PLACES, &REGISTERS_C_1),
        Format::Two => (&PLACES, &REGISTERS_C_2),
    };
    let registers = dwords.iter().zip(REGISTER_FIELDS).map(|(dword, id)| (*dword, 0, id));
    let found: Vec<_> = places
        .iter()
        .copied()
        .chain(registers)
        .filter(|(place, start, _)| *place == dword && *start <= shift)
        .filter_map(|(_, start, id)| Some((find(id).ok()?, shift - start)))
        .filter(|(field, offset)| field.holds(*offset, length).is_ok())
        .collect();
    if found.is_empty() {
        return Err(format!("{length} bits from bit {shift} of dword {dword:#04x} are no field that is modelled"));
    }
    Ok(found)
}
