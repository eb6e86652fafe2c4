//! Rewriting of fields by entries and by lists in steering memory: 8 bytes each, which name a field by a dword of the parser's and
//! the bits in it.

use super::Format;
use crate::steering::bits::Bits;
use crate::steering::rewrite::{Action, Field, find};

/// Bits of a dword count from this on.
const FIRST_BIT: u32 = 0x20;

/// Where fields of PRM modify-header are, besides registers C: dword, lowest bit, field id. Two fields share a place where a
/// packet can have only one of them.
const PLACES: [(u8, u32, u16); 29] = [
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
];

/// Dwords of registers C by number.
const REGISTERS_C_1: [u8; 6] = [0x90, 0x91, 0x8e, 0x8f, 0x8c, 0x8d];
const REGISTERS_C_2: [u8; 6] = [0x94, 0x95, 0x92, 0x93, 0x90, 0x91];

/// Field ids of registers C by number.
const REGISTER_FIELDS: [u16; 6] = [0x51, 0x52, 0x53, 0x54, 0x55, 0x56];

/// What one of these 8 bytes may stand for, of which the packet decides: an address of IPv4 or IPv6, a port of TCP or UDP.
pub(super) fn decode(bytes: &[u8; 8], format: Format) -> Result<Vec<Action>, String> {
    let place = |dword: usize, shift: usize| {
        (Bits::new(dword, 8).u8(bytes), Bits::new(shift, 6).u32(bytes).saturating_sub(FIRST_BIT))
    };
    let length = Bits::new(0x1a, 6).u32(bytes);
    let to = fields(format, place(0x08, 0x12), length)?;
    let data = Bits::new(0x20, 32).u32(bytes);
    Ok(match Bits::new(0, 8).u32(bytes) {
        0x05 => {
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
        0x06 => to.into_iter().map(|(field, offset)| Action::Set { field, offset, length, data }).collect(),
        0x07 if to.iter().all(|(_, offset)| *offset == 0) => {
            to.into_iter().map(|(field, _)| Action::Add { field, data }).collect()
        }
        id => return Err(format!("{id:#04x} in a list of rewrites is not modelled")),
    })
}

/// Fields that have these bits, and how far up in them.
fn fields(format: Format, (dword, shift): (u8, u32), length: u32) -> Result<Vec<(&'static Field, u32)>, String> {
    let dwords = match format {
        Format::One => REGISTERS_C_1,
        Format::Two => REGISTERS_C_2,
    };
    let registers = dwords.into_iter().zip(REGISTER_FIELDS).map(|(dword, id)| (dword, 0, id));
    let found: Vec<_> = PLACES
        .into_iter()
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
