//! Where one request ends and the next begins: JSON objects back to back, without length or newline.

use std::mem;

use memchr::memchr2;

/// Cuts a byte stream into JSON objects.
///
/// Every byte is looked at once, however the stream is cut into pieces. What lies between two objects is white space;
/// whether an object is good JSON in every other respect is for the parser to say. Once [`Splitter::next`] has failed, the
/// stream is of no more use.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    max_depth: usize,
    buffer: Vec<u8>,
    /// Where in `buffer` the present object begins.
    start: usize,
    /// Up to where in `buffer` bytes were looked at.
    scanned: usize,
    /// How many bytes of the stream came before `buffer`.
    passed: u64,
    depth: usize,
    text: Text,
}

/// One JSON object of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its bytes, from brace to brace.
    pub bytes: Vec<u8>,
    /// Where in the stream it begins.
    pub offset: u64,
}

/// Why a stream cannot be cut into objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// Something else than an object begins.
    #[error("a request begins with \"{{\", not with {}, at byte {offset}", printable(*byte))]
    NotAnObject {
        /// What it begins with.
        byte: u8,
        /// Where in the stream.
        offset: u64,
    },
    /// An object is too long.
    #[error("the request that begins at byte {offset} is longer than {limit} bytes")]
    TooLong {
        /// How long it may be.
        limit: usize,
        /// Where in the stream it begins.
        offset: u64,
    },
    /// Objects and arrays are in each other too often.
    #[error("nested more than {limit} deep at byte {offset}")]
    TooDeep {
        /// How deep they may be.
        limit: usize,
        /// Where in the stream.
        offset: u64,
    },
}

/// Where the scan is with respect to strings, in which brackets mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Outside,
    Inside,
    AfterBackslash,
}

impl Splitter {
    /// A splitter that takes objects of at most `limit` bytes, in which brackets are nested at most `max_depth` deep.
    pub fn new(limit: usize, max_depth: usize) -> Self {
        Self { limit, max_depth, buffer: Vec::new(), start: 0, scanned: 0, passed: 0, depth: 0, text: Text::Outside }
    }

    /// Takes the next piece of the stream. Memory stays bounded as long as [`Splitter::next`] is called until it has
    /// nothing before the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.drop_passed();
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole object, if it is there.
    #[expect(clippy::should_implement_trait, reason = "none now does not mean none later, which an iterator would say")]
    pub fn next(&mut self) -> Result<Option<Value>, FramingError> {
        loop {
            self.scanned += self.plain_text();
            let Some(&byte) = self.buffer.get(self.scanned) else { return Ok(None) };
            let here = self.scanned;
            self.scanned += 1;
            if self.depth == 0 {
                match byte {
                    b' ' | b'\t' | b'\n' | b'\r' => self.start = self.scanned,
                    b'{' => self.depth = 1,
                    _ => return Err(FramingError::NotAnObject { byte, offset: self.offset(here) }),
                }
                continue;
            }
            if self.scanned - self.start > self.limit {
                return Err(FramingError::TooLong { limit: self.limit, offset: self.offset(self.start) });
            }
            match (self.text, byte) {
                (Text::Outside, b'"') => self.text = Text::Inside,
                (Text::Outside, b'{' | b'[') if self.depth == self.max_depth => {
                    return Err(FramingError::TooDeep { limit: self.max_depth, offset: self.offset(here) });
                }
                (Text::Outside, b'{' | b'[') => self.depth += 1,
                (Text::Outside, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(Some(self.take()));
                    }
                }
                (Text::Inside, b'\\') => self.text = Text::AfterBackslash,
                (Text::Inside, b'"') => self.text = Text::Outside,
                (Text::AfterBackslash, _) => self.text = Text::Inside,
                (Text::Outside | Text::Inside, _) => {}
            }
        }
    }

    /// How many bytes come next that are within a string and mean nothing here. Requests are large because of their strings.
    fn plain_text(&self) -> usize {
        if self.text != Text::Inside {
            return 0;
        }
        let end = self.buffer.len().min(self.start + self.limit);
        let ahead = self.buffer.get(self.scanned..end).unwrap_or_default();
        memchr2(b'"', b'\\', ahead).unwrap_or(ahead.len())
    }

    /// Whether an object has begun and not ended.
    pub fn is_partial(&self) -> bool {
        self.depth > 0
    }

    /// How many bytes it holds.
    pub(super) fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn offset(&self, index: usize) -> u64 {
        self.passed + index as u64
    }

    /// Takes the object between `start` and `scanned` out.
    fn take(&mut self) -> Value {
        let offset = self.offset(self.start);
        let bytes = if self.start == 0 && self.scanned == self.buffer.len() {
            // The common case, and the one of huge requests: nothing is copied, and the memory goes with the request.
            self.passed += self.scanned as u64;
            self.scanned = 0;
            mem::take(&mut self.buffer)
        } else {
            let bytes = self.buffer[self.start..self.scanned].to_vec();
            self.start = self.scanned;
            bytes
        };
        Value { bytes, offset }
    }

    /// Frees what was taken out or skipped. Done once a piece and not once an object, since the rest has to be moved.
    fn drop_passed(&mut self) {
        if self.start == 0 {
            return;
        }
        self.buffer.drain(..self.start);
        self.passed += self.start as u64;
        self.scanned -= self.start;
        self.start = 0;
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
    }
}

fn printable(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("\"{}\"", char::from(byte)) } else { format!("byte 0x{byte:02x}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(pieces: &[&[u8]]) -> Result<Vec<String>, FramingError> {
        let mut splitter = Splitter::new(1000, 10);
        let mut found = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            while let Some(value) = splitter.next()? {
                found.push(String::from_utf8(value.bytes).unwrap());
            }
        }
        Ok(found)
    }

    #[test]
    fn objects_back_to_back_come_apart() {
        let found = split(&[b" {\"a\":1}{\"b\":[{}]}\n", b"{}", b" "]).unwrap();
        assert_eq!(found, ["{\"a\":1}", "{\"b\":[{}]}", "{}"]);
    }

    #[test]
    fn brackets_and_quotes_within_strings_mean_nothing() {
        let text = r#"{"a":"}{]\"}\\"}{"b":"\\\""}"#;
        assert_eq!(split(&[text.as_bytes()]).unwrap(), [r#"{"a":"}{]\"}\\"}"#, r#"{"b":"\\\""}"#]);
    }

    #[test]
    fn offsets_count_from_the_start_of_the_stream() {
        let mut splitter = Splitter::new(1000, 10);
        splitter.push(b"{} {");
        assert_eq!(splitter.next().unwrap().unwrap().offset, 0);
        assert_eq!(splitter.next().unwrap(), None);
        assert!(splitter.is_partial());
        splitter.push(b"}  x");
        assert_eq!(splitter.next().unwrap(), Some(Value { bytes: b"{}".to_vec(), offset: 3 }));
        assert!(!splitter.is_partial());
        assert_eq!(splitter.next(), Err(FramingError::NotAnObject { byte: b'x', offset: 7 }));
    }

    #[test]
    fn too_long_and_too_deep_are_noticed_while_they_arrive() {
        let mut splitter = Splitter::new(10, 3);
        splitter.push(b"{\"aaaaaaaaaaaaaaaa");
        assert_eq!(splitter.next(), Err(FramingError::TooLong { limit: 10, offset: 0 }));
        let mut splitter = Splitter::new(10, 3);
        splitter.push(b"{[[[");
        assert_eq!(splitter.next(), Err(FramingError::TooDeep { limit: 3, offset: 3 }));
    }

    #[test]
    fn an_object_of_exactly_the_limit_passes() {
        let mut splitter = Splitter::new(10, 3);
        splitter.push(b"{\"12345\":}{\"123456\":}");
        assert_eq!(splitter.next().unwrap().unwrap().bytes.len(), 10);
        assert_eq!(splitter.next(), Err(FramingError::TooLong { limit: 10, offset: 10 }));
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_makes_no_difference(
            names in proptest::collection::vec("[a-z{}\\[\\]\"\\\\é\n]{0,8}", 0..8),
            cut in proptest::collection::vec(1_usize..5, 1..200),
        ) {
            let objects: Vec<String> = names.iter().map(|name| serde_json::json!({ "name": [name] }).to_string()).collect();
            let stream = objects.join(" ").into_bytes();
            let mut rest = stream.as_slice();
            let mut pieces = Vec::new();
            for size in cut.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            prop_assert_eq!(split(&pieces).unwrap(), objects);
        }

        #[test]
        fn no_bytes_make_it_panic_or_hoard(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..50)) {
            let mut splitter = Splitter::new(64, 8);
            for piece in &pieces {
                splitter.push(piece);
                loop {
                    match splitter.next() {
                        Ok(Some(value)) => prop_assert!(value.bytes.len() <= 64),
                        Ok(None) => break,
                        Err(_) => return Ok(()),
                    }
                }
                prop_assert!(splitter.buffer.len() <= 64 + 50);
            }
        }
    }
}
