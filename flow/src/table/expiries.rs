//! The different expiries that flows have, each under a small number that fits into a counter cell.
//!
//! Ageing a million flows then reads their cells only. Most flows have the default, and the others a handful of values, so
//! the list is short, is searched without a lock and never shrinks. What finds no place in it has its flow looked at.

use std::sync::OnceLock;

use crate::flow::Expiry;

/// As many different expiries as are listed: with the two other classes, 64 numbers.
const LISTED: usize = 62;

/// Which expiry a flow has: an index into [`FlowTable::expiries`](super::FlowTable::expiries), if it is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiryClass(u8);

impl ExpiryClass {
    /// Of a slot without a flow that is wanted.
    pub(super) const NONE: Self = Self(0);
    const UNLISTED: Self = Self(63);

    /// Its number, of six bits.
    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    /// The class with a number.
    pub(super) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The place in [`FlowTable::expiries`](super::FlowTable::expiries).
    pub fn index(self) -> usize {
        usize::from(self.0).wrapping_sub(1)
    }
}

/// See the [module](self).
pub(super) struct Expiries {
    listed: [OnceLock<Expiry>; LISTED],
}

impl Expiries {
    pub(super) fn new() -> Self {
        Self { listed: std::array::from_fn(|_| OnceLock::new()) }
    }

    /// The class of an expiry, which is listed if there is room.
    pub(super) fn class(&self, expiry: &Expiry) -> ExpiryClass {
        let place = self.listed.iter().position(|place| place.get_or_init(|| *expiry) == expiry);
        let number = place.and_then(|place| u8::try_from(place + 1).ok());
        number.map_or(ExpiryClass::UNLISTED, ExpiryClass)
    }

    /// Those that are listed.
    pub(super) fn listed(&self) -> Vec<Expiry> {
        self.listed.iter().map_while(|place| place.get().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn expiry(seconds: u64) -> Expiry {
        Expiry { idle: Some(Duration::from_secs(seconds)), ..Expiry::default() }
    }

    #[test]
    fn equal_expiries_are_of_one_class_that_leads_back_to_them() {
        let expiries = Expiries::new();
        let (first, second) = (expiries.class(&expiry(1)), expiries.class(&expiry(2)));
        assert_eq!(expiries.class(&expiry(1)), first);
        assert_ne!(first, second);
        assert_eq!(expiries.listed()[second.index()], expiry(2));
    }

    #[test]
    fn what_finds_no_place_leads_nowhere() {
        let expiries = Expiries::new();
        for seconds in 0..LISTED as u64 {
            assert!(expiries.class(&expiry(seconds)).index() < LISTED);
        }
        let listed = expiries.listed();
        assert_eq!(listed.get(expiries.class(&expiry(1_000)).index()), None);
        assert_eq!(listed.get(ExpiryClass::NONE.index()), None);
    }
}
