//! Where things lie that come one by one and must never move: in chunks that double what is there for a while, and are all of one length from
//! then on, so that few things take little room and of many hardly any is wasted.

/// The lengths of chunks.
#[derive(Clone, Copy)]
pub(crate) struct Chunks {
    /// Of the first one, and of the second: a power of two.
    pub(crate) first: u32,
    /// Of all that double what is there, together: a power of two.
    pub(crate) doubling: u32,
    /// Of each behind those.
    pub(crate) further: u32,
}

impl Chunks {
    /// Chunk, and place in it, of the thing with this number.
    #[inline]
    pub(crate) const fn place(self, index: u32) -> (usize, usize) {
        if index < self.doubling {
            // Chunk 1 begins at the length of chunk 0, chunk 2 at twice that, and so on.
            return match (index / self.first).checked_ilog2() {
                None => (0, index as usize),
                Some(doublings) => (doublings as usize + 1, (index - (self.first << doublings)) as usize),
            };
        }
        let behind = index - self.doubling;
        ((self.doubling_chunks() + behind / self.further) as usize, (behind % self.further) as usize)
    }

    /// The length of a chunk.
    pub(crate) const fn length(self, chunk: usize) -> u32 {
        if chunk == 0 {
            self.first
        } else if chunk < self.doubling_chunks() as usize {
            self.first << (chunk - 1)
        } else {
            self.further
        }
    }

    /// Chunks that are needed for so many things.
    pub(crate) const fn needed(self, things: u32) -> usize {
        if things == 0 { 0 } else { self.place(things - 1).0 + 1 }
    }

    const fn doubling_chunks(self) -> u32 {
        (self.doubling / self.first).ilog2() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_place() {
        let chunks = Chunks { first: 8, doubling: 128, further: 100 };
        let mut expected = (0, 0);
        for index in 0..2000 {
            assert_eq!(chunks.place(index), expected, "{index}");
            assert_eq!(chunks.needed(index + 1), expected.0 + 1);
            expected.1 += 1;
            if expected.1 == chunks.length(expected.0) as usize {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!((chunks.length(4), chunks.length(5), chunks.length(17)), (64, 100, 100));
    }
}
