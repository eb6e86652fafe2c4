//! Keys, written.
use std::fmt;

use super::Style;
use crate::key::MaskedKey;

/// Writes a key.
pub fn write_key(_out: &mut dyn fmt::Write, _matching: &MaskedKey, _style: &Style<'_>) -> fmt::Result {
    Ok(())
}
