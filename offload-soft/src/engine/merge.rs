//! A field that is set, in the header that has it.

use sluice_flow::action::FieldSet;
use sluice_flow::field::Field;

/// The packet does not have the header that an action is about, or no place for it: it is cut off or malformed.
#[derive(Debug)]
pub(crate) struct Missing;

/// A field's old value with the bits that are to be set.
pub(super) fn merge(set: &FieldSet, field: Field, old: impl Into<u128>) -> u128 {
    let old = old.into();
    set.get(field).map_or(old, |(value, mask)| old & !mask | value & mask)
}

/// The lowest bits of a merged value, which has no others.
pub(super) fn narrow<T: TryFrom<u128> + Default>(value: u128) -> T {
    T::try_from(value).unwrap_or_default()
}
