//! Values of fields, written.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::Style;
use super::cursor::{ends_word, is_number};
use super::words::EXTRA_LABEL;
use crate::action::ActionKind;
use crate::field::{Attribute, FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field, Form};
use crate::port::PortNumber;

/// Writes the value of a field in the field's own form, with its mask unless that is full: `10.0.0.0/255.255.255.0`,
/// `+est-new`, `0/0`.
pub fn write_field_value(
    out: &mut dyn fmt::Write,
    field: Field,
    value: u128,
    mask: u128,
    style: &Style<'_>,
) -> fmt::Result {
    let exact = mask == field.full_mask();
    let is_vlan = matches!(field.spec().attribute, Attribute::Vlan | Attribute::Cvlan);
    match field.spec().form {
        // "No Ethernet type at all" is written like this by OVS, and only this.
        Form::Hex if field == Field::EthType && exact && value == 0 => out.write_str("0/0xffff"),
        Form::Hex if matches!(field, Field::EthType | Field::VlanTpid | Field::CvlanTpid) => {
            write!(out, "0x{value:04x}")?;
            if exact { Ok(()) } else { write!(out, "/0x{mask:04x}") }
        }
        Form::Decimal if is_vlan && !exact => write!(out, "{value}/0x{mask:x}"),
        Form::Decimal => {
            write!(out, "{value}")?;
            write_hex_mask(out, mask, exact)
        }
        Form::Hex => {
            write!(out, "{}", Hex(value))?;
            write_hex_mask(out, mask, exact)
        }
        Form::Octet if exact => write!(out, "{value}"),
        Form::Octet => write!(out, "0x{value:02x}/0x{mask:02x}"),
        Form::PrefixedHex(digits) => {
            write!(out, "0x{value:x}")?;
            if exact { Ok(()) } else { write!(out, "/0x{mask:0digits$x}") }
        }
        Form::Port => {
            match u32::try_from(value) {
                Ok(number) if exact => write_port(out, PortNumber(number), style)?,
                _ => write!(out, "{value}")?,
            }
            write_hex_mask(out, mask, exact)
        }
        Form::Mac => {
            write_mac(out, value)?;
            if exact {
                return Ok(());
            }
            out.write_char('/')?;
            write_mac(out, mask)
        }
        Form::Ipv4 => {
            let address = |bits: u128| Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or_default());
            write!(out, "{}", address(value))?;
            if exact { Ok(()) } else { write!(out, "/{}", address(mask)) }
        }
        Form::Ipv6 => {
            write!(out, "{}", Ipv6Addr::from_bits(value))?;
            if exact { Ok(()) } else { write!(out, "/{}", Ipv6Addr::from_bits(mask)) }
        }
        Form::Fragment => match u8::try_from(value) {
            Ok(FRAGMENT_NO) if exact => out.write_str("no"),
            Ok(FRAGMENT_FIRST) if exact => out.write_str("first"),
            Ok(FRAGMENT_LATER) if exact => out.write_str("later"),
            _ => {
                write!(out, "{value}")?;
                write_hex_mask(out, mask, exact)
            }
        },
        Form::Flags(_) if style.more && field == Field::CtState => {
            write!(out, "{}", Hex(value))?;
            write_hex_mask(out, mask, exact)
        }
        Form::Flags(flags) => write_flags(out, flags, value, mask, exact),
        Form::Presence | Form::Options => out.write_str(match (mask, value) {
            (0, _) => "any",
            (_, 0) => "absent",
            _ => "present",
        }),
    }
}

/// Writes the number of a port, or its name if there is one that is read back as this port.
pub(super) fn write_port(out: &mut dyn fmt::Write, port: PortNumber, style: &Style<'_>) -> fmt::Result {
    match style.names.and_then(|names| names.name(port)).filter(|name| is_readable(name)) {
        Some(name) => out.write_str(name),
        None => write!(out, "{port}"),
    }
}

/// Whether a port's name cannot be taken for anything else.
fn is_readable(name: &str) -> bool {
    let odd = |character: char| ends_word(character) || character.is_control();
    !name.is_empty()
        && !name.contains(odd)
        && !is_number(name)
        && !name.starts_with(EXTRA_LABEL)
        && !ActionKind::ALL.iter().any(|kind| kind.name() == name)
}

/// A hexadecimal number as by C's `%#x`: 0 has no prefix.
pub(super) struct Hex(pub(super) u128);

impl fmt::Display for Hex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { out.write_str("0") } else { write!(out, "{:#x}", self.0) }
    }
}

fn write_hex_mask(out: &mut dyn fmt::Write, mask: u128, exact: bool) -> fmt::Result {
    if exact { Ok(()) } else { write!(out, "/{}", Hex(mask)) }
}

pub(super) fn write_mac(out: &mut dyn fmt::Write, address: u128) -> fmt::Result {
    for byte in (0..6).rev() {
        write!(out, "{:02x}{}", address >> (8 * byte) & 0xff, if byte == 0 { "" } else { ":" })?;
    }
    Ok(())
}

/// Named bits. Where a bit has no name, all are written as a number.
fn write_flags(out: &mut dyn fmt::Write, flags: &[(&str, u32)], value: u128, mask: u128, exact: bool) -> fmt::Result {
    let named = flags.iter().fold(0, |bits, (_, bit)| bits | u128::from(*bit));
    let matters = if exact { value } else { mask };
    if matters == 0 || matters & !named != 0 {
        write!(out, "{}", Hex(value))?;
        return write_hex_mask(out, mask, exact);
    }
    let mut separator = "";
    for (name, bit) in flags.iter().filter(|(_, bit)| matters & u128::from(*bit) != 0) {
        if exact {
            write!(out, "{separator}{name}")?;
            separator = "|";
        } else {
            write!(out, "{}{name}", if value & u128::from(*bit) != 0 { '+' } else { '-' })?;
        }
    }
    Ok(())
}
