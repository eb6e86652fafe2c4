//! Tunnel options, read.

use std::ops::Range;

use super::ParseError;
use super::cursor::{Cursor, error_at};
use super::read_value::{Found, read_field, read_items};
use super::tunnel_options::{
    ERSPAN, GENEVE, GENEVE_HEADER, GENEVE_LENGTH_BITS, GENEVE_LIMIT, GeneveBytes, TunnelOptions, VXLAN,
    option_field_name,
};
use crate::field::Field;

/// As many bytes of data as the length of a Geneve option can say (RFC 8926, section 3.5).
const GENEVE_DATA_LIMIT: usize = 124;

type Take<'a> = &'a mut dyn FnMut(Found) -> Result<(), ParseError>;

/// Reads what is in the parentheses of tunnel options, those included, and hands over each field. That options are
/// mentioned says that the header has them, whatever their masks, as in the kernel (`ip_tun_from_nlattr` in
/// `net/openvswitch/flow_netlink.c`).
pub(super) fn read_options(cursor: &mut Cursor<'_>, options: &TunnelOptions, take: Take<'_>) -> Result<(), ParseError> {
    cursor.expect("(")?;
    if *options == GENEVE {
        return read_geneve(cursor, take);
    }
    if *options == ERSPAN {
        return read_erspan(cursor, take);
    }
    take(Found::whole(options.present, 1, cursor.offset()))?;
    if *options != VXLAN {
        read_fields(cursor, options, take)
    } else if cursor.eat("gbp(") {
        read_fields(cursor, options, take)?;
        cursor.expect(")")
    } else if cursor.eat(")") {
        Ok(())
    } else {
        Err(cursor.error("\"gbp(\""))
    }
}

fn read_fields(cursor: &mut Cursor<'_>, options: &TunnelOptions, take: Take<'_>) -> Result<(), ParseError> {
    let mut seen = 0u8;
    read_items(cursor, &mut |cursor, name, start| {
        let Some(index) = options.fields.iter().position(|field| option_field_name(*field) == name) else {
            let names: Vec<_> = options.fields.iter().map(|field| option_field_name(*field)).collect();
            return Err(error_at(start, format!("a field of {}(): {}", options.name, names.join(", "))));
        };
        if seen & 1 << index != 0 {
            return Err(error_at(start, format!("each field once: {name} is here twice")));
        }
        seen |= 1 << index;
        cursor.expect("=")?;
        take(read_field(cursor, options.fields[index], &())?)
    })
}

/// Version 1 has an index, version 2 a direction and a hardware id, and there are no others.
fn read_erspan(cursor: &mut Cursor<'_>, take: Take<'_>) -> Result<(), ParseError> {
    let start = cursor.offset();
    let (mut version, mut index, mut direction) = (None, None, None);
    read_fields(cursor, &ERSPAN, &mut |found| {
        match found.field {
            _ if found.mask == 0 => {}
            Field::ErspanVersion if !found.is_whole => {}
            Field::ErspanVersion if matches!(found.value, 1 | 2) => version = Some(found.value),
            Field::ErspanVersion => return Err(error_at(found.offset, "1 or 2")),
            Field::ErspanIndex => index = Some(found.offset),
            _ => direction = Some(found.offset),
        }
        take(found)
    })?;
    let wrong = match version {
        Some(1) => direction,
        Some(_) => index,
        None => index.and(direction),
    };
    match wrong {
        Some(offset) => Err(error_at(offset, "idx with ver=1, or dir and hwid with ver=2")),
        None => take(Found { is_whole: version.is_some(), ..Found::whole(ERSPAN.present, 1, start) }),
    }
}

/// Reads the options of a Geneve header up to and with `)`.
fn read_geneve(cursor: &mut Cursor<'_>, take: Take<'_>) -> Result<(), ParseError> {
    let start = cursor.offset();
    let mut options =
        Geneve { bytes: GeneveBytes::WILD, length: 0, without_length: None, is_wild: true, is_whole: true };
    loop {
        cursor.skip_separators();
        if cursor.eat(")") {
            break;
        }
        options.read_one(cursor)?;
    }
    let present = Found::whole(Field::GenevePresent, 1, start);
    if let Some(offset) = options.without_length {
        // So OVS prints options of a packet of which the flow matches none.
        return if options.is_wild {
            take(Found { is_whole: false, ..present })
        } else {
            Err(error_at(offset, "len= without a mask in each option, as one of them is matched"))
        };
    }
    take(present)?;
    take(Found::whole(Field::GeneveLength, options.length as u128, start))?;
    for (field, value, mask) in options.bytes.fields().filter(|(.., mask)| *mask != 0) {
        take(Found { field, value, mask, offset: start, is_whole: options.is_whole })?;
    }
    Ok(())
}

/// Geneve options, as far as they are read.
struct Geneve {
    bytes: GeneveBytes,
    /// Bytes read.
    length: usize,
    /// Where the first option is whose length does not matter, so that the places of those behind it are not known.
    without_length: Option<usize>,
    /// Whether nothing but lengths is matched.
    is_wild: bool,
    /// Whether each option is given in full, without a mask.
    is_whole: bool,
}

impl Geneve {
    /// Reads `{class=,type=,len=,DATA}`, of which anything may be left out.
    fn read_one(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
        let start = cursor.offset();
        if !cursor.eat("{") {
            return Err(cursor.error("\"{\" or \")\""));
        }
        let header = self.length;
        let data = header + GENEVE_HEADER;
        if data > GENEVE_LIMIT {
            return Err(error_at(start, format!("at most {GENEVE_LIMIT} bytes of options")));
        }
        let [mut class, mut kind, mut length, mut content] = [false; 4];
        self.length = data;
        loop {
            cursor.skip_separators();
            if cursor.eat("}") {
                break;
            }
            let place = cursor.offset();
            let again = if cursor.eat("class=") {
                self.read_bytes(cursor, header..header + 2)?;
                std::mem::replace(&mut class, true)
            } else if cursor.eat("type=") {
                self.read_bytes(cursor, header + 2..header + 3)?;
                std::mem::replace(&mut kind, true)
            } else if cursor.eat("len=") {
                self.read_length(cursor)?;
                std::mem::replace(&mut length, true)
            } else if length && !content && cursor.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                self.read_bytes(cursor, data..self.length)?;
                std::mem::replace(&mut content, true)
            } else {
                return Err(error_at(place, "class=, type=, len= and then data, or \"}\""));
            };
            if again {
                return Err(error_at(place, "each part of an option once"));
            }
            if !matches!(cursor.peek(), Some(b',' | b'}' | b' ')) {
                return Err(cursor.error("\",\" or \"}\""));
            }
        }
        if !length {
            self.without_length.get_or_insert(start);
        }
        self.is_whole &= class && kind && length && (content || self.length == data);
        Ok(())
    }

    /// Reads the length of the data, which the header is in front of. Its mask is all or nothing: which bytes are
    /// matched depends on it.
    fn read_length(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
        let start = cursor.offset();
        let length = usize::from(byte(cursor)?);
        if length > GENEVE_DATA_LIMIT || !length.is_multiple_of(4) {
            return Err(error_at(start, format!("a multiple of 4 up to {GENEVE_DATA_LIMIT}")));
        }
        if self.length + length > GENEVE_LIMIT {
            return Err(error_at(start, format!("at most {GENEVE_LIMIT} bytes of options")));
        }
        let place = cursor.offset();
        let mask = if cursor.eat("/") { byte(cursor)? } else { GENEVE_LENGTH_BITS };
        match mask {
            0 => {
                self.without_length.get_or_insert(start);
            }
            GENEVE_LENGTH_BITS | u8::MAX => {
                self.bytes.values[self.length - 1] = u8::try_from(length / 4).unwrap_or(u8::MAX);
                self.bytes.masks[self.length - 1] = GENEVE_LENGTH_BITS;
            }
            _ => return Err(error_at(place, "no mask: the length of an option must be exact")),
        }
        self.length += length;
        Ok(())
    }

    /// Reads a number of so many bytes, with or without a mask.
    fn read_bytes(&mut self, cursor: &mut Cursor<'_>, place: Range<usize>) -> Result<(), ParseError> {
        let masks = &mut self.bytes.masks[place.clone()];
        read_long_number(cursor, &mut self.bytes.values[place])?;
        if cursor.eat("/") {
            read_long_number(cursor, masks)?;
        } else {
            masks.fill(u8::MAX);
        }
        self.is_wild &= masks.iter().all(|mask| *mask == 0);
        self.is_whole &= masks.iter().all(|mask| *mask == u8::MAX);
        Ok(())
    }
}

fn byte(cursor: &mut Cursor<'_>) -> Result<u8, ParseError> {
    cursor.number(u8::MAX.into()).map(|value| u8::try_from(value).unwrap_or(u8::MAX))
}

/// Reads a number of any length into as many bytes, the last one lowest.
fn read_long_number(cursor: &mut Cursor<'_>, number: &mut [u8]) -> Result<(), ParseError> {
    let start = cursor.offset();
    let room = number.len();
    let too_long = || error_at(start, format!("a number of at most {} bits", 8 * room));
    number.fill(0);
    if !cursor.eat("0x") {
        let value = cursor.number(u64::MAX.into())?.to_be_bytes();
        let used = value.iter().skip_while(|byte| **byte == 0).count();
        let unused = room.checked_sub(used).ok_or_else(too_long)?;
        number[unused..].copy_from_slice(&value[value.len() - used..]);
        return Ok(());
    }
    let digits = cursor.take_while(|byte| byte.is_ascii_hexdigit());
    if digits.is_empty() {
        return Err(error_at(start, "a number"));
    }
    let digits = digits.trim_start_matches('0');
    if digits.len() > 2 * room {
        return Err(too_long());
    }
    for (index, digit) in digits.chars().rev().enumerate() {
        let place = room - 1 - index / 2;
        number[place] |=
            digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()).unwrap_or(0) << (4 * (index % 2));
    }
    Ok(())
}
