//! Values of fields, read.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::ParseError;
use super::cursor::{Cursor, digit_value, error_at, quoted};
use super::read_options::read_options;
use super::tunnel_options::{TUNNEL_OPTIONS, TunnelOptions};
use crate::field::{
    Attribute, FIELDS, FRAGMENT_FIRST, FRAGMENT_LATER, FRAGMENT_NO, Field, FieldSpec, Form, MPLS_DEPTH, MPLS_ENTRIES,
    MPLS_PRESENT,
};
use crate::name::is_number;
use crate::port::{PortNames, PortNumber};

/// A field as it was found in a text.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) field: Field,
    pub(super) value: u128,
    pub(super) mask: u128,
    /// Where its value is.
    pub(super) offset: usize,
    /// Whether all of what is written counts.
    pub(super) is_whole: bool,
}

impl Found {
    /// A field that is matched on all of its bits.
    pub(super) fn whole(field: Field, value: u128, offset: usize) -> Self {
        Self { field, value, mask: field.full_mask(), offset, is_whole: true }
    }
}

/// Reads what is in the parentheses of an attribute, the closing one included, and hands over each field.
pub(super) fn read_attribute(
    cursor: &mut Cursor<'_>,
    attribute: Attribute,
    names: &dyn PortNames,
    found: &mut dyn FnMut(Found) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    if let Some(scalar) = named_field(attribute, "") {
        found(read_field(cursor, scalar.field, names)?)?;
        return cursor.expect(")");
    }
    if attribute == Attribute::Mpls {
        return read_stack(cursor, found);
    }
    let mut seen = [false; FIELDS.len()];
    let mut options: Option<&TunnelOptions> = None;
    read_items(cursor, &mut |cursor, name, start| {
        if attribute == Attribute::Tunnel && cursor.peek() == Some(b'(') {
            if let Some(kind) = TUNNEL_OPTIONS.iter().find(|kind| kind.name == name) {
                if let Some(before) = options.replace(kind) {
                    return Err(error_at(start, format!("tunnel options once: {}() is here already", before.name)));
                }
                return read_options(cursor, kind, found);
            } else if is_unknown(name) {
                return skip_unknown(cursor, name, start);
            }
        }
        let Some(spec) = named_field(attribute, name) else {
            return Err(error_at(start, field_list(attribute)));
        };
        if std::mem::replace(&mut seen[spec.field as usize], true) {
            return Err(error_at(start, format!("each field once: {name} is here twice")));
        }
        if matches!(spec.form, Form::Flags(_)) {
            cursor.expect("(")?;
            found(read_field(cursor, spec.field, names)?)?;
            cursor.expect(")")
        } else {
            cursor.expect("=")?;
            found(read_field(cursor, spec.field, names)?)
        }
    })
}

/// Reads items up to and with `)`. `read_item` is handed the name of each, which is read, and where that stands.
pub(super) fn read_items(
    cursor: &mut Cursor<'_>,
    read_item: &mut dyn FnMut(&mut Cursor<'_>, &str, usize) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    loop {
        cursor.skip_separators();
        if cursor.eat(")") {
            return Ok(());
        }
        let start = cursor.offset();
        let name = cursor.take_name();
        read_item(cursor, name, start)?;
        if !matches!(cursor.peek(), Some(b',' | b')' | b' ' | b'\t' | b'\r' | b'\n')) {
            return Err(cursor.error("\",\" or \")\""));
        }
    }
}

/// Reads label stack entries up to and with `)`. A name that the entry has already begins the next one, as in OVS.
fn read_stack(
    cursor: &mut Cursor<'_>,
    found: &mut dyn FnMut(Found) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let mut entry = 0;
    let mut seen = [false; 4];
    read_items(cursor, &mut |cursor, name, start| {
        let Some(index) = MPLS_ENTRIES[0].iter().position(|field| field.spec().name == name) else {
            return Err(error_at(start, field_list(Attribute::Mpls)));
        };
        if std::mem::replace(&mut seen[index], true) {
            entry += 1;
            seen = [false; 4];
            seen[index] = true;
            let Some(present) = MPLS_PRESENT.get(entry) else {
                return Err(error_at(start, format!("at most {MPLS_DEPTH} label stack entries")));
            };
            found(Found::whole(*present, 1, start))?;
        }
        cursor.expect("=")?;
        found(read_field(cursor, MPLS_ENTRIES[entry][index], &())?)
    })
}

/// Whether a name is like `key32`: how OVS writes an attribute of the kernel that it is too old to know, in bytes.
pub(super) fn is_unknown(name: &str) -> bool {
    name.strip_prefix("key")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Passes over an attribute that is not known, provided that it constrains nothing.
pub(super) fn skip_unknown(cursor: &mut Cursor<'_>, name: &str, start: usize) -> Result<(), ParseError> {
    let content = cursor.balanced()?;
    let is_wild = content
        .rsplit_once('/')
        .is_some_and(|(_, mask)| !mask.is_empty() && mask.bytes().all(|byte| matches!(byte, b'0' | b'x' | b' ')));
    if is_wild { Ok(()) } else { Err(error_at(start, format!("a mask of zero, as {name}() is not known"))) }
}

/// The field of an attribute with a name in the text.
fn named_field(attribute: Attribute, name: &str) -> Option<&'static FieldSpec> {
    // OVS prints the ports of this tuple in one way, and reads them in another.
    let name = match (attribute, name) {
        (Attribute::CtTuple6, "src_port") => Field::CtTuple6TpSrc.spec().name,
        (Attribute::CtTuple6, "dst_port") => Field::CtTuple6TpDst.spec().name,
        _ => name,
    };
    attribute.fields().find(|spec| spec.name == name && is_in_parentheses(spec))
}

/// Whether a field is written as NAME=VALUE in the parentheses of its attribute. The TPID of a VLAN tag is written as
/// the `eth_type` beside it.
pub(super) fn is_in_parentheses(spec: &FieldSpec) -> bool {
    !matches!(spec.form, Form::Presence | Form::Options)
        && !matches!(spec.field, Field::VlanTpid | Field::CvlanTpid)
        && !spec.is_nested()
}

fn field_list(attribute: Attribute) -> String {
    let name = if attribute == Attribute::Cvlan { Attribute::Vlan.name() } else { attribute.name() };
    let mut fields: Vec<_> = attribute.fields().filter(|spec| is_in_parentheses(spec)).map(|spec| spec.name).collect();
    if attribute == Attribute::Tunnel {
        fields.extend(TUNNEL_OPTIONS.iter().map(|options| options.name));
    }
    format!("a field of {name}(): {}", fields.join(", "))
}

/// Reads the value of a field and its mask, which is full if none is given.
pub(super) fn read_field(cursor: &mut Cursor<'_>, field: Field, names: &dyn PortNames) -> Result<Found, ParseError> {
    let offset = cursor.offset();
    let (value, mask) = read_value(cursor, field, names)?;
    Ok(Found { field, value, mask, offset, is_whole: mask == field.full_mask() })
}

fn read_value(cursor: &mut Cursor<'_>, field: Field, names: &dyn PortNames) -> Result<(u128, u128), ParseError> {
    let full = field.full_mask();
    match field.spec().form {
        Form::Decimal | Form::Hex | Form::Byte | Form::PrefixedHex(_) => {
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
            // Part of the enumeration has no name, and OVS no word for it.
            if cursor.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                let value = cursor.number(full)?;
                return Ok((value, number_mask(cursor, full)?));
            }
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
        Form::Presence | Form::Options => Err(cursor.error("a field that is written by itself")),
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

pub(super) fn is_of_address(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':')
}

fn ipv4(cursor: &mut Cursor<'_>) -> Result<u128, ParseError> {
    address::<Ipv4Addr>(cursor, "an IPv4 address").map(|address| u128::from(address.to_bits()))
}

fn ipv6(cursor: &mut Cursor<'_>) -> Result<u128, ParseError> {
    address::<Ipv6Addr>(cursor, "an IPv6 address").map(Ipv6Addr::to_bits)
}

pub(super) fn address<A: FromStr>(cursor: &mut Cursor<'_>, expected: &'static str) -> Result<A, ParseError> {
    let start = cursor.offset();
    cursor.take_while(is_of_address).parse().map_err(|_| error_at(start, expected))
}

pub(super) fn mac(cursor: &mut Cursor<'_>) -> Result<u128, ParseError> {
    let start = cursor.offset();
    let text = cursor.take_while(|byte| byte.is_ascii_hexdigit() || byte == b':');
    let mut groups = text.as_bytes().split(|byte| *byte == b':');
    let mut address = 0u64;
    for _ in 0..6 {
        let group = groups.next().filter(|group| matches!(group.len(), 1 | 2));
        let group = group.ok_or_else(|| error_at(start, "an Ethernet address"))?;
        address = address << 8 | group.iter().fold(0, |byte, digit| byte << 4 | u64::from(digit_value(*digit)));
    }
    if groups.next().is_some() { Err(error_at(start, "an Ethernet address of six bytes")) } else { Ok(address.into()) }
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
