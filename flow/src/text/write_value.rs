//! Values, written.
use std::fmt;

use super::Style;
use crate::field::Field;

/// Writes the value of a field.
pub fn write_field_value(
    _out: &mut dyn fmt::Write,
    _field: Field,
    _value: u128,
    _mask: u128,
    _style: &Style<'_>,
) -> fmt::Result {
    Ok(())
}
