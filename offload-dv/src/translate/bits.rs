//! Mask and value, which are written together.

use super::places::Place;
use crate::mlx5::MatchParameter;

/// What a match is made of.
pub(super) struct Bits<'a> {
    pub(super) mask: &'a mut MatchParameter,
    pub(super) value: &'a mut MatchParameter,
}

impl Bits<'_> {
    /// Has the bits of a field under `mask` be those of `value`.
    pub(super) fn put(&mut self, place: Place, mask: u128, value: u128) {
        place.put(self.mask, mask);
        place.put(self.value, value & mask);
    }

    /// Has all bits of a field be those of `value`.
    pub(super) fn put_exact(&mut self, place: Place, value: u128) {
        self.put(place, place.full_mask(), value);
    }
}
