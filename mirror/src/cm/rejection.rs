//! The reason of a rejection, as private data: magic, `SLRJ`, the length of the reason in one byte, and the reason. A connection manager
//! puts zeros behind it.

const MAGIC: [u8; 4] = *b"SLRJ";

/// Bytes of private data that a rejection has room for.
const ROOM: usize = 148;

/// As many bytes of a reason are sent.
pub const MOST_WORDS: usize = ROOM - MAGIC.len() - 1;

/// Returns the private data of a rejection for this reason, of which at most [`MOST_WORDS`] bytes are sent.
#[must_use]
pub fn rejection(words: &str) -> Vec<u8> {
    let words = &words[..words.floor_char_boundary(MOST_WORDS)];
    let length = u8::try_from(words.len()).unwrap_or_default();
    [&MAGIC[..], &[length], words.as_bytes()].concat()
}

/// Returns the reason in the private data of a rejection, if it is one of a mirror's.
#[must_use]
pub fn reason(private_data: &[u8]) -> Option<String> {
    let (length, rest) = private_data.strip_prefix(&MAGIC)?.split_first()?;
    let words = rest.get(..usize::from(*length))?;
    Some(String::from_utf8_lossy(words).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reason_that_is_too_long_is_cut_at_a_character() {
        let words = "ä".repeat(100);
        let sent = rejection(&words);
        assert!(sent.len() <= ROOM);
        assert_eq!(reason(&sent).unwrap(), "ä".repeat(MOST_WORDS / 2));
    }

    proptest! {
        #[test]
        fn a_reason_is_read_with_any_padding(words in ".{0,40}", padding in 0_usize..100) {
            let sent = [rejection(&words), vec![0; padding]].concat();
            prop_assert_eq!(reason(&sent).unwrap(), &words[..words.floor_char_boundary(MOST_WORDS)]);
        }

        #[test]
        fn any_bytes_are_a_reason_or_none(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
            if let Some(words) = reason(&bytes) {
                prop_assert!(words.len() <= 3 * bytes.len());
            }
        }
    }
}
