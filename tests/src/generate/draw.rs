//! Decisions out of a row of random numbers, so that proptest's shrinking of the numbers shrinks what is built of them.
//!
//! Every decision takes its simplest outcome for 0 and grows with the number; behind the end of the row all are 0.

use proptest::collection::{SizeRange, vec};
use proptest::prelude::*;
use sluice_flow::Field;

/// A row of numbers out of which decisions are drawn.
pub(super) fn numbers(count: impl Into<SizeRange>) -> impl Strategy<Value = Vec<u16>> {
    vec(any::<u16>(), count)
}

/// What is left of a row of numbers.
pub(super) struct Draw<'a>(std::slice::Iter<'a, u16>);

impl<'a> Draw<'a> {
    pub(super) fn new(numbers: &'a [u16]) -> Self {
        Self(numbers.iter())
    }

    pub(super) fn number(&mut self) -> u16 {
        self.0.next().copied().unwrap_or_default()
    }

    /// A number below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        let scaled = (u128::from(self.number()) * limit as u128) >> 16;
        usize::try_from(scaled).unwrap_or_default()
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// One of some fields. Which one a number chooses does not depend on the others that are there, unless it is gone.
    pub(super) fn steady(&mut self, from: &[Field]) -> Option<Field> {
        let number = u64::from(self.number()) << 48;
        from.iter().copied().min_by_key(|field| scramble(*field as u64).wrapping_sub(number))
    }

    /// True in so many of a hundred cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }

    /// A value of so many bits, often one at an edge.
    pub(super) fn bits(&mut self, width: u32) -> u128 {
        let full = u128::MAX >> (128 - width);
        let kind = self.below(10);
        let number = self.number();
        let place = (u128::from(number) * u128::from(width)) >> 16;
        match kind {
            5 => 0,
            6 => 1 << place,
            7 => full,
            8 => full - (u128::from(number >> 14) & full),
            9 => (1 << place) - 1,
            _ => spread(number, width),
        }
    }

    /// A mask of so many bits that is not 0: half of them full, then prefixes, single bits and holes.
    pub(super) fn mask(&mut self, width: u32) -> u128 {
        let full = u128::MAX >> (128 - width);
        let kind = self.below(10);
        let number = self.number();
        let place = (u128::from(number) * u128::from(width)) >> 16;
        match kind {
            0..=4 => full,
            5 => full & !((1 << place) - 1),
            6 => 1 << place,
            7 => full >> place,
            8 if width > 1 => full & !(1 << place),
            _ => spread(number, width) | 1 << place,
        }
    }

    pub(super) fn bits8(&mut self) -> u8 {
        self.bits(8).to_le_bytes()[0]
    }

    pub(super) fn bits16(&mut self) -> u16 {
        let [low, high, ..] = self.bits(16).to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    pub(super) fn bits32(&mut self) -> u32 {
        u32::try_from(self.bits(32)).unwrap_or_default()
    }

    /// Bytes, all of one kind: zeros, ones or a pattern.
    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        match self.below(4) {
            0 => vec![0; count],
            1 => vec![0xff; count],
            _ => Fill(self.number().into()).bytes(count),
        }
    }
}

/// An endless row of numbers out of one; only zeros out of 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill(pub(super) u64);

impl Fill {
    pub(super) fn next(&mut self) -> u128 {
        if self.0 == 0 {
            return 0;
        }
        self.0 = scramble(self.0).max(1);
        u128::from(self.0) | u128::from(scramble(!self.0)) << 64
    }

    pub(super) fn bytes(mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[5]).collect()
    }
}

/// A number over so many bits: its own on top, what follows from them behind.
fn spread(number: u16, width: u32) -> u128 {
    let number = u128::from(number);
    match width.checked_sub(16) {
        None => number >> (16 - width),
        Some(behind) => {
            let low = Fill(u64::try_from(number).unwrap_or_default()).next();
            number << behind | low & ((1 << behind) - 1)
        }
    }
}

/// The finaliser of splitmix64.
const fn scramble(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
