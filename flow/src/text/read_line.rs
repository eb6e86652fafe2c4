//! Lines, read.

use std::time::Duration;

use super::cursor::{Cursor, Separators, error_at};
use super::read_actions::read_actions;
use super::read_extra::{read_extra, read_seconds};
use super::read_key::{no_attribute, read_key};
use super::words::{EXTRA_LABEL, TCP_FLAG_LETTERS};
use super::{Extra, FlowLine, Offloaded, ParseError, ParsedKey, Statistics};
use crate::action::{ActionKind, ActionList};
use crate::port::PortNames;

/// What may stand between key and actions, each but the last followed by one value.
const LABELS: [&str; 7] = ["packets:", "bytes:", "used:", "flags:", "offloaded:", "dp:", "actions:"];

/// Reads a flow, in the form in which `dump-flows` or `dump-flows -m` prints it, or as a key, a blank and actions.
pub fn parse_line(text: &str, names: &dyn PortNames) -> Result<FlowLine, ParseError> {
    let mut cursor = Cursor::new(text);
    let (ParsedKey { ufid, matching }, separators) = read_key(&mut cursor, names)?;
    let mut line = FlowLine {
        ufid,
        matching,
        actions: ActionList::default(),
        statistics: Statistics::default(),
        offloaded: None,
        layer: None,
        extra: Extra::default(),
    };
    if !read_labels(&mut cursor, &mut line)? {
        check_split(&cursor, separators)?;
    }
    line.actions = read_actions(&mut cursor, names, Some(EXTRA_LABEL))?;
    if cursor.eat(EXTRA_LABEL) {
        line.extra = read_extra(&mut cursor)?;
    }
    Ok(line)
}

/// Reads the labels of a dumped line up to `actions:`; false if there are none.
fn read_labels(cursor: &mut Cursor<'_>, line: &mut FlowLine) -> Result<bool, ParseError> {
    let mut seen = [false; LABELS.len()];
    loop {
        let start = cursor.offset();
        let Some(index) = LABELS.iter().position(|label| cursor.eat(label)) else {
            if seen == [false; LABELS.len()] {
                return Ok(false);
            }
            return Err(cursor.error(format!("one of {}", LABELS.join(", "))));
        };
        if std::mem::replace(&mut seen[index], true) {
            return Err(error_at(start, format!("{} once", LABELS[index])));
        }
        match LABELS[index] {
            "packets:" => line.statistics.packets = cursor.count()?,
            "bytes:" => line.statistics.bytes = cursor.count()?,
            "used:" => line.statistics.used = read_used(cursor)?,
            "flags:" => line.statistics.tcp_flags = read_flag_letters(cursor)?,
            "offloaded:" => line.offloaded = Some(read_offloaded(cursor)?),
            "dp:" => line.layer = Some(cursor.take_word().to_owned()),
            _ => return Ok(true),
        }
        let separators = cursor.skip_separators();
        if !separators.comma && !separators.blank && !cursor.at_end() {
            return Err(cursor.error("\",\""));
        }
    }
}

/// A line without labels is a key and actions with a blank between them. What looks like neither is taken for a
/// mistake in the key where it stands after a comma, and for one in the actions where it stands after a blank.
fn check_split(cursor: &Cursor<'_>, separators: Separators) -> Result<(), ParseError> {
    if cursor.at_end() {
        return Err(cursor.error("actions after the key"));
    }
    let mut ahead = cursor.clone();
    let word = ahead.take_word();
    let is_action = ActionKind::ALL.iter().any(|kind| kind.name() == word);
    let looks_like_key = ahead.peek() == Some(b'(') && !is_action;
    if cursor.offset() == 0 || !separators.blank || separators.comma && looks_like_key {
        return Err(no_attribute(cursor));
    }
    Ok(())
}

fn read_used(cursor: &mut Cursor<'_>) -> Result<Option<Duration>, ParseError> {
    if cursor.eat("never") {
        return Ok(None);
    }
    let used = read_seconds(cursor)?;
    cursor.expect("s")?;
    Ok(Some(used))
}

fn read_flag_letters(cursor: &mut Cursor<'_>) -> Result<u16, ParseError> {
    if cursor.eat("none") {
        return Ok(0);
    }
    let mut flags = 0;
    while let Some((_, bit)) = TCP_FLAG_LETTERS.iter().find(|(letter, _)| cursor.eat(letter)) {
        flags |= bit;
    }
    if flags == 0 { Err(cursor.error("letters of TCP flags, such as SFPR.")) } else { Ok(flags) }
}

fn read_offloaded(cursor: &mut Cursor<'_>) -> Result<Offloaded, ParseError> {
    let start = cursor.offset();
    match cursor.take_name() {
        "yes" => Ok(Offloaded::Yes),
        "partial" => Ok(Offloaded::Partial),
        _ => Err(error_at(start, "yes or partial")),
    }
}
