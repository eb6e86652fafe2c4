//! What stands in the parentheses of an action.

use std::fmt;

use crate::text::ParseError;
use crate::text::cursor::{Cursor, error_at};

/// Reads arguments by name, in any order, up to and with the closing parenthesis; gives a tuple of them.
///
/// Each argument is `name: how`, where `how` takes what follows the name, and has a default after `=>` if it may be
/// missing.
macro_rules! arguments {
    ($cursor:expr, $of:expr; $($name:ident: $how:expr $(=> $default:expr)?),* $(,)?) => {{
        $(let mut $name = None;)*
        let _end = $crate::text::actions::arguments::read_arguments(
            $cursor,
            $of,
            &[$(stringify!($name)),*],
            &mut |cursor, name| {
                $(if name == stringify!($name) {
                    $name = Some($how(cursor)?);
                    return Ok(());
                })*
                Ok(())
            },
        )?;
        ($(arguments!(@or $name, $of, _end $(, $default)?),)*)
    }};
    (@or $name:ident, $of:expr, $end:ident, $default:expr) => { $name.unwrap_or($default) };
    (@or $name:ident, $of:expr, $end:ident) => {
        $name.ok_or_else(|| {
            $crate::text::cursor::error_at($end, format!("{} in {}()", stringify!($name), $of))
        })?
    };
}

pub(super) use arguments;

/// Reads names and lets `read` take what follows each. Returns where the closing parenthesis is.
pub(super) fn read_arguments(
    cursor: &mut Cursor<'_>,
    of: &str,
    names: &[&'static str],
    read: &mut dyn FnMut(&mut Cursor<'_>, &str) -> Result<(), ParseError>,
) -> Result<usize, ParseError> {
    let mut seen = vec![false; names.len()];
    loop {
        cursor.skip_separators();
        let start = cursor.offset();
        if cursor.eat(")") {
            return Ok(start);
        }
        if cursor.at_end() {
            return Err(cursor.error(format!("\")\" for {of}(")));
        }
        let name = cursor.take_name();
        let Some(index) = names.iter().position(|known| *known == name) else {
            return Err(error_at(start, format!("a field of {of}(): {}", names.join(", "))));
        };
        if std::mem::replace(&mut seen[index], true) {
            return Err(error_at(start, format!("each field once: {name} is here twice")));
        }
        read(cursor, name)?;
        if !cursor.at_end() && !matches!(cursor.peek(), Some(b',' | b')' | b' ' | b'\t' | b'\r' | b'\n')) {
            return Err(cursor.error("\",\" or \")\""));
        }
    }
}

/// `name` alone.
pub(super) fn flag(_: &mut Cursor<'_>) -> Result<bool, ParseError> {
    Ok(true)
}

/// `name` alone, and where it begins.
pub(super) fn placed_flag(name: &str) -> impl Fn(&mut Cursor<'_>) -> Result<Option<usize>, ParseError> {
    move |cursor| Ok(Some(cursor.offset() - name.len()))
}

/// An argument and where it begins, for an error that only the other arguments make one.
#[derive(Clone, Copy)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) offset: usize,
}

/// What `read` reads, and where.
pub(super) fn placed<T>(
    read: impl Fn(&mut Cursor<'_>) -> Result<T, ParseError>,
) -> impl Fn(&mut Cursor<'_>) -> Result<Option<Placed<T>>, ParseError> {
    move |cursor| {
        let offset = cursor.offset();
        read(cursor).map(|value| Some(Placed { value, offset }))
    }
}

/// `name=VALUE`.
pub(super) fn value<T>(
    read: impl Fn(&mut Cursor<'_>) -> Result<T, ParseError>,
) -> impl Fn(&mut Cursor<'_>) -> Result<T, ParseError> {
    move |cursor| {
        cursor.expect("=")?;
        read(cursor)
    }
}

/// `name(VALUE)`.
pub(super) fn parenthesised<T>(
    read: impl Fn(&mut Cursor<'_>) -> Result<T, ParseError>,
) -> impl Fn(&mut Cursor<'_>) -> Result<T, ParseError> {
    move |cursor| {
        cursor.expect("(")?;
        let value = read(cursor)?;
        cursor.expect(")")?;
        Ok(value)
    }
}

/// `name=NUMBER`, up to a limit.
pub(super) fn number<T>(limit: T) -> impl Fn(&mut Cursor<'_>) -> Result<T, ParseError>
where
    T: Copy + Into<u128> + TryFrom<u128>,
{
    value(move |cursor| plain_number(cursor, limit))
}

/// A number up to a limit.
pub(super) fn plain_number<T>(cursor: &mut Cursor<'_>, limit: T) -> Result<T, ParseError>
where
    T: Copy + Into<u128> + TryFrom<u128>,
{
    let start = cursor.offset();
    T::try_from(cursor.number(limit.into())?).map_err(|_| error_at(start, "a smaller number"))
}

/// Takes hexadecimal digits, two for a byte; where the number of digits is odd, the first byte has one.
pub(super) fn hex_bytes(cursor: &mut Cursor<'_>) -> Vec<u8> {
    let digits = cursor.take_while(|byte| byte.is_ascii_hexdigit());
    let value = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |digits: &[u8]| digits.iter().filter_map(value).fold(0, |byte, digit| byte << 4 | digit);
    digits.as_bytes().rchunks(2).rev().map(byte).collect()
}

/// Bytes in hexadecimal digits.
pub(super) struct HexBytes<'a>(pub(super) &'a [u8]);

impl fmt::Display for HexBytes<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}
