//! What each end says of itself first, whichever way it connects, and what comes of it.
//!
//! All numbers are big endian. Connection managers pad private data with zeros, so that the length is inside:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic, `SLMR` |
//! | 4..6 | version |
//! | 6..8 | length of the header |
//! | 8..12 | features, a bit each |
//! | 12 | number of classes |
//! | 13..16 | zeros |

const MAGIC: [u8; 4] = *b"SLMR";
const VERSION: u16 = 1;

/// Bytes of a header.
pub const HEADER: usize = 16;

/// What both ends agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Features that both have, and the number of classes.
    pub terms: Terms,
    /// Number of the queue pair of the other end.
    pub remote: u32,
}

/// What an end offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Features that it has, a bit each.
    pub features: u32,
    /// In how many classes frames come.
    pub classes: u8,
}

/// Why the terms of the other end are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is something else that has connected.
    #[error("it does not begin as a mirror's header does")]
    Magic,
    /// It speaks another version.
    #[error("version {0} of the header is not known here, where it is {VERSION}")]
    Version(u16),
    /// A header of this version has another length, or what stands behind it is no padding.
    #[error("a header of {0} bytes, where it has {HEADER}, with zeros behind it")]
    Length(u16),
    /// It has not a feature that is needed.
    #[error("features {0:#x} are needed and missing")]
    Features(u32),
    /// It has another number of classes.
    #[error("{0} classes are not as many as here")]
    Classes(u8),
}

impl Terms {
    pub(crate) fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        bytes[6..8].copy_from_slice(&16_u16.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.features.to_be_bytes());
        bytes[12] = self.classes;
        bytes
    }

    /// Reads a header, with whatever padding is behind it.
    ///
    /// # Errors
    /// Fails if it is no header of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        if bytes.get(..4) != Some(&MAGIC[..]) {
            return Err(Refusal::Magic);
        }
        let (Some(version), Some(length)) = (word(4), word(6)) else { return Err(Refusal::Length(0)) };
        if version != VERSION {
            return Err(Refusal::Version(version));
        }
        let (Some(header), Some(padding)) = (bytes.first_chunk::<HEADER>(), bytes.get(HEADER..)) else {
            return Err(Refusal::Length(length));
        };
        let [.., a, b, c, d, classes, first, second, third] = *header;
        let is_padded = padding.iter().chain(&[first, second, third]).all(|byte| *byte == 0);
        if usize::from(length) != HEADER || !is_padded {
            return Err(Refusal::Length(length));
        }
        Ok(Self { features: u32::from_be_bytes([a, b, c, d]), classes })
    }

    /// What both ends have.
    pub(crate) fn agree(self, theirs: Self, required: u32) -> Result<Self, Refusal> {
        let missing = required & !theirs.features;
        if missing != 0 {
            return Err(Refusal::Features(missing));
        }
        if self.classes != theirs.classes {
            return Err(Refusal::Classes(theirs.classes));
        }
        Ok(Self { features: self.features & theirs.features, classes: self.classes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERMS: Terms = Terms { features: 0x8000_0005, classes: 9 };

    fn changed(at: usize, value: u8) -> [u8; HEADER] {
        let mut bytes = TERMS.bytes();
        bytes[at] = value;
        bytes
    }

    #[test]
    fn each_mistake_is_refused_by_its_name() {
        assert_eq!(Terms::parse(&[]), Err(Refusal::Magic));
        assert_eq!(Terms::parse(&changed(0, b's')), Err(Refusal::Magic));
        assert_eq!(Terms::parse(&TERMS.bytes()[..7]), Err(Refusal::Length(0)));
        assert_eq!(Terms::parse(&changed(5, 2)), Err(Refusal::Version(2)));
        assert_eq!(Terms::parse(&TERMS.bytes()[..15]), Err(Refusal::Length(16)));
        assert_eq!(Terms::parse(&changed(7, 17)), Err(Refusal::Length(17)));
        assert_eq!(Terms::parse(&changed(15, 1)), Err(Refusal::Length(16)));
        assert_eq!(Terms::parse(&[&TERMS.bytes()[..], &[0, 1]].concat()), Err(Refusal::Length(16)));
    }

    #[test]
    fn ends_agree_on_what_both_have_and_refuse_what_one_needs_and_the_other_lacks() {
        let theirs = Terms { features: 0b110, classes: 9 };
        assert_eq!(TERMS.agree(theirs, 0b100), Ok(Terms { features: 0b100, classes: 9 }));
        assert_eq!(TERMS.agree(theirs, 0b101), Err(Refusal::Features(0b001)));
        assert_eq!(TERMS.agree(Terms { classes: 8, ..theirs }, 0), Err(Refusal::Classes(8)));
    }

    proptest! {
        /// As a connection manager hands it over: with zeros up to the length of its own field.
        #[test]
        fn what_was_written_is_read_with_any_padding(features: u32, classes: u8, padding in 0_usize..150) {
            let terms = Terms { features, classes };
            let padded = [&terms.bytes()[..], &vec![0; padding]].concat();
            prop_assert_eq!(Terms::parse(&padded), Ok(terms));
        }

        #[test]
        fn any_bytes_are_a_header_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(terms) = Terms::parse(&bytes) {
                prop_assert_eq!(&terms.bytes()[..], &bytes[..HEADER]);
            }
        }

        /// Close enough to the right one to come past the first check.
        #[test]
        fn a_header_with_a_wrong_byte_is_another_header_or_refused(at in 0..HEADER, value: u8, cut in 0..=HEADER) {
            let bytes = changed(at, value);
            if let Ok(terms) = Terms::parse(&bytes[..cut]) {
                prop_assert_eq!(terms.bytes(), bytes);
                prop_assert_eq!(cut, HEADER);
            }
        }
    }
}
