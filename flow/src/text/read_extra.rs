//! What `dp-extra-info:` carries, read; and times.

use std::time::Duration;

use super::cursor::{Cursor, error_at};
use super::{Extra, ParseError};
use crate::priority::Priority;

/// Reads the rest of the text: our own words, and anything else word for word.
pub(super) fn read_extra(cursor: &mut Cursor<'_>) -> Result<Extra, ParseError> {
    let mut extra = Extra::default();
    let (mut priority, mut other) = (None, String::new());
    loop {
        cursor.skip_separators();
        if cursor.at_end() {
            break;
        }
        let start = cursor.offset();
        let item = take_item(cursor).trim_end_matches(Cursor::is_blank);
        // It would be written as something else: a flow is one line.
        if let Some(place) = item.find(char::is_control) {
            return Err(error_at(start + place, "no control character in here"));
        }
        let mut inner = Cursor::new(item);
        // Offsets in an item count from its beginning.
        let placed = |error: ParseError| error_at(start + error.offset, error.expected);
        let again = match inner.take_name() {
            "priority" if inner.eat("[") => priority.replace(read_priority(&mut inner).map_err(placed)?).is_some(),
            "idle_timeout" if inner.eat("[") => {
                extra.expiry.idle.replace(read_timeout(&mut inner).map_err(placed)?).is_some()
            }
            "hard_timeout" if inner.eat("[") => {
                extra.expiry.hard.replace(read_timeout(&mut inner).map_err(placed)?).is_some()
            }
            "permanent" if inner.at_end() => std::mem::replace(&mut extra.expiry.permanent, true),
            _ => {
                if !other.is_empty() {
                    other.push(',');
                }
                other.push_str(item);
                false
            }
        };
        if again {
            return Err(error_at(start, "each word of dp-extra-info once"));
        }
    }
    extra.priority = priority.unwrap_or_default();
    extra.other = (!other.is_empty()).then_some(other);
    Ok(extra)
}

/// Takes text up to a comma that is not in parentheses or brackets.
fn take_item<'t>(cursor: &mut Cursor<'t>) -> &'t str {
    let mut depth = 0usize;
    let end = cursor.rest().find(|character| {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    cursor.take(end.unwrap_or(cursor.rest().len()))
}

fn read_priority(cursor: &mut Cursor<'_>) -> Result<Priority, ParseError> {
    let start = cursor.offset();
    let number = cursor.number(Priority::MAX.into())?;
    let priority = u8::try_from(number).ok().and_then(Priority::new);
    let priority = priority.ok_or_else(|| error_at(start, "a priority from 0 to 15"))?;
    close(cursor)?;
    Ok(priority)
}

fn read_timeout(cursor: &mut Cursor<'_>) -> Result<Duration, ParseError> {
    let timeout = read_seconds(cursor)?;
    close(cursor)?;
    Ok(timeout)
}

fn close(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    cursor.expect("]")?;
    if cursor.at_end() { Ok(()) } else { Err(cursor.error("\",\"")) }
}

/// Reads seconds with up to nine decimals.
pub(super) fn read_seconds(cursor: &mut Cursor<'_>) -> Result<Duration, ParseError> {
    let seconds = cursor.count()?;
    let mut nanoseconds = 0;
    if cursor.eat(".") {
        let start = cursor.offset();
        let decimals = cursor.take_while(|byte| byte.is_ascii_digit());
        if decimals.is_empty() || decimals.len() > 9 {
            return Err(error_at(start, "one to nine decimals"));
        }
        for index in 0..9 {
            let digit = decimals.as_bytes().get(index).map_or(0, |digit| u32::from(digit - b'0'));
            nanoseconds = nanoseconds * 10 + digit;
        }
    }
    Ok(Duration::new(seconds, nanoseconds))
}
