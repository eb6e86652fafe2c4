//! Tunnel options, written.

use super::pieces::{Get, Pieces};
use super::tunnel_options::{
    ERSPAN, GENEVE, GENEVE_HEADER, GENEVE_LENGTH_BITS, GENEVE_LIMIT, GeneveBytes, TunnelOptions, VXLAN,
    option_field_name,
};
use super::write_number::{push_decimal, push_hex};
use crate::field::Field;

/// Whether options are matched or set, be it that they are only demanded to be there.
pub(super) fn is_mentioned(options: &TunnelOptions, get: Get<'_>) -> bool {
    get(options.present) == (1, 1) || options.fields.iter().any(|field| get(*field).1 != 0)
}

/// Writes options with their parentheses. What is wildcarded in them is left out.
pub(super) fn write_options(out: &mut impl Pieces, options: &TunnelOptions, get: Get<'_>) {
    if *options == GENEVE {
        return out.geneve();
    }
    let (open, close) = if *options == VXLAN { ("(gbp(", "))") } else { ("(", ")") };
    out.text(options.name);
    out.text(open);
    let mut separator = "";
    if *options == ERSPAN && get(Field::ErspanVersion).1 == 0 {
        // OVS takes nothing without a version, and finds out from its value what may follow.
        let is_second = [Field::ErspanDirection, Field::ErspanHardwareId].iter().any(|field| get(*field).1 != 0);
        out.text(if is_second { "ver=2/0" } else { "ver=1/0" });
        separator = ",";
    }
    for field in options.fields {
        if get(*field).1 != 0 {
            out.text(std::mem::replace(&mut separator, ","));
            out.text(option_field_name(*field));
            out.text("=");
            out.value(*field);
        }
    }
    out.text(close);
}

pub(super) fn push_geneve(out: &mut Vec<u8>, get: Get<'_>) {
    let (length, length_mask) = get(Field::GeneveLength);
    if length_mask != Field::GeneveLength.full_mask() {
        // So OVS writes options of which nothing is matched.
        return out.extend_from_slice(b"geneve({})");
    }
    let bytes = GeneveBytes::from_fields(get);
    let length = usize::try_from(length).unwrap_or(GENEVE_LIMIT).min(GENEVE_LIMIT);
    let (mut values, mut masks) = (&bytes.values[..length], &bytes.masks[..length]);
    out.extend_from_slice(b"geneve(");
    while let (Some((header, value)), Some((header_mask, mask))) =
        (values.split_at_checked(GENEVE_HEADER), masks.split_at_checked(GENEVE_HEADER))
    {
        let data = usize::from(header[GENEVE_HEADER - 1] & GENEVE_LENGTH_BITS) * 4;
        let data = data.min(value.len());
        out.push(b'{');
        for (name, place) in [("class=", 0..2), ("type=", 2..3)] {
            let mask = &header_mask[place.clone()];
            if mask.iter().any(|byte| *byte != 0) {
                out.extend_from_slice(name.as_bytes());
                push_long_number(out, &header[place], mask);
                out.push(b',');
            }
        }
        out.extend_from_slice(b"len=");
        push_decimal(out, data as u64);
        if data > 0 {
            // Also if it is wild: OVS takes data that it does not find for zeros that are matched.
            out.push(b',');
            push_long_number(out, &value[..data], &mask[..data]);
        }
        out.push(b'}');
        (values, masks) = (&value[data..], &mask[data..]);
    }
    out.push(b')');
}

/// Writes a number of any length, and its mask unless that is full.
fn push_long_number(out: &mut Vec<u8>, value: &[u8], mask: &[u8]) {
    push_bytes(out, value);
    if mask.iter().any(|byte| *byte != u8::MAX) {
        out.push(b'/');
        push_bytes(out, mask);
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let Some((first, rest)) = bytes[zeros..].split_first() else {
        return out.push(b'0');
    };
    out.extend_from_slice(b"0x");
    push_hex(out, u128::from(*first), 1);
    rest.iter().for_each(|byte| push_hex(out, u128::from(*byte), 2));
}
