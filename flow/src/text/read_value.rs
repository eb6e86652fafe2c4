//! Values of fields, read.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::ParseError;
use super::cursor::{Cursor, error_at, is_number, quoted};
use crate::field::{Attribute, FIELDS, FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field, FieldSpec, Form};
use crate::port::{PortNames, PortNumber};

/// Tunnel options of the grammar for which the field table has no place.
const UNREAD_TUNNEL_OPTIONS: &[&str] = &["geneve", "vxlan", "erspan", "gtpu"];

/// A field as it was found in a text.
pub(super) struct Found {
    pub(super) field: Field,
    pub(super) value: u128,
    pub(super) mask: u128,
    /// Where its value is.
    pub(super) offset: usize,
}

/// Reads what is in the parentheses of an attribute, the closing one included, and hands over each field.
pub(super) fn read_attribute(
    cursor: &mut Cursor<'_>,
    attribute: Attribute,
    names: &dyn PortNames,
    found: &mut dyn FnMut(Found) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let mut read_one = |cursor: &mut Cursor<'_>, field| {
        let offset = cursor.offset();
        let (value, mask) = read_value(cursor, field, names)?;
        found(Found { field, value, mask, offset })
    };
    if let Some(scalar) = named_field(attribute, "") {
        read_one(cursor, scalar.field)?;
        return cursor.expect(")");
    }
    let mut seen = 0u128;
    loop {
        cursor.skip_separators();
        if cursor.eat(")") {
            return Ok(());
        }
        let start = cursor.offset();
        let name = cursor.take_name();
        if attribute == Attribute::Tunnel && UNREAD_TUNNEL_OPTIONS.contains(&name) && cursor.peek() == Some(b'(') {
            skip_unread(cursor, name, start)?;
            continue;
        }
        let Some(spec) = named_field(attribute, name) else {
            return Err(error_at(start, field_list(attribute)));
        };
        if seen & 1 << spec.field as u32 != 0 {
            return Err(error_at(start, format!("each field once: {} is here twice", spec.name)));
        }
        seen |= 1 << spec.field as u32;
        if matches!(spec.form, Form::Flags(_)) {
            cursor.expect("(")?;
            read_one(cursor, spec.field)?;
            cursor.expect(")")?;
        } else {
            cursor.expect("=")?;
            read_one(cursor, spec.field)?;
        }
        if !matches!(cursor.peek(), Some(b',' | b')' | b' ' | b'\t' | b'\r' | b'\n')) {
            return Err(cursor.error("\",\" or \")\""));
        }
    }
}

/// Passes over an attribute that has no place in the field table, provided that it constrains nothing.
pub(super) fn skip_unread(cursor: &mut Cursor<'_>, name: &str, start: usize) -> Result<(), ParseError> {
    let content = cursor.balanced()?;
    let mut wild = true;
    let mut rest = content;
    while !rest.is_empty() {
        let end = rest.find([',', '(', ')', '{', '}']).unwrap_or(rest.len());
        let opens = rest[end..].starts_with(['(', '{']);
        wild &= is_wild(rest[..end].trim(), opens);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    if wild { Ok(()) } else { Err(error_at(start, format!("something else: {name}() is not read by this version"))) }
}

/// Whether an item has a mask of zero, or is but a name in front of parentheses.
fn is_wild(item: &str, opens: bool) -> bool {
    match item.split_once('/') {
        Some((_, mask)) => {
            !mask.is_empty() && mask.bytes().all(|byte| matches!(byte, b'0' | b'x' | b'.' | b':' | b' '))
        }
        None => item.is_empty() || opens && !item.contains('='),
    }
}

/// The field of an attribute with a name in the text. The TPID of a VLAN tag is written as the `eth_type` beside it.
fn named_field(attribute: Attribute, name: &str) -> Option<&'static FieldSpec> {
    FIELDS.iter().find(|spec| spec.attribute == attribute && spec.name == name && is_in_parentheses(spec))
}

/// Whether a field is written in the parentheses of its attribute.
pub(super) fn is_in_parentheses(spec: &FieldSpec) -> bool {
    spec.form != Form::Presence && !matches!(spec.field, Field::VlanTpid | Field::CvlanTpid)
}

fn field_list(attribute: Attribute) -> String {
    let name = if attribute == Attribute::Cvlan { Attribute::Vlan.name() } else { attribute.name() };
    let fields: Vec<_> = attribute.fields().filter(|spec| is_in_parentheses(spec)).map(|spec| spec.name).collect();
    format!("a field of {name}(): {}", fields.join(", "))
}

/// Reads the value of a field and its mask, which is full if none is given.
fn read_value(cursor: &mut Cursor<'_>, field: Field, names: &dyn PortNames) -> Result<(u128, u128), ParseError> {
    let full = field.full_mask();
    match field.spec().form {
        Form::Decimal | Form::Hex => {
            let value = cursor.number(full)?;
            Ok((value, number_mask(cursor, full)?))
        }
        Form::Port => {
            let value = u128::from(read_port(cursor, names)?.0);
            Ok((value, number_mask(cursor, full)?))
        }
        Form::Mac => {
            let value = mac(cursor)?;
            Ok((value, if cursor.eat("/") { mac(cursor)? } else { full }))
        }
        Form::Ipv4 => {
            let value = ipv4(cursor)?;
            Ok((value, address_mask(cursor, field, ".", ipv4)?))
        }
        Form::Ipv6 => {
            let value = ipv6(cursor)?;
            Ok((value, address_mask(cursor, field, ":", ipv6)?))
        }
        Form::Fragment => {
            let start = cursor.offset();
            let value = match cursor.take_name() {
                "no" => FRAGMENT_NO,
                "first" => FRAGMENT_FIRST,
                "later" => FRAGMENT_LATER,
                _ => return Err(error_at(start, "no, first or later")),
            };
            if cursor.peek() == Some(b'/') {
                Err(cursor.error("no mask: frag has none"))
            } else {
                Ok((value.into(), full))
            }
        }
        Form::Flags(flags) => read_flags(cursor, flags, full),
        Form::Presence => Err(cursor.error("a field that is written")),
    }
}

/// Reads a port's number or name.
pub(super) fn read_port(cursor: &mut Cursor<'_>, names: &dyn PortNames) -> Result<PortNumber, ParseError> {
    let before = cursor.clone();
    let word = cursor.take_word();
    if word.is_empty() {
        return Err(before.error("a port's number or name"));
    }
    if is_number(word) {
        *cursor = before;
        return Ok(PortNumber(number32(cursor)?));
    }
    names.number(word).ok_or_else(|| before.error(format!("a port: there is none called {}", quoted(word))))
}

/// Reads a number of 32 bits.
pub(super) fn number32(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    let start = cursor.offset();
    let value = cursor.number(u128::from(u32::MAX))?;
    u32::try_from(value).map_err(|_| error_at(start, "a number of 32 bits"))
}

fn number_mask(cursor: &mut Cursor<'_>, full: u128) -> Result<u128, ParseError> {
    if cursor.eat("/") { cursor.number(full) } else { Ok(full) }
}

/// Reads the mask of an address: an address as in OVS, or the length of a prefix.
fn address_mask(
    cursor: &mut Cursor<'_>,
    field: Field,
    mark: &str,
    address: fn(&mut Cursor<'_>) -> Result<u128, ParseError>,
) -> Result<u128, ParseError> {
    let full = field.full_mask();
    if !cursor.eat("/") {
        return Ok(full);
    }
    if cursor.clone().take_while(is_of_address).contains(mark) {
        return address(cursor);
    }
    let width = field.spec().width;
    let length = cursor.number(u128::from(width))?;
    let host_bits = u32::try_from(length).map_or(0, |length| width - length);
    Ok(full & u128::MAX.checked_shl(host_bits).unwrap_or(0))
}

fn is_of_address(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':')
}

fn ipv4(cursor: &mut Cursor<'_>) -> Result<u128, ParseError> {
    address::<Ipv4Addr>(cursor, "an IPv4 address").map(|address| u128::from(address.to_bits()))
}

fn ipv6(cursor: &mut Cursor<'_>) -> Result<u128, ParseError> {
    address::<Ipv6Addr>(cursor, "an IPv6 address").map(Ipv6Addr::to_bits)
}

fn address<A: FromStr>(cursor: &mut Cursor<'_>, expected: &'static str) -> Result<A, ParseError> {
    let start = cursor.offset();
    cursor.take_while(is_of_address).parse().map_err(|_| error_at(start, expected))
}

fn mac(cursor: &mut Cursor<'_>) -> Result<u128, ParseError> {
    let start = cursor.offset();
    let text = cursor.take_while(|byte| byte.is_ascii_hexdigit() || byte == b':');
    let mut groups = text.split(':');
    let mut address = 0;
    for _ in 0..6 {
        let group = groups.next().filter(|group| matches!(group.len(), 1 | 2));
        let byte = group.and_then(|group| u8::from_str_radix(group, 16).ok());
        address = address << 8 | u128::from(byte.ok_or_else(|| error_at(start, "an Ethernet address"))?);
    }
    if groups.next().is_some() { Err(error_at(start, "an Ethernet address of six bytes")) } else { Ok(address) }
}

/// Reads named bits: `a|b` when exact, `+a-b` when masked, or a number with or without a mask. Nothing at all is no
/// bit, exactly, as in OVS.
fn read_flags(cursor: &mut Cursor<'_>, flags: &[(&str, u32)], full: u128) -> Result<(u128, u128), ParseError> {
    match cursor.peek() {
        Some(b'+' | b'-') => {
            let (mut value, mut mask) = (0, 0);
            while let Some(sign @ (b'+' | b'-')) = cursor.peek() {
                let start = cursor.offset();
                cursor.eat(if sign == b'+' { "+" } else { "-" });
                let bit = read_flag(cursor, flags)?;
                if mask & bit != 0 {
                    return Err(error_at(start, "each flag once"));
                }
                mask |= bit;
                value |= if sign == b'+' { bit } else { 0 };
            }
            Ok((value, mask))
        }
        Some(b')') => Ok((0, full)),
        _ => {
            let mut value = 0;
            loop {
                let digit = cursor.peek().is_some_and(|byte| byte.is_ascii_digit());
                value |= if digit { cursor.number(full)? } else { read_flag(cursor, flags)? };
                if digit && cursor.peek() == Some(b'/') {
                    return Ok((value, number_mask(cursor, full)?));
                }
                if !cursor.eat("|") {
                    return Ok((value, full));
                }
            }
        }
    }
}

fn read_flag(cursor: &mut Cursor<'_>, flags: &[(&str, u32)]) -> Result<u128, ParseError> {
    let start = cursor.offset();
    let name = cursor.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'[' | b']'));
    match flags.iter().find(|(flag, _)| *flag == name) {
        Some((_, bit)) => Ok(u128::from(*bit)),
        None => {
            let names: Vec<_> = flags.iter().map(|(flag, _)| *flag).collect();
            Err(error_at(start, format!("a flag: {}", names.join(", "))))
        }
    }
}
