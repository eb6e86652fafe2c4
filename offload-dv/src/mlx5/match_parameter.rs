//! What a matcher looks at and what a rule looks for: `fte_match_param` of the PRM.

/// Bytes that libmlx5 44 takes: seven blocks.
const BYTES: usize = 448;
/// Bits of a block.
const BLOCK_BITS: usize = 512;

/// A mask, or values under a mask. All zero matches everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatchParameter {
    /// `mlx5dv_flow_match_parameters`: the length in bytes in the machine's order, then big-endian words.
    words: [u64; 1 + BYTES / 8],
}

impl Default for MatchParameter {
    fn default() -> Self {
        let mut words = [0; 1 + BYTES / 8];
        words[0] = BYTES as u64;
        Self { words }
    }
}

impl MatchParameter {
    /// Sets the `width` bits from bit `at` on, of at most 64 and not across a boundary of 64 bits, to the low bits of `value`.
    pub fn set(&mut self, at: usize, width: usize, value: u64) {
        let (word, shift) = (1 + at / 64, 64 - at % 64 - width);
        let mask = (u64::MAX >> (64 - width)) << shift;
        let old = u64::from_be(self.words[word]);
        self.words[word] = (old & !mask | value << shift & mask).to_be();
    }

    /// Returns the bits that [`set`](Self::set) has set.
    pub fn get(&self, at: usize, width: usize) -> u64 {
        let (word, shift) = (1 + at / 64, 64 - at % 64 - width);
        u64::from_be(self.words[word]) >> shift & u64::MAX >> (64 - width)
    }

    /// Returns whether no packet has the bits of two values, each under its mask.
    pub fn excludes(value: (&Self, &Self), other: (&Self, &Self)) -> bool {
        let ((mask, value), (other_mask, other_value)) = (value, other);
        // The first word is the length.
        let masks = mask.words[1..].iter().zip(&other_mask.words[1..]);
        let values = value.words[1..].iter().zip(&other_value.words[1..]);
        masks.zip(values).any(|((mask, other_mask), (value, other))| (value ^ other) & mask & other_mask != 0)
    }

    /// Returns the blocks that are not zero, a bit each, as `match_criteria_enable` of a matcher has them.
    pub fn criteria(&self) -> u8 {
        let blocks = self.words[1..].chunks(BLOCK_BITS / 64).enumerate();
        blocks.filter(|(_, block)| block.iter().any(|word| *word != 0)).fold(0, |bits, (block, _)| bits | 1 << block)
    }

    /// Puts bits under a mask into a word of 64 bits.
    pub(crate) fn put_bits(&mut self, word: usize, mask: u64, bits: u64) {
        self.put_big_endian(word, mask.to_be(), bits.to_be());
    }

    /// The same with mask and bits as they lie in memory.
    #[inline]
    pub(crate) fn put_big_endian(&mut self, word: usize, mask: u64, bits: u64) {
        let word = &mut self.words[1 + word];
        *word = *word & !mask | bits;
    }

    /// For libmlx5, which only reads it, although its header has a pointer that is not const.
    pub(super) fn as_ptr(&self) -> *mut u64 {
        self.words.as_ptr().cast_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_where_the_device_looks_for_them() {
        let mut parameter = MatchParameter::default();
        parameter.set(0x0b0, 16, 0x1234);
        parameter.set(0x097, 9, 0x1ff);
        parameter.set(0x700, 32, 0xdead_beef);
        let bytes: Vec<u8> = parameter.words[1..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes[0x16..0x18], [0x12, 0x34]);
        assert_eq!(bytes[0x12..0x14], [0x01, 0xff]);
        assert_eq!(bytes[0xe0..0xe4], [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 8);
        assert_eq!(parameter.criteria(), 0b1001);
        parameter.set(0x097, 9, 0);
        assert_eq!((parameter.get(0x097, 9), parameter.get(0x0b0, 16)), (0, 0x1234));
    }

    #[test]
    fn values_exclude_each_other_where_both_masks_look() {
        let of = |at: usize, value: u64| {
            let (mut mask, mut values) = (MatchParameter::default(), MatchParameter::default());
            mask.set(at, 16, 0xfffe);
            values.set(at, 16, value);
            (mask, values)
        };
        let excludes = |one: (MatchParameter, MatchParameter), other: (MatchParameter, MatchParameter)| {
            MatchParameter::excludes((&one.0, &one.1), (&other.0, &other.1))
        };
        assert!(excludes(of(0xb0, 6), of(0xb0, 4)));
        assert!(!excludes(of(0xb0, 6), of(0xb0, 7)), "the last bit counts for neither");
        assert!(!excludes(of(0xb0, 6), of(0xc0, 4)), "a packet may have both");
    }

    #[test]
    fn a_whole_word_is_set() {
        let mut parameter = MatchParameter::default();
        parameter.set(0x100, 64, u64::MAX - 1);
        assert_eq!(parameter.get(0x100, 64), u64::MAX - 1);
        assert_eq!((parameter.get(0x0c0, 64), parameter.get(0x140, 64)), (0, 0));
    }
}
