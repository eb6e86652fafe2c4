//! Numbers by which packets carry what was found for them.

use crate::translate::registers::Bits;

/// Numbers that fit into some bits of a register, without 0. One that is given back rests until no packet can carry it any more.
pub(super) struct Ids {
    free: Vec<u32>,
    resting: Vec<u32>,
    next: u32,
    last: u32,
}

impl Ids {
    pub(super) fn of(bits: Bits) -> Self {
        Self { free: Vec::new(), resting: Vec::new(), next: 1, last: bits.last() }
    }

    /// Takes a number that nobody has; `None` if there is none.
    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let id = self.next;
            (id <= self.last).then(|| {
                self.next += 1;
                id
            })
        })
    }

    /// Gives a number back.
    pub(super) fn rest(&mut self, id: u32) {
        self.resting.push(id);
    }

    /// Returns whether some were given back and rest.
    pub(super) fn has_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Returns whether all that nobody has rest.
    pub(super) fn only_rest(&self) -> bool {
        self.free.is_empty() && self.next > self.last && self.has_resting()
    }

    /// Lets numbers be taken again that were given back: no packet is under way that was before.
    pub(super) fn settle(&mut self) {
        self.free.append(&mut self.resting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::registers::CONTINUATION;

    #[test]
    fn a_number_rests_before_it_is_taken_again() {
        let mut ids = Ids::of(CONTINUATION);
        let all: Vec<_> = std::iter::from_fn(|| ids.take()).collect();
        assert_eq!((all.len(), all[0], all[65_534]), (65_535, 1, 65_535));
        assert!(!ids.only_rest());
        ids.rest(7);
        assert_eq!((ids.take(), ids.only_rest()), (None, true));
        ids.settle();
        assert_eq!((ids.take(), ids.take()), (Some(7), None));
    }
}
