//! Places of fields in the big-endian structures of the device, and checked access to them.
//!
//! A field is written as the PRM prints it: the byte offset of its doubleword, and the bits in it.

/// One field of a structure: at most 32 bits of a doubleword, or a whole quadword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    name: &'static str,
    offset: usize,
    high: u32,
    low: u32,
}

impl Field {
    /// The bits `high` to `low` of the doubleword at byte `offset`, or of the quadword where `high` is over 31.
    pub const fn new(name: &'static str, offset: usize, high: u32, low: u32) -> Self {
        Self { name, offset, high, low }
    }

    /// As the tables write it: `[high, low]`, or one bit.
    pub const fn place(name: &'static str, offset: usize, bits: &[u32]) -> Self {
        Self::new(name, offset, bits[0], bits[bits.len() - 1])
    }

    /// The PRM's name.
    pub fn name(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// The same field of a structure that lies `base` bytes further on.
    pub const fn at(self, base: usize) -> Self {
        Self { offset: self.offset + base, ..self }
    }

    /// Where the structure must at least end, in bytes.
    pub const fn end(&self) -> usize {
        self.offset + self.bytes()
    }

    const fn bytes(&self) -> usize {
        if self.high > 31 { 8 } else { 4 }
    }

    const fn mask(&self) -> u64 {
        (u64::MAX >> (63 - (self.high - self.low))) << self.low
    }

    /// The field's value, right-aligned; nothing if `bytes` end before the field does.
    pub fn read(&self, bytes: &[u8]) -> Option<u64> {
        Some((self.word(bytes)? & self.mask()) >> self.low)
    }

    /// Writes the lowest bits of `value`; says whether `bytes` had room for the field.
    pub fn write(&self, bytes: &mut [u8], value: u64) -> bool {
        let Some(word) = self.word(bytes) else { return false };
        let word = word & !self.mask() | (value << self.low) & self.mask();
        let range = self.offset..self.end();
        bytes[range].copy_from_slice(&word.to_be_bytes()[8 - self.bytes()..]);
        true
    }

    /// The largest value that the field can hold.
    #[cfg(test)]
    pub const fn max(&self) -> u64 {
        self.mask() >> self.low
    }

    fn word(&self, bytes: &[u8]) -> Option<u64> {
        let bytes = bytes.get(self.offset..self.end())?;
        Some(bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }
}

/// A structure: its length without what is variable at its end, and all its fields that are modelled.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// In bytes; what follows is a list (page addresses, queue numbers) or data.
    pub length: usize,
    /// In the order of the structure.
    pub fields: &'static [Field],
}

impl Layout {
    /// Offset of the first doubleword with a bit that no field covers, within [`Layout::length`].
    pub fn unmodelled(&self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes[..self.length.min(bytes.len())].to_vec();
        for field in self.fields {
            field.write(&mut rest, 0);
        }
        rest.iter().position(|byte| *byte != 0).map(|at| at & !3)
    }

    /// The fields that are not zero, as `name=0x..`, and what follows the structure by its length.
    pub fn describe(&self, bytes: &[u8]) -> String {
        let mut parts: Vec<String> = self
            .fields
            .iter()
            .filter_map(|field| Some((field, field.read(bytes)?)))
            .filter(|(_, value)| *value != 0)
            .map(|(field, value)| format!("{}={value:#x}", field.name()))
            .collect();
        if let Some(rest) = bytes.len().checked_sub(self.length).filter(|rest| *rest > 0) {
            parts.push(format!("and {rest} bytes"));
        }
        parts.join(" ")
    }
}

#[macro_export]
/// Declares modules with a constant for every field of a structure and the [`Layout`] of them all.
macro_rules! layouts {
    ($($(#[$meta:meta])* $module:ident $length:literal {
        $($field:ident $offset:literal [$high:literal $(: $low:literal)?]),* $(,)?
    })*) => { $(
        #[doc = concat!("The structure `", stringify!($module), "`.")]
        ///
        $(#[$meta])*
        #[allow(dead_code, reason = "a field that no handler reads is still known, and printed")]
        #[allow(unreachable_pub, reason = "some are for one module, some for all crates of the device")]
        pub mod $module {
            #[allow(unused_imports, reason = "a structure may have no fields")]
            use $crate::layout::{Field, Layout};
            $(
                #[doc = concat!("Bits `", stringify!($high $(: $low)?), "` at byte `", stringify!($offset), "`.")]
                pub const $field: Field = Field::place(stringify!($field), $offset, &[$high $(, $low)?]);
            )*
            /// All of it.
            pub const LAYOUT: Layout = Layout { length: $length, fields: &[$($field),*] };
        }
    )* };
}
pub use crate::layouts;

#[cfg(test)]
mod tests {
    layouts! {
        sample 0x10 { TOP 0x0 [31:28], BIT 0x0 [3], ADDRESS 0x8 [63:0] }
    }

    #[test]
    fn a_field_is_read_where_it_was_written_and_leaves_the_rest() {
        let mut bytes = [0xffu8; 16];
        assert!(sample::TOP.write(&mut bytes, 0x5));
        assert!(sample::BIT.write(&mut bytes, 0));
        assert!(sample::ADDRESS.write(&mut bytes, 0x0102_0304_0506_0708));
        assert_eq!(bytes, [0x5f, 0xff, 0xff, 0xf7, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(sample::TOP.read(&bytes), Some(5));
        assert_eq!(sample::ADDRESS.read(&bytes), Some(0x0102_0304_0506_0708));
    }

    #[test]
    fn a_field_past_the_end_is_not_there() {
        let mut bytes = [0u8; 12];
        assert_eq!(sample::ADDRESS.read(&bytes), None);
        assert!(!sample::ADDRESS.write(&mut bytes, 1));
    }

    #[test]
    fn a_bit_without_a_name_is_found() {
        let mut bytes = [0u8; 20];
        sample::TOP.write(&mut bytes, 3);
        assert_eq!(sample::LAYOUT.unmodelled(&bytes), None);
        bytes[7] = 1;
        assert_eq!(sample::LAYOUT.unmodelled(&bytes), Some(4));
        assert_eq!(sample::LAYOUT.describe(&bytes), "top=0x3 and 4 bytes");
    }
}
