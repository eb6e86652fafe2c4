//! A place in a text, and the tokens that can be taken from there.

use std::borrow::Cow;

use super::ParseError;

/// How deep parentheses may nest, as in OVS.
pub(super) const NESTING_LIMIT: usize = 32;

/// A text and how far it is read. Never moves into the middle of a character.
#[derive(Clone)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    offset: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, offset: 0 }
    }

    /// Bytes read.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// What is not read yet.
    pub(super) fn rest(&self) -> &'t str {
        &self.text[self.offset..]
    }

    /// The text from an earlier place to here.
    pub(super) fn since(&self, start: usize) -> &'t str {
        &self.text[start..self.offset]
    }

    /// The text from here to a later place in it.
    pub(super) fn until(&self, later: &Self) -> &'t str {
        &self.text[self.offset..later.offset]
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    pub(super) fn at_end(&self) -> bool {
        self.offset == self.text.len()
    }

    /// An error here.
    pub(super) fn error(&self, expected: impl Into<Cow<'static, str>>) -> ParseError {
        error_at(self.offset, expected)
    }

    /// Takes `token` if it is next. `token` must be whole characters.
    #[inline]
    pub(super) fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.offset += token.len();
        }
        found
    }

    /// Takes `token`, which must be next.
    pub(super) fn expect(&mut self, token: &'static str) -> Result<(), ParseError> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("\"{token}\""))) }
    }

    /// Takes what separates two items: any run of commas, blanks and line ends, as OVS does.
    pub(super) fn skip_separators(&mut self) -> Separators {
        let mut found = Separators { comma: false, blank: false };
        while let Some(byte) = self.peek() {
            if byte == b',' {
                found.comma = true;
            } else if Self::is_blank(byte.into()) {
                found.blank = true;
            } else {
                break;
            }
            self.offset += 1;
        }
        found
    }

    /// Whether a character separates items.
    pub(super) fn is_separator(character: char) -> bool {
        character == ',' || Self::is_blank(character)
    }

    /// Whether a character separates items, besides the comma.
    pub(super) fn is_blank(character: char) -> bool {
        matches!(character, ' ' | '\t' | '\r' | '\n')
    }

    /// Takes the longest run of ASCII bytes that `wanted` allows.
    pub(super) fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'t str {
        let start = self.offset;
        let rest = &self.text.as_bytes()[start..];
        let length = rest.iter().position(|byte| !(byte.is_ascii() && wanted(*byte)));
        self.offset += length.unwrap_or(rest.len());
        self.since(start)
    }

    /// Takes a name of the grammar: letters, digits and underscores.
    pub(super) fn take_name(&mut self) -> &'t str {
        self.take_while(|byte| IN_NAME[usize::from(byte)])
    }

    /// Takes a word that may be anything up to a separator, a slash or a parenthesis: a port's name, for instance.
    pub(super) fn take_word(&mut self) -> &'t str {
        let start = self.offset;
        self.offset += self.rest().find(ends_word).unwrap_or(self.rest().len());
        self.since(start)
    }

    /// Takes so many bytes, which must be whole characters.
    pub(super) fn take(&mut self, length: usize) -> &'t str {
        let start = self.offset;
        self.offset += length;
        self.since(start)
    }

    /// Takes a decimal number, or a hexadecimal one after `0x`, up to and with `limit`.
    ///
    /// OVS takes a leading zero for octal, most people do not: such a number is refused rather than misunderstood.
    pub(super) fn number(&mut self, limit: u128) -> Result<u128, ParseError> {
        let start = self.offset;
        let wrong = |what: Cow<'static, str>| Err(error_at(start, what));
        let is_hexadecimal = self.eat("0x") || self.eat("0X");
        let digits = if is_hexadecimal {
            self.take_while(|byte| byte.is_ascii_hexdigit())
        } else {
            self.take_while(|byte| byte.is_ascii_digit())
        };
        if digits.is_empty() {
            self.offset = start;
            return wrong("a number".into());
        }
        if !is_hexadecimal && digits.len() > 1 && digits.starts_with('0') {
            return wrong("a number without leading zeros (OVS takes it for octal)".into());
        }
        match value_of(digits, if is_hexadecimal { 16 } else { 10 }) {
            Some(value) if value <= limit => Ok(value),
            _ if limit == u128::MAX => wrong("a number of at most 128 bits".into()),
            _ => wrong(format!("a number up to {limit} ({limit:#x})").into()),
        }
    }

    /// Takes a decimal number of 64 bits, in which leading zeros do no harm: a counter or a time.
    pub(super) fn count(&mut self) -> Result<u64, ParseError> {
        let start = self.offset;
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        digits.parse().map_err(|_| error_at(start, "a decimal number of at most 64 bits"))
    }

    /// Takes text in balanced parentheses; the opening one must be next. Returns what is between the outermost.
    pub(super) fn balanced(&mut self) -> Result<&'t str, ParseError> {
        let start = self.offset;
        let mut depth = 0usize;
        for (index, byte) in self.rest().bytes().enumerate() {
            let place = start + index;
            match byte {
                b'(' if depth == NESTING_LIMIT => {
                    return Err(error_at(place, format!("at most {NESTING_LIMIT} levels of parentheses")));
                }
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                _ if byte.is_ascii_control() => return Err(error_at(place, "no control character in here")),
                _ => {}
            }
            if depth == 0 {
                if index == 0 {
                    break;
                }
                self.offset = place + 1;
                return Ok(&self.text[start + 1..place]);
            }
        }
        if self.peek() == Some(b'(') {
            Err(error_at(self.text.len(), format!("\")\" for the \"(\" at byte {start}")))
        } else {
            Err(self.error("\"(\""))
        }
    }
}

/// The value of digits that are all of the radix, 10 or 16; `None` if it has more than 128 bits.
fn value_of(digits: &str, radix: u32) -> Option<u128> {
    /// As many digits of either radix are no more than 64 bits.
    const SHORT: usize = 16;
    if digits.len() > SHORT {
        return u128::from_str_radix(digits, radix).ok();
    }
    let value = digits.bytes().fold(0, |value, digit| value * u64::from(radix) + u64::from(digit_value(digit)));
    Some(value.into())
}

/// The value of a decimal or hexadecimal digit.
pub(super) const fn digit_value(digit: u8) -> u8 {
    // The letters of either case have bit 6 set, and 1 to 6 below.
    (digit & 0xf) + 9 * (digit >> 6)
}

/// The bytes of names. Looked up, for a line is names above all.
static IN_NAME: [bool; 256] = {
    let mut is_in = [false; 256];
    let mut byte = 0u8;
    while byte.is_ascii() {
        is_in[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'_';
        byte += 1;
    }
    is_in
};

/// What stood between two items.
#[derive(Clone, Copy)]
pub(super) struct Separators {
    pub(super) comma: bool,
    pub(super) blank: bool,
}

/// An error at a place.
pub(super) fn error_at(offset: usize, expected: impl Into<Cow<'static, str>>) -> ParseError {
    ParseError { offset, expected: expected.into() }
}

/// Whether a character cannot be part of a word.
pub(super) fn ends_word(character: char) -> bool {
    matches!(character, ',' | ' ' | '(' | ')' | '/') || character.is_ascii_control()
}

/// A word in quotes for a message: short, and without anything that a terminal would act upon.
pub(super) fn quoted(word: &str) -> String {
    const LONGEST: usize = 40;
    let end = word.char_indices().nth(LONGEST).map_or(word.len(), |(index, _)| index);
    let cut = if end < word.len() { "..." } else { "" };
    format!("\"{}{cut}\"", word[..end].escape_debug())
}
