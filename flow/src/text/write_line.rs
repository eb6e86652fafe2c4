//! Lines, written.

use std::fmt;
use std::time::Duration;

use super::words::{EXTRA_LABEL, TCP_FLAG_LETTERS};
use super::{DumpLine, Extra, Offloaded, Statistics, Style, write_actions, write_key};

/// Writes a flow as `dump-flows` does, without a line end; as `dump-flows -m` does with [`Style::more`].
pub fn write_line(out: &mut dyn fmt::Write, line: &DumpLine<'_>, style: &Style<'_>) -> fmt::Result {
    if style.more {
        write!(out, "ufid:{}, ", line.ufid)?;
    }
    write_key(out, line.matching, style)?;
    write_statistics(out, &line.statistics)?;
    if style.more {
        match line.offloaded {
            Some(Offloaded::Yes) => out.write_str(", offloaded:yes")?,
            Some(Offloaded::Partial) => out.write_str(", offloaded:partial")?,
            None => {}
        }
        if !line.layer.is_empty() {
            write!(out, ", dp:{}", line.layer)?;
        }
    }
    out.write_str(", actions:")?;
    write_actions(out, line.actions, style)?;
    if style.more && !line.extra.is_empty() {
        write!(out, ", {EXTRA_LABEL}")?;
        write_plain(out, line.extra)?;
    }
    Ok(())
}

fn write_statistics(out: &mut dyn fmt::Write, statistics: &Statistics) -> fmt::Result {
    write!(out, ", packets:{}, bytes:{}, used:", statistics.packets, statistics.bytes)?;
    match statistics.used {
        Some(used) => write!(out, "{}.{:03}s", used.as_secs(), used.subsec_millis())?,
        None => out.write_str("never")?,
    }
    let letters = TCP_FLAG_LETTERS.iter().filter(|(_, bit)| statistics.tcp_flags & bit != 0);
    for (index, (letter, _)) in letters.enumerate() {
        write!(out, "{}{letter}", if index == 0 { ", flags:" } else { "" })?;
    }
    Ok(())
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
                write_plain(out, other)
            }
            None => Ok(()),
        }
    }
}

/// A word and a sentence for [`Extra::other`], as `word[sentence]`; what OVS's Python library would stumble over is
/// replaced by something that looks like it. Brackets are balanced, so that the sentence ends where it is said to end.
pub fn bracketed(word: &str, sentence: &str) -> String {
    let mut text = format!("{word}[");
    let mut open = 1usize;
    for character in sentence.chars() {
        match character {
            '(' | '[' => {
                open += 1;
                text.push('[');
            }
            ')' | ']' if open == 1 => text.push('>'),
            ')' | ']' => {
                open -= 1;
                text.push(']');
            }
            ':' => text.push(';'),
            '=' => text.push('~'),
            other => text.push(other),
        }
    }
    text.extend(std::iter::repeat_n(']', open));
    text
}

/// A flow is one line, whatever a kernel or a device says.
fn write_plain(out: &mut dyn fmt::Write, text: &str) -> fmt::Result {
    for part in text.split_inclusive(char::is_control) {
        match part.char_indices().next_back() {
            Some((index, last)) if last.is_control() => write!(out, "{} ", &part[..index])?,
            _ => out.write_str(part)?,
        }
    }
    Ok(())
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
