//! Lines, written.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::actions::push_actions;
use super::line::{EXTRA_LABEL, TCP_FLAG_LETTERS};
use super::write_layout::Layouts;
use super::write_number::{push_decimal, push_three_digits, push_uuid};
use super::write_value::Ports;
use super::{DumpLine, Extra, Offloaded, Statistics, Style};
use crate::action::ActionList;
use crate::key::MaskedKey;
use crate::ufid::Ufid;

/// Writes a flow as `dump-flows` does, without a line end; as `dump-flows -m` does with [`Style::more`].
pub fn write_line(out: &mut dyn fmt::Write, line: &DumpLine<'_>, style: &Style<'_>) -> fmt::Result {
    let mut text = Vec::new();
    LineWriter::new(style).push_line(&mut text, line);
    out.write_str(&String::from_utf8_lossy(&text))
}

/// Writes many flows, and remembers what they have in common: what keys of a mask look like, the text of action lists, the
/// names of ports. What it remembers is bounded, however many flows there are.
///
/// All that is appended is UTF-8.
pub struct LineWriter<'a> {
    ports: Ports<'a>,
    layouts: Layouts,
    /// By address, the list being held, so that no other one gets it.
    action_texts: Vec<Option<(ActionList, Vec<u8>)>>,
}

/// Places for texts of action lists.
const ACTION_TEXTS: usize = 1024;
/// The longest text that is remembered.
const ACTION_TEXT: usize = 256;

impl<'a> LineWriter<'a> {
    /// A writer that has met no flow yet.
    pub fn new(style: &Style<'a>) -> Self {
        Self { ports: Ports::new(style), layouts: Layouts::default(), action_texts: Vec::new() }
    }

    /// Appends what [`write_line`] writes.
    pub fn push_line(&mut self, out: &mut Vec<u8>, line: &DumpLine<'_>) {
        let more = self.ports.style.more;
        if more {
            out.extend_from_slice(b"ufid:");
            push_uuid(out, line.ufid.0);
            out.extend_from_slice(b", ");
        }
        self.push_key(out, line.matching);
        push_statistics(out, &line.statistics);
        if more {
            out.extend_from_slice(match line.offloaded {
                Some(Offloaded::Yes) => b", offloaded:yes",
                Some(Offloaded::Partial) => b", offloaded:partial",
                None => b"",
            });
            if !line.layer.is_empty() {
                out.extend_from_slice(b", dp:");
                out.extend_from_slice(line.layer.as_bytes());
            }
        }
        out.extend_from_slice(b", actions:");
        self.push_actions(out, line.actions);
        if !line.extra.is_empty() {
            out.extend_from_slice(b", ");
            out.extend_from_slice(EXTRA_LABEL.as_bytes());
            push_plain(out, line.extra);
        }
    }

    /// Appends a UFID.
    pub fn push_ufid(out: &mut Vec<u8>, ufid: Ufid) {
        push_uuid(out, ufid.0);
    }

    /// Appends a number.
    pub fn push_number(out: &mut Vec<u8>, number: u64) {
        push_decimal(out, number);
    }

    /// Appends what [`write_key`](super::write_key()) writes.
    pub fn push_key(&mut self, out: &mut Vec<u8>, matching: &MaskedKey<'_>) {
        self.layouts.push(out, matching, &mut self.ports);
    }

    /// Appends what [`write_actions`](super::write_actions) writes.
    pub fn push_actions(&mut self, out: &mut Vec<u8>, actions: &ActionList) {
        if self.action_texts.is_empty() {
            self.action_texts.resize(ACTION_TEXTS, None);
        }
        let (known, text) = self.action_texts[place_of(actions)].get_or_insert_with(|| (actions.clone(), Vec::new()));
        if Arc::ptr_eq(known, actions) && !text.is_empty() {
            return out.extend_from_slice(text);
        }
        let begin = out.len();
        push_actions(out, actions, &mut self.ports);
        let written = &out[begin..];
        if written.len() <= ACTION_TEXT {
            text.clear();
            text.extend_from_slice(written);
            *known = actions.clone();
        }
    }
}

/// Addresses are multiples of the size of what lies there, so that their lower bits say little.
fn place_of(actions: &ActionList) -> usize {
    let address = Arc::as_ptr(actions).addr();
    (address >> 4 ^ address >> 14) % ACTION_TEXTS
}

fn push_statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    out.extend_from_slice(b", packets:");
    push_decimal(out, statistics.packets);
    out.extend_from_slice(b", bytes:");
    push_decimal(out, statistics.bytes);
    out.extend_from_slice(b", used:");
    match statistics.used {
        Some(used) => {
            push_decimal(out, used.as_secs());
            out.push(b'.');
            push_three_digits(out, used.subsec_millis());
            out.push(b's');
        }
        None => out.extend_from_slice(b"never"),
    }
    if statistics.tcp_flags == 0 {
        return;
    }
    let mut label = ", flags:";
    for (letter, _) in TCP_FLAG_LETTERS.iter().filter(|(_, bit)| statistics.tcp_flags & bit != 0) {
        out.extend_from_slice(std::mem::take(&mut label).as_bytes());
        out.extend_from_slice(letter.as_bytes());
    }
}

/// The text of `dp-extra-info`: what is not default, comma-separated.
///
/// In brackets, not in parentheses: the strict `ODPFlow` of OVS's Python library knows no word with parentheses there but
/// `miniflow_bits`, and takes everything without `(`, `=` and `:` for words that stand for themselves.
impl fmt::Display for Extra {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut next = || std::mem::replace(&mut separator, ",");
        if self.priority.get() != 0 {
            write!(out, "{}priority[{}]", next(), self.priority)?;
        }
        if let Some(timeout) = self.expiry.idle {
            write!(out, "{}idle_timeout[{}]", next(), Seconds(timeout))?;
        }
        if let Some(timeout) = self.expiry.hard {
            write!(out, "{}hard_timeout[{}]", next(), Seconds(timeout))?;
        }
        if self.expiry.permanent {
            write!(out, "{}permanent", next())?;
        }
        match &self.other {
            Some(other) => {
                out.write_str(next())?;
                let mut plain = Vec::new();
                push_plain(&mut plain, other);
                out.write_str(&String::from_utf8_lossy(&plain))
            }
            None => Ok(()),
        }
    }
}

/// A word and a sentence for [`Extra::other`], as `word[sentence]`, from which [`sentence_of`] reads the same sentence back.
///
/// OVS's Python library takes what is behind an equals sign, a parenthesis or a colon for a value of a key that it does not know, and
/// gives up. So parentheses are written as brackets, and all else that it would stumble over as in a URL: `ttl%3d64` for `ttl=64`.
pub fn bracketed(word: &str, sentence: &str) -> String {
    let pairs = pairs(sentence);
    let mut text = format!("{word}[");
    let mut characters = sentence.char_indices().peekable();
    while let Some((place, character)) = characters.next() {
        match character {
            '(' if pairs.contains(&place) => text.push('['),
            ')' if pairs.contains(&place) => text.push(']'),
            ':' if characters.peek().is_some_and(|(_, next)| *next == ' ') => text.push(':'),
            '(' | ')' | '[' | ']' | ':' | '=' | '%' => push_encoded(&mut text, character),
            control if control.is_control() => push_encoded(&mut text, control),
            other => text.push(other),
        }
    }
    text.push(']');
    text
}

/// The sentence of a [`bracketed`] text behind this word.
pub fn sentence_of(word: &str, text: &str) -> Option<String> {
    let inside = text.strip_prefix(word)?.strip_prefix('[')?.strip_suffix(']')?;
    let mut bytes = Vec::with_capacity(inside.len());
    let mut rest = inside.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'[' => b'(',
            b']' => b')',
            b'%' => {
                let (digits, behind) = behind.split_at_checked(2)?;
                rest = behind;
                u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The places of parentheses that have a partner.
fn pairs(sentence: &str) -> Vec<usize> {
    let (mut open, mut pairs) = (Vec::new(), Vec::new());
    for (place, character) in sentence.char_indices() {
        match character {
            '(' => open.push(place),
            ')' => pairs.extend(open.pop().into_iter().flat_map(|partner| [partner, place])),
            _ => {}
        }
    }
    pairs
}

fn push_encoded(text: &mut String, character: char) {
    character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| text.push_str(&format!("%{byte:02x}")));
}

/// A flow is one line, whatever a kernel or a device says.
fn push_plain(out: &mut Vec<u8>, text: &str) {
    for part in text.split_inclusive(char::is_control) {
        match part.char_indices().next_back() {
            Some((index, last)) if last.is_control() => {
                out.extend_from_slice(&part.as_bytes()[..index]);
                out.push(b' ');
            }
            _ => out.extend_from_slice(part.as_bytes()),
        }
    }
}

/// Seconds with as many decimals as there are.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0.as_secs())?;
        match self.0.subsec_nanos() {
            0 => Ok(()),
            nanoseconds => write!(out, ".{}", format!("{nanoseconds:09}").trim_end_matches('0')),
        }
    }
}
