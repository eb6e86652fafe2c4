//! What the text of a key is put together from.

use super::write_number::{push_decimal, push_hex};
use crate::field::{Field, MPLS_ENTRIES};

/// Value and mask of a field.
pub(super) type Get<'a> = &'a dyn Fn(Field) -> (u128, u128);

/// Takes a key, or a part of it, piece by piece.
pub(super) trait Pieces {
    /// Words and punctuation.
    fn text(&mut self, text: &str);
    /// A field's value.
    fn value(&mut self, field: Field);
    /// The values of the first `entries` of a label stack.
    fn stack(&mut self, entries: usize, is_exact: bool);
    /// Geneve options with all that is in them.
    fn geneve(&mut self);
}

/// OVS writes a stack without masks, or each field of each entry with its mask, some of them without `0x`
/// (`format_mpls` in `lib/odp-util.c`).
pub(super) fn push_stack(out: &mut Vec<u8>, entries: usize, is_exact: bool, get: Get<'_>) {
    for (index, entry) in MPLS_ENTRIES.iter().take(entries).enumerate() {
        let names = ["label=", ",tc=", ",ttl=", ",bos="];
        for (place, (name, field)) in names.into_iter().zip(entry).enumerate() {
            if index > 0 && place == 0 {
                out.push(b',');
            }
            out.extend_from_slice(name.as_bytes());
            let (value, mask) = get(*field);
            push_decimal(out, u64::try_from(value).unwrap_or_default());
            if !is_exact {
                let is_prefixed = matches!(place, 0 | 2);
                out.extend_from_slice(if is_prefixed { b"/0x" } else { b"/" });
                push_hex(out, mask, 1);
            }
        }
    }
}
