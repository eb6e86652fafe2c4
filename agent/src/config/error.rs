//! What is wrong with a configuration, and where.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something is wrong that is not in the file.
    #[error("{0}")]
    Unplaced(String),
    /// Something in it is wrong.
    #[error("{}:{}:{}: {_1}\n{_0}", .0.file, .0.line, .0.column)]
    Wrong(Place, String),
}

/// A place in a configuration file. Prints as the line with a mark under what is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The text of the line.
    pub text: String,
    /// How many characters are meant.
    pub width: usize,
}

/// What is wrong, and where in the text.
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn at<T>(place: &Spanned<T>, message: String) -> Self {
        Self { span: place.span(), message }
    }
}

impl From<toml::de::Error> for Fault {
    fn from(error: toml::de::Error) -> Self {
        Self { span: error.span().unwrap_or_default(), message: in_our_words(error.message()) }
    }
}

/// A key that stands where it stood before its backend had a table of its own. It is read there as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedKey {
    /// Where it stands.
    pub place: Place,
    /// The key.
    pub key: &'static str,
    /// The table that it belongs to.
    pub table: &'static str,
}

impl fmt::Display for MovedKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place: Place { file, line, column, .. }, key, table } = self;
        write!(out, "{file}:{line}:{column}: `{key}` belongs in [{table}] now")
    }
}

impl Place {
    pub(super) fn new(text: &str, file: &str, span: Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line_text = text[line_start..].lines().next().unwrap_or_default();
        let meant = &text[start..text.floor_char_boundary(span.end.max(start))];
        Self {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            text: line_text.to_owned(),
            width: meant.lines().next().unwrap_or_default().chars().count().max(1),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        // A tab before the mark stands for as much as the tab above it.
        let indent: String =
            self.text.chars().take(self.column - 1).map(|char| if char == '\t' { '\t' } else { ' ' }).collect();
        let (margin, mark) = (" ".repeat(number.len()), "^".repeat(self.width));
        write!(out, "{margin} |\n{number} | {}\n{margin} | {indent}{mark}", self.text)
    }
}

/// Serde's messages speak of fields, variants and types of Rust; who writes the file knows keys, values and numbers.
fn in_our_words(message: &str) -> String {
    let words = message
        .replace("invalid type: map, expected a sequence", "a list of tables has double brackets, as in [[port]]")
        .replace("invalid type: map", "invalid type: table")
        .replace("invalid type: sequence", "invalid type: list")
        .replace("expected a sequence", "expected a list")
        .replace("unknown field", "unknown key")
        .replace("missing field", "missing key")
        .replace("duplicate field", "duplicate key")
        .replace("unknown variant", "unknown value")
        .replace("expected u16", "expected a number from 0 to 65535")
        .replace("expected u32", "expected a number from 0 to 4294967295")
        .replace("expected u64", "expected a number of 0 or more")
        .replace("expected i64", "expected a number");
    match words.split_once("expected struct ") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
            format!("{before}expected a table{after}")
        }
        None => words,
    }
}
