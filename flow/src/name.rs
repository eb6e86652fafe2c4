//! The rule that every name obeys, of whatever it is and wherever it comes from.

/// Why a name cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty, or longer than it may be.
    #[error("{what} has 1 to {limit} bytes, not {length}")]
    Length {
        /// Whose name.
        what: &'static str,
        /// How long it may be.
        limit: usize,
        /// How long it is.
        length: usize,
    },
    /// A character ends a word in the text of a flow or of a command, or cannot be seen.
    #[error(
        "{what} is one word without brackets, commas, quotes, slashes, equal and number signs, and invisible characters, \
         not {name:?}"
    )]
    Character {
        /// Whose name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// It means something else already.
    #[error("{what} cannot be {name:?}, which means something else already")]
    Taken {
        /// Whose name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// It would be taken for a number.
    #[error("the name {name:?} would be taken for a {what}'s number")]
    Number {
        /// Whose name.
        what: &'static str,
        /// The name.
        name: String,
    },
}

/// Whether `name` has 1 to `limit` bytes and can stand in every text as it is: in a flow, a command, a list and a log. `what`
/// is the subject of the error.
pub(crate) fn check(what: &'static str, name: &str, limit: usize) -> Result<(), NameError> {
    if name.is_empty() || name.len() > limit {
        return Err(NameError::Length { what, limit, length: name.len() });
    }
    // Beyond ASCII only letters and digits: other characters may be invisible or turn the text around.
    let is_plain = |char: char| char.is_alphanumeric() || char.is_ascii_graphic() && !"(),\"/=#".contains(char);
    if !name.chars().all(is_plain) {
        return Err(NameError::Character { what, name: name.to_owned() });
    }
    Ok(())
}

/// Whether a word is meant as a number.
pub(crate) fn is_number(word: &str) -> bool {
    let (digits, radix) = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (word, 10),
    };
    !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix))
}
