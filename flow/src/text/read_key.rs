//! Keys, read.
use super::{ParseError, ParsedKey};
use crate::port::PortNames;

/// Reads a key.
pub fn parse_key(_text: &str, _names: &dyn PortNames) -> Result<ParsedKey, ParseError> {
    Err(ParseError { offset: 0, expected: "a later version".into() })
}
