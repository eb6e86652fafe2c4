//! Lines, written.
use std::fmt;

use super::{DumpLine, Extra, Style};

/// Writes a line.
pub fn write_line(_out: &mut dyn fmt::Write, _line: &DumpLine<'_>, _style: &Style<'_>) -> fmt::Result {
    Ok(())
}

impl fmt::Display for Extra {
    fn fmt(&self, _out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
