//! Netlink attributes (`struct nlattr` in `include/uapi/linux/netlink.h`): a checked reader, and a writer into one buffer.

use std::borrow::Cow;

/// Says that what is in an attribute is attributes.
const NESTED: u16 = 1 << 15;
/// Says that a number is big-endian; no tc attribute uses it.
const BIG_ENDIAN: u16 = 1 << 14;
const HEADER: usize = 4;

/// Why bytes that were read make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end too early.
    #[error("{place}: cut short")]
    Truncated {
        /// Of what.
        place: &'static str,
    },
    /// An attribute is longer or shorter than its type.
    #[error("{place}: attribute {kind} has {length} bytes")]
    Length {
        /// In which nest.
        place: &'static str,
        /// Which attribute.
        kind: u16,
        /// How long it is.
        length: usize,
    },
    /// An attribute is not there.
    #[error("{place}: attribute {kind} is missing")]
    Missing {
        /// In which nest.
        place: &'static str,
        /// Which attribute.
        kind: u16,
    },
    /// Nothing is known of an attribute, so that nobody may act as if it were not there.
    #[error("{place}: attribute {kind} is unknown")]
    Unknown {
        /// In which nest.
        place: &'static str,
        /// Which attribute.
        kind: u16,
    },
    /// The value of an attribute is none of those that are known.
    #[error("{place}: attribute {kind} is {value}")]
    Value {
        /// In which nest.
        place: &'static str,
        /// Which attribute.
        kind: u16,
        /// What it says.
        value: Cow<'static, str>,
    },
}

/// Something does not fit into a message: lengths have 16 bits (CVE-2026-64531 is what comes of not looking).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attribute {kind} would be longer than 65,535 bytes")]
pub struct TooLong {
    /// The attribute.
    pub kind: u16,
}

/// The attributes of a nest, one after the other. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
    place: &'static str,
}

impl<'a> Attributes<'a> {
    /// Reads attributes; `place` is for messages.
    #[inline]
    pub const fn new(bytes: &'a [u8], place: &'static str) -> Self {
        Self { rest: bytes, place }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let place = self.place;
        let attribute = self.rest.split_first_chunk::<HEADER>().and_then(|([a, b, c, d], _)| {
            let length = usize::from(u16::from_ne_bytes([*a, *b]));
            let kind = u16::from_ne_bytes([*c, *d]) & !(NESTED | BIG_ENDIAN);
            let payload = self.rest.get(HEADER..length)?;
            self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some(Attribute { kind, payload, place })
        });
        if attribute.is_none() {
            self.rest = &[];
        }
        Some(attribute.ok_or(Malformed::Truncated { place }))
    }
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its number in its nest, without the flags for nests and byte order.
    pub kind: u16,
    /// What is in it.
    pub payload: &'a [u8],
    place: &'static str,
}

impl<'a> Attribute<'a> {
    /// What is in it, of a known length.
    #[inline]
    pub fn bytes<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        self.payload.try_into().map_err(|_| self.length())
    }

    /// A byte.
    #[inline]
    pub fn u8(&self) -> Result<u8, Malformed> {
        Ok(u8::from_ne_bytes(self.bytes()?))
    }

    /// A number in the order of the machine.
    #[inline]
    pub fn u16(&self) -> Result<u16, Malformed> {
        Ok(u16::from_ne_bytes(self.bytes()?))
    }

    /// A number in the order of the machine.
    #[inline]
    pub fn u32(&self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.bytes()?))
    }

    /// A number in the order of the machine.
    #[inline]
    pub fn u64(&self) -> Result<u64, Malformed> {
        Ok(u64::from_ne_bytes(self.bytes()?))
    }

    /// A number in the order of networks.
    #[inline]
    pub fn be16(&self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.bytes()?))
    }

    /// A number in the order of networks.
    #[inline]
    pub fn be32(&self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.bytes()?))
    }

    /// A text up to the zero that ends it.
    #[inline]
    pub fn text(&self) -> Result<&'a str, Malformed> {
        let text = self.payload.split(|byte| *byte == 0).next().unwrap_or_default();
        std::str::from_utf8(text).map_err(|_| self.value("no text"))
    }

    /// What is in it, as attributes.
    #[inline]
    pub const fn nested(&self, place: &'static str) -> Attributes<'a> {
        Attributes::new(self.payload, place)
    }

    /// An attribute of the same number with something else in it, such as a part of it.
    pub const fn with_payload<'b>(&self, payload: &'b [u8]) -> Attribute<'b> {
        Attribute { kind: self.kind, payload, place: self.place }
    }

    /// The complaint that it is too long or too short.
    pub const fn length(&self) -> Malformed {
        Malformed::Length { place: self.place, kind: self.kind, length: self.payload.len() }
    }

    /// The complaint that nothing is known of it.
    pub const fn unknown(&self) -> Malformed {
        Malformed::Unknown { place: self.place, kind: self.kind }
    }

    /// The complaint that it says something odd.
    pub fn value(&self, value: impl Into<Cow<'static, str>>) -> Malformed {
        Malformed::Value { place: self.place, kind: self.kind, value: value.into() }
    }
}

/// The fields of a C structure, one after the other.
pub struct Fields<'a> {
    rest: &'a [u8],
    place: &'static str,
}

impl<'a> Fields<'a> {
    /// Reads the fields of `bytes`; `place` is for messages.
    #[inline]
    pub const fn new(bytes: &'a [u8], place: &'static str) -> Self {
        Self { rest: bytes, place }
    }

    /// The next field, of a known length.
    #[inline]
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Malformed::Truncated { place: self.place })?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A number in the order of the machine.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_ne_bytes(self.bytes()?))
    }

    /// A number in the order of the machine.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_ne_bytes(self.bytes()?))
    }

    /// A number in the order of the machine.
    #[inline]
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_ne_bytes(self.bytes()?))
    }

    /// A number in the order of the machine.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_ne_bytes(self.bytes()?))
    }
}

/// Writes attributes at the end of a buffer.
pub struct Writer<'a> {
    buffer: &'a mut Vec<u8>,
    too_long: Option<TooLong>,
}

impl<'a> Writer<'a> {
    /// Writes at the end of `buffer`.
    #[inline]
    pub const fn new(buffer: &'a mut Vec<u8>) -> Self {
        Self { buffer, too_long: None }
    }

    /// Fails if something was too long; what was written is not to be used then.
    #[inline]
    pub const fn finish(self) -> Result<(), TooLong> {
        match self.too_long {
            None => Ok(()),
            Some(too_long) => Err(too_long),
        }
    }

    /// Writes bytes that are no attribute, such as the fixed part of a message.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes an attribute.
    #[inline]
    pub fn put(&mut self, kind: u16, payload: &[u8]) {
        let [a, b] = self.checked_length(kind, HEADER + payload.len()).to_ne_bytes();
        let [c, d] = kind.to_ne_bytes();
        self.buffer.extend_from_slice(&[a, b, c, d]);
        self.buffer.extend_from_slice(payload);
        self.pad();
    }

    /// Writes a text with the zero that ends it.
    #[inline]
    pub fn put_text(&mut self, kind: u16, text: &str) {
        self.fill(kind, |writer| {
            writer.raw(text.as_bytes());
            writer.raw(&[0]);
        });
    }

    /// Writes an attribute that holds attributes.
    #[inline]
    pub fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.fill(kind | NESTED, body);
    }

    /// Writes an attribute of which the body writes the bytes.
    #[inline]
    pub fn fill(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.buffer.len();
        let [c, d] = kind.to_ne_bytes();
        self.buffer.extend_from_slice(&[0, 0, c, d]);
        body(self);
        let length = self.checked_length(kind & !NESTED, self.buffer.len() - start);
        self.buffer[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.pad();
    }

    #[inline]
    fn pad(&mut self) {
        let length = self.buffer.len().next_multiple_of(4);
        self.buffer.resize(length, 0);
    }

    #[inline]
    fn checked_length(&mut self, kind: u16, length: usize) -> u16 {
        u16::try_from(length).unwrap_or_else(|_| {
            self.too_long.get_or_insert(TooLong { kind });
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut buffer = vec![];
        let mut writer = Writer::new(&mut buffer);
        writer.put(7, &[1, 2, 3]);
        writer.nest(8, |writer| writer.put_text(1, "flower"));
        writer.finish().unwrap();
        assert_eq!(buffer.len(), 8 + 4 + 12);
        let found: Vec<_> = Attributes::new(&buffer, "test").map(Result::unwrap).collect();
        assert_eq!(found[0].bytes(), Ok([1, 2, 3]));
        let inner = found[1].nested("inner").next().unwrap().unwrap();
        assert_eq!((found[1].kind, inner.text()), (8, Ok("flower")));
    }

    #[test]
    fn what_is_cut_short_is_an_error_and_the_end() {
        let mut buffer = vec![];
        Writer::new(&mut buffer).put(7, &[1, 2, 3, 4]);
        for length in 1..buffer.len() {
            let mut attributes = Attributes::new(&buffer[..length], "test");
            assert_eq!(attributes.next(), Some(Err(Malformed::Truncated { place: "test" })), "{length}");
            assert_eq!(attributes.next(), None);
        }
        // A length that is less than the header would go on for ever.
        assert!(Attributes::new(&[3, 0, 1, 0], "test").next().unwrap().is_err());
    }

    #[test]
    fn a_nest_that_does_not_fit_is_refused_and_not_wrapped() {
        let mut buffer = vec![];
        let mut writer = Writer::new(&mut buffer);
        writer.nest(3, |writer| (0..9).for_each(|_| writer.put(1, &[0; 8000])));
        assert_eq!(writer.finish(), Err(TooLong { kind: 3 }));
    }
}
