//! Where things lie that come one by one and must never move: in chunks that double up to a length, and are of that
//! length from then on, so that few things take little room and of many hardly any is wasted.

/// The lengths of chunks, both powers of two.
#[derive(Clone, Copy)]
pub(crate) struct Chunks {
    /// Of the first one, and of the second.
    pub(crate) first: u32,
    /// Of the greatest.
    pub(crate) greatest: u32,
}

impl Chunks {
    /// Chunk, and place in it, of the thing with this number.
    #[inline]
    pub(crate) const fn place(self, index: u32) -> (usize, usize) {
        if index < self.greatest {
            // Chunk 1 begins at the length of chunk 0, chunk 2 at twice that, and so on.
            return match (index / self.first).checked_ilog2() {
                None => (0, index as usize),
                Some(doublings) => (doublings as usize + 1, (index - (self.first << doublings)) as usize),
            };
        }
        let chunk = self.doubling() + (index - self.greatest) / self.greatest;
        (chunk as usize, (index % self.greatest) as usize)
    }

    /// The length of a chunk.
    pub(crate) const fn length(self, chunk: usize) -> u32 {
        if chunk == 0 {
            self.first
        } else if chunk < self.doubling() as usize {
            self.first << (chunk - 1)
        } else {
            self.greatest
        }
    }

    /// Chunks that are needed for so many things.
    pub(crate) const fn needed(self, things: u32) -> usize {
        if things == 0 { 0 } else { self.place(things - 1).0 + 1 }
    }

    /// Chunks in front of the first of the greatest that does not double what is there.
    const fn doubling(self) -> u32 {
        (self.greatest / self.first).ilog2() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_place() {
        let chunks = Chunks { first: 8, greatest: 128 };
        let mut expected = (0, 0);
        for index in 0..2000 {
            assert_eq!(chunks.place(index), expected, "{index}");
            assert_eq!(chunks.needed(index + 1), expected.0 + 1);
            expected.1 += 1;
            if expected.1 == chunks.length(expected.0) as usize {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(chunks.length(17), 128);
    }
}
