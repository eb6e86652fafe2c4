//! Lists of actions, and the actions that hold lists.

use std::fmt;

use super::arguments::{arguments, number};
use super::table::{push_action, read_action};
use crate::action::{Action, ActionKind, ActionList};
use crate::port::PortNames;
use crate::text::cursor::{Cursor, NESTING_LIMIT, error_at};
use crate::text::write_value::Ports;
use crate::text::{ParseError, Style};

/// As many actions as a netlink message of OVS has room for.
const ACTIONS_LIMIT: usize = 8191;
/// Decimals of a percentage that are enough to tell any two probabilities apart: 2^32 steps of 100 %.
const MOST_DECIMALS: u32 = 8;

/// Reads a list of actions; `drop` and the empty text are the empty list.
pub fn parse_actions(text: &str, names: &dyn PortNames) -> Result<ActionList, ParseError> {
    read_actions(&mut Cursor::new(text), names, None)
}

/// Reads actions up to the end of the text or to `end`, which it leaves.
pub(in crate::text) fn read_actions(
    cursor: &mut Cursor<'_>,
    names: &dyn PortNames,
    end: Option<&str>,
) -> Result<ActionList, ParseError> {
    let ends = |cursor: &Cursor<'_>| cursor.at_end() || end.is_some_and(|end| cursor.rest().starts_with(end));
    ActionReader { names, depth: 0 }.read_list(cursor, &ends)
}

/// Reads lists of actions, and lists in them.
pub(super) struct ActionReader<'n> {
    pub(super) names: &'n dyn PortNames,
    /// How many lists the one that is read is in.
    depth: usize,
}

impl ActionReader<'_> {
    fn read_list(
        &mut self,
        cursor: &mut Cursor<'_>,
        ends: &dyn Fn(&Cursor<'_>) -> bool,
    ) -> Result<ActionList, ParseError> {
        let mut actions = Vec::new();
        cursor.skip_separators();
        while !ends(cursor) {
            if actions.len() == ACTIONS_LIMIT {
                return Err(cursor.error(format!("at most {ACTIONS_LIMIT} actions")));
            }
            let start = cursor.offset();
            let action = read_action(self, cursor)?;
            let separators = cursor.skip_separators();
            if !separators.comma && !separators.blank && !ends(cursor) {
                return Err(cursor.error("\",\" between actions"));
            }
            match action {
                Some(action) => actions.push(action),
                None if ends(cursor) => break,
                None => return Err(error_at(start, "drop at the end: nothing behind it is done")),
            }
        }
        Ok(actions.into())
    }

    /// Reads a list in parentheses.
    pub(super) fn read_nested(&mut self, cursor: &mut Cursor<'_>) -> Result<ActionList, ParseError> {
        if self.depth == NESTING_LIMIT {
            return Err(cursor.error(format!("at most {NESTING_LIMIT} lists of actions within each other")));
        }
        cursor.expect("(")?;
        self.depth += 1;
        let actions = self.read_list(cursor, &|cursor| cursor.at_end() || cursor.peek() == Some(b')'))?;
        self.depth -= 1;
        cursor.expect(")")?;
        Ok(actions)
    }

    /// Reads the arguments of `check_pkt_len`.
    pub(super) fn read_check_packet_length(&mut self, cursor: &mut Cursor<'_>) -> Result<Action, ParseError> {
        cursor.expect("(")?;
        let (length, greater, less_or_equal) = arguments!(cursor, "check_pkt_len";
            size: number(u16::MAX),
            gt: |cursor| self.read_nested(cursor),
            le: |cursor| self.read_nested(cursor),
        );
        Ok(Action::CheckPacketLength { length, greater, less_or_equal })
    }

    /// Reads the arguments of `sample`.
    pub(super) fn read_sample(&mut self, cursor: &mut Cursor<'_>) -> Result<Action, ParseError> {
        cursor.expect("(")?;
        let (probability, actions) = arguments!(cursor, "sample";
            sample: read_percentage,
            actions: |cursor| self.read_nested(cursor),
        );
        Ok(Action::Sample { probability, actions })
    }

    /// Reads the arguments of `dec_ttl`.
    pub(super) fn read_dec_ttl(&mut self, cursor: &mut Cursor<'_>) -> Result<Action, ParseError> {
        cursor.expect("(")?;
        let (list,) = arguments!(cursor, "dec_ttl"; le_1: |cursor| self.read_nested(cursor));
        Ok(Action::DecTtl(list))
    }
}

/// Writes a list of actions, `drop` if it is empty.
pub fn write_actions(out: &mut dyn fmt::Write, actions: &[Action], style: &Style<'_>) -> fmt::Result {
    let mut text = Vec::new();
    push_actions(&mut text, actions, &mut Ports::new(style));
    out.write_str(&String::from_utf8_lossy(&text))
}

/// Writes one action.
pub fn write_action(out: &mut dyn fmt::Write, action: &Action, style: &Style<'_>) -> fmt::Result {
    let mut text = Vec::new();
    push_action(&mut text, action, &mut Ports::new(style))?;
    out.write_str(&String::from_utf8_lossy(&text))
}

/// Writes a list of actions; what is appended is UTF-8.
pub(in crate::text) fn push_actions(out: &mut Vec<u8>, actions: &[Action], ports: &mut Ports<'_>) {
    if actions.is_empty() {
        return out.extend_from_slice(ActionKind::Drop.name().as_bytes());
    }
    for (index, action) in actions.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // A vector takes all.
        push_action(out, action, ports).unwrap_or_default();
    }
}

/// Reads `=P%` with any number of decimals, and rounds it as OVS does.
fn read_percentage(cursor: &mut Cursor<'_>) -> Result<u32, ParseError> {
    const LONGEST: usize = 20;
    cursor.expect("=")?;
    let start = cursor.offset();
    let wrong = || error_at(start, "a percentage from 0 to 100");
    let whole = cursor.count()?;
    if whole > 100 {
        return Err(wrong());
    }
    let decimals = if cursor.eat(".") { cursor.take_while(|byte| byte.is_ascii_digit()) } else { "" };
    if decimals.len() > LONGEST {
        return Err(error_at(start, format!("a percentage of at most {LONGEST} decimals")));
    }
    let unit = 10u128.pow(u32::try_from(decimals.len()).unwrap_or_default());
    let parts = decimals.bytes().fold(u128::from(whole), |parts, digit| parts * 10 + u128::from(digit - b'0'));
    if parts > 100 * unit {
        return Err(wrong());
    }
    cursor.expect("%")?;
    u32::try_from(probability(parts, unit)).map_err(|_| wrong())
}

/// `parts / unit` percent of [`u32::MAX`], to the nearest, halves up.
fn probability(parts: u128, unit: u128) -> u128 {
    (2 * u128::from(u32::MAX) * parts + 100 * unit) / (200 * unit)
}

/// Writes the fewest decimals, one at least, from which the probability is read back.
fn write_percentage(out: &mut dyn fmt::Write, wanted: u32) -> fmt::Result {
    let (wanted, all) = (u128::from(wanted), u128::from(u32::MAX));
    let parts = |unit: u128| (200 * unit * wanted + all) / (2 * all);
    let is_enough = |decimals: &u32| probability(parts(10u128.pow(*decimals)), 10u128.pow(*decimals)) == wanted;
    let decimals = (1..MOST_DECIMALS).find(is_enough).unwrap_or(MOST_DECIMALS);
    let unit = 10u128.pow(decimals);
    let (whole, part) = (parts(unit) / unit, parts(unit) % unit);
    write!(out, "{whole}.{part:0width$}%", width = decimals as usize)
}

/// Writes `check_pkt_len`.
pub(super) fn write_check_packet_length(
    out: &mut dyn fmt::Write,
    length: u16,
    greater: &ActionList,
    less_or_equal: &ActionList,
    style: &Style<'_>,
) -> fmt::Result {
    write!(out, "check_pkt_len(size={length},gt(")?;
    write_actions(out, greater, style)?;
    out.write_str("),le(")?;
    write_actions(out, less_or_equal, style)?;
    out.write_str("))")
}

/// Writes `sample`.
pub(super) fn write_sample(
    out: &mut dyn fmt::Write,
    probability: u32,
    actions: &ActionList,
    style: &Style<'_>,
) -> fmt::Result {
    out.write_str("sample(sample=")?;
    write_percentage(out, probability)?;
    out.write_str(",actions(")?;
    write_unless_empty(out, actions, style)?;
    out.write_str("))")
}

/// Writes `clone`.
pub(super) fn write_clone(out: &mut dyn fmt::Write, actions: &ActionList, style: &Style<'_>) -> fmt::Result {
    out.write_str("clone(")?;
    write_unless_empty(out, actions, style)?;
    out.write_char(')')
}

/// OVS prints `drop` for an empty list here, too, but does not read it.
fn write_unless_empty(out: &mut dyn fmt::Write, actions: &ActionList, style: &Style<'_>) -> fmt::Result {
    if actions.is_empty() { Ok(()) } else { write_actions(out, actions, style) }
}

/// Writes `dec_ttl`.
pub(super) fn write_dec_ttl(out: &mut dyn fmt::Write, actions: &ActionList, style: &Style<'_>) -> fmt::Result {
    out.write_str("dec_ttl(le_1(")?;
    write_actions(out, actions, style)?;
    out.write_str("))")
}
