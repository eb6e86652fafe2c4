//! Tunnel options, written.

use std::fmt;

use super::tunnel_options::{
    ERSPAN, GENEVE, GENEVE_HEADER, GENEVE_LENGTH_BITS, GENEVE_LIMIT, GeneveOctets, TunnelOptions, VXLAN,
    option_field_name,
};
use super::{Style, write_field_value};
use crate::field::Field;

type Get<'a> = &'a dyn Fn(Field) -> (u128, u128);

/// Whether options are matched or set, be it that they are only demanded to be there.
pub(super) fn is_mentioned(options: &TunnelOptions, get: Get<'_>) -> bool {
    get(options.present) == (1, 1) || options.fields.iter().any(|field| get(*field).1 != 0)
}

/// Writes options with their parentheses. What is wildcarded in them is left out.
pub(super) fn write_options(
    out: &mut dyn fmt::Write,
    options: &TunnelOptions,
    get: Get<'_>,
    style: &Style<'_>,
) -> fmt::Result {
    if *options == GENEVE {
        return write_geneve(out, get);
    }
    let (open, close) = if *options == VXLAN { ("(gbp(", "))") } else { ("(", ")") };
    write!(out, "{}{open}", options.name)?;
    let mut separator = "";
    if *options == ERSPAN && get(Field::ErspanVersion).1 == 0 {
        // OVS takes nothing without a version, and finds out from its value what may follow.
        let is_second = [Field::ErspanDirection, Field::ErspanHardwareId].iter().any(|field| get(*field).1 != 0);
        out.write_str(if is_second { "ver=2/0" } else { "ver=1/0" })?;
        separator = ",";
    }
    for field in options.fields {
        let (value, mask) = get(*field);
        if mask != 0 {
            write!(out, "{separator}{}=", option_field_name(*field))?;
            write_field_value(out, *field, value, mask, style)?;
            separator = ",";
        }
    }
    out.write_str(close)
}

fn write_geneve(out: &mut dyn fmt::Write, get: Get<'_>) -> fmt::Result {
    let (length, length_mask) = get(Field::GeneveLength);
    if length_mask != Field::GeneveLength.full_mask() {
        // So OVS writes options of which nothing is matched.
        return out.write_str("geneve({})");
    }
    let octets = GeneveOctets::from_fields(get);
    let length = usize::try_from(length).unwrap_or(GENEVE_LIMIT).min(GENEVE_LIMIT);
    let (mut values, mut masks) = (&octets.values[..length], &octets.masks[..length]);
    out.write_str("geneve(")?;
    while let (Some((header, value)), Some((header_mask, mask))) =
        (values.split_at_checked(GENEVE_HEADER), masks.split_at_checked(GENEVE_HEADER))
    {
        let data = usize::from(header[GENEVE_HEADER - 1] & GENEVE_LENGTH_BITS) * 4;
        let data = data.min(value.len());
        out.write_char('{')?;
        for (name, place) in [("class", 0..2), ("type", 2..3)] {
            let mask = &header_mask[place.clone()];
            if mask.iter().any(|octet| *octet != 0) {
                write!(out, "{name}=")?;
                write_long_number(out, &header[place], mask)?;
                out.write_char(',')?;
            }
        }
        write!(out, "len={data}")?;
        if data > 0 {
            // Also if it is wild: OVS takes data that it does not find for zeros that are matched.
            out.write_char(',')?;
            write_long_number(out, &value[..data], &mask[..data])?;
        }
        out.write_char('}')?;
        (values, masks) = (&value[data..], &mask[data..]);
    }
    out.write_char(')')
}

/// Writes a number of any length, and its mask unless that is full.
fn write_long_number(out: &mut dyn fmt::Write, value: &[u8], mask: &[u8]) -> fmt::Result {
    write_octets(out, value)?;
    if mask.iter().all(|octet| *octet == u8::MAX) {
        return Ok(());
    }
    out.write_char('/')?;
    write_octets(out, mask)
}

fn write_octets(out: &mut dyn fmt::Write, octets: &[u8]) -> fmt::Result {
    let zeros = octets.iter().take_while(|octet| **octet == 0).count();
    let Some((first, rest)) = octets[zeros..].split_first() else {
        return out.write_char('0');
    };
    write!(out, "{first:#x}")?;
    rest.iter().try_for_each(|octet| write!(out, "{octet:02x}"))
}
