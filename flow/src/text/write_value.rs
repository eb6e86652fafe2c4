//! Values of fields, written.

use std::collections::HashMap;
use std::fmt;

use foldhash::fast::RandomState;

use super::Style;
use super::cursor::ends_word;
use super::line::EXTRA_LABEL;
use super::write_number::{push_decimal, push_hex, push_ipv4, push_ipv6, push_mac, push_prefixed_hex};
use crate::action::ActionKind;
use crate::field::{Attribute, FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field, Form};
use crate::name::is_number;
use crate::port::{PortNames, PortNumber};

/// Writes the value of a field in the field's own form, with its mask unless that is full: `10.0.0.0/255.255.255.0`,
/// `+est-new`, `0/0`.
pub fn write_field_value(
    out: &mut dyn fmt::Write,
    field: Field,
    value: u128,
    mask: u128,
    style: &Style<'_>,
) -> fmt::Result {
    let mut text = Vec::new();
    push_field_value(&mut text, field, value, mask, &mut Ports::new(style));
    out.write_str(&String::from_utf8_lossy(&text))
}

/// The same, appended; what is appended is UTF-8.
pub(super) fn push_field_value(out: &mut Vec<u8>, field: Field, value: u128, mask: u128, ports: &mut Ports<'_>) {
    let spec = field.spec();
    let exact = mask == field.full_mask();
    // All but addresses of IPv6 and labels of connections; of a wider number nobody asks for the lower half.
    let narrow = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    match spec.form {
        // "No Ethernet type at all" is written like this by OVS, and only this.
        Form::Hex if field == Field::EthType && exact && value == 0 => out.extend_from_slice(b"0/0xffff"),
        Form::Hex if matches!(field, Field::EthType | Field::VlanTpid | Field::CvlanTpid) => {
            push_padded(out, value, mask, exact, 4, 4);
        }
        Form::Decimal if !exact && matches!(spec.attribute, Attribute::Vlan | Attribute::Cvlan) => {
            push_decimal(out, narrow(value));
            out.extend_from_slice(b"/0x");
            push_hex(out, mask, 1);
        }
        Form::Decimal => {
            push_decimal(out, narrow(value));
            push_hex_mask(out, mask, exact);
        }
        Form::Hex => {
            push_prefixed_hex(out, value);
            push_hex_mask(out, mask, exact);
        }
        Form::Byte if exact => push_decimal(out, narrow(value)),
        Form::Byte => push_padded(out, value, mask, exact, 2, 2),
        Form::PrefixedHex(digits) => push_padded(out, value, mask, exact, 1, digits),
        Form::Port => {
            match u32::try_from(value) {
                Ok(number) if exact => ports.push(out, PortNumber(number)),
                _ => push_decimal(out, narrow(value)),
            }
            push_hex_mask(out, mask, exact);
        }
        Form::Mac => push_address(out, value, mask, exact, push_mac),
        Form::Ipv4 => push_address(out, value, mask, exact, |out, address| {
            push_ipv4(out, u32::try_from(address).unwrap_or_default());
        }),
        Form::Ipv6 => push_address(out, value, mask, exact, push_ipv6),
        Form::Fragment => match u8::try_from(value) {
            Ok(FRAGMENT_NO) if exact => out.extend_from_slice(b"no"),
            Ok(FRAGMENT_FIRST) if exact => out.extend_from_slice(b"first"),
            Ok(FRAGMENT_LATER) if exact => out.extend_from_slice(b"later"),
            _ => {
                push_decimal(out, narrow(value));
                push_hex_mask(out, mask, exact);
            }
        },
        Form::Flags(_) if ports.style.more && field == Field::CtState => {
            push_prefixed_hex(out, value);
            push_hex_mask(out, mask, exact);
        }
        Form::Flags(flags) => push_flags(out, flags, value, mask, exact),
        Form::Presence | Form::Options => out.extend_from_slice(match (mask, value) {
            (0, _) => b"any",
            (_, 0) => b"absent",
            _ => b"present",
        }),
    }
}

/// Writes the number of a port, or its name if there is one that is read back as this port.
pub(super) fn write_port(out: &mut dyn fmt::Write, port: PortNumber, style: &Style<'_>) -> fmt::Result {
    match readable_name(port, style.names) {
        Some(name) => out.write_str(name),
        None => write!(out, "{port}"),
    }
}

/// Ports as they are written in a style. Whether a name can be read back is found out once for each port.
pub(super) struct Ports<'a> {
    pub(super) style: Style<'a>,
    texts: HashMap<PortNumber, Box<[u8]>, RandomState>,
}

/// At most this many ports are remembered, so that a dump does not grow; hardly any switch has more.
const PORTS_KNOWN: usize = 4096;

impl<'a> Ports<'a> {
    pub(super) fn new(style: &Style<'a>) -> Self {
        Self { style: *style, texts: HashMap::default() }
    }

    /// As [`write_port`].
    pub(super) fn push(&mut self, out: &mut Vec<u8>, port: PortNumber) {
        if self.style.names.is_none() {
            return push_decimal(out, u64::from(port.0));
        }
        if let Some(text) = self.texts.get(&port) {
            return out.extend_from_slice(text);
        }
        let begin = out.len();
        match readable_name(port, self.style.names) {
            Some(name) => out.extend_from_slice(name.as_bytes()),
            None => push_decimal(out, u64::from(port.0)),
        }
        if self.texts.len() == PORTS_KNOWN {
            self.texts.clear();
        }
        self.texts.insert(port, out[begin..].into());
    }
}

fn readable_name(port: PortNumber, names: Option<&dyn PortNames>) -> Option<&str> {
    names.and_then(|names| names.name(port)).filter(|name| is_readable(name))
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

pub(super) fn write_mac(out: &mut dyn fmt::Write, address: u128) -> fmt::Result {
    let mut text = Vec::new();
    push_mac(&mut text, address);
    out.write_str(&String::from_utf8_lossy(&text))
}

fn push_hex_mask(out: &mut Vec<u8>, mask: u128, exact: bool) {
    if !exact {
        out.push(b'/');
        push_prefixed_hex(out, mask);
    }
}

/// Hexadecimal, with so many digits of value and mask at least.
fn push_padded(out: &mut Vec<u8>, value: u128, mask: u128, exact: bool, digits: usize, mask_digits: usize) {
    out.extend_from_slice(b"0x");
    push_hex(out, value, digits);
    if !exact {
        out.extend_from_slice(b"/0x");
        push_hex(out, mask, mask_digits);
    }
}

fn push_address(out: &mut Vec<u8>, value: u128, mask: u128, exact: bool, push: impl Fn(&mut Vec<u8>, u128)) {
    push(out, value);
    if !exact {
        out.push(b'/');
        push(out, mask);
    }
}

/// Named bits. Where a bit has no name, all are written as a number.
fn push_flags(out: &mut Vec<u8>, flags: &[(&str, u32)], value: u128, mask: u128, exact: bool) {
    let named = flags.iter().fold(0, |bits, (_, bit)| bits | u128::from(*bit));
    let matters = if exact { value } else { mask };
    if matters == 0 || matters & !named != 0 {
        push_prefixed_hex(out, value);
        return push_hex_mask(out, mask, exact);
    }
    let mut is_first = true;
    for (name, bit) in flags.iter().filter(|(_, bit)| matters & u128::from(*bit) != 0) {
        if !exact {
            out.push(if value & u128::from(*bit) != 0 { b'+' } else { b'-' });
        } else if !is_first {
            out.push(b'|');
        }
        is_first = false;
        out.extend_from_slice(name.as_bytes());
    }
}
