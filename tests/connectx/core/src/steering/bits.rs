//! Fields of PRM layouts: a bit offset from the start of the structure, and a width.

/// A field of up to 32 bits, or several words of 32 for an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bits {
    pub(super) at: usize,
    pub(super) width: usize,
}

impl Bits {
    pub(super) const fn new(at: usize, width: usize) -> Self {
        Self { at, width }
    }

    /// The same field in a structure that begins `bytes` further on.
    pub(super) const fn after(self, bytes: usize) -> Self {
        Self { at: self.at + bytes * 8, width: self.width }
    }

    /// The field's value. Bits past the end of `bytes` are zero.
    pub(super) fn u32(self, bytes: &[u8]) -> u32 {
        let (first, shift) = self.window();
        let window = (first..first + WINDOW).fold(0, |window, at| window << 8 | u64::from(byte(bytes, at)));
        let [.., a, b, c, d] = (window >> shift & self.ones()).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// The value of a field of 64 bits.
    pub(super) fn u64(self, bytes: &[u8]) -> u64 {
        self.words().fold(0, |value, word| value << 32 | u64::from(word.u32(bytes)))
    }

    /// Writes a field of 64 bits.
    pub(super) fn put_u64(self, bytes: &mut [u8], value: u64) {
        let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
        let halves = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
        self.words().zip(halves).for_each(|(word, half)| word.put(bytes, half));
    }

    /// The value of a field of 16 bits or fewer.
    pub(super) fn u16(self, bytes: &[u8]) -> u16 {
        let [.., high, low] = self.u32(bytes).to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// The value of a field of 8 bits or fewer.
    pub(super) fn u8(self, bytes: &[u8]) -> u8 {
        let [.., low] = self.u32(bytes).to_be_bytes();
        low
    }

    /// Whether any bit of the field is set.
    pub(super) fn is_set(self, bytes: &[u8]) -> bool {
        self.words().any(|word| word.u32(bytes) != 0)
    }

    /// Whether all bits of the field are set.
    pub(super) fn is_full(self, bytes: &[u8]) -> bool {
        self.words().all(|word| u64::from(word.u32(bytes)) == word.ones())
    }

    /// Writes the field's low bits; of a field of more than 32 bits, the same to each word. Bits past the end of `bytes` are
    /// left out.
    pub(super) fn put(self, bytes: &mut [u8], value: u32) {
        for word in self.words() {
            let (first, shift) = word.window();
            let mask = (word.ones() << shift).to_be_bytes();
            let value = (u64::from(value) << shift).to_be_bytes();
            let unused = mask.len() - WINDOW;
            for (at, (mask, value)) in mask.into_iter().zip(value).skip(unused).enumerate() {
                if let Some(byte) = bytes.get_mut(first + at) {
                    *byte = *byte & !mask | value & mask;
                }
            }
        }
    }

    /// The field in pieces of 32 bits at most.
    pub(super) fn words(self) -> impl Iterator<Item = Self> {
        (0..self.width.div_ceil(32)).map(move |word| Self::new(self.at + word * 32, (self.width - word * 32).min(32)))
    }

    /// The first byte of those that hold the field, and how far the field is from the low end of [`WINDOW`] bytes.
    fn window(self) -> (usize, usize) {
        let first = self.at / 8;
        (first, (first + WINDOW) * 8 - self.at - self.width)
    }

    fn ones(self) -> u64 {
        (1 << self.width) - 1
    }
}

/// Bytes that any 32 bits lie in.
const WINDOW: usize = 5;

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn what_is_put_is_read_and_the_bits_around_stay() {
        for at in 0..40 {
            for width in 1..=32 {
                let field = Bits::new(at, width);
                let mut bytes = [0xff; 12];
                field.put(&mut bytes, 0);
                assert_eq!(bytes.iter().map(|byte| byte.count_zeros()).sum::<u32>() as usize, width);
                assert!(!field.is_set(&bytes));
                field.put(&mut bytes, 0x9234_5679);
                assert_eq!(field.u32(&bytes), 0x9234_5679 & (u32::MAX >> (32 - width)));
            }
        }
        assert_eq!(Bits::new(4, 12).u32(&[0xab, 0xcd]), 0xbcd);
        assert_eq!(Bits::new(12, 8).u32(&[0xab, 0xcd]), 0xd0, "what lies past the end is zero");
    }
}
