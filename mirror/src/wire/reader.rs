//! Numbers out of bytes that somebody else has sent.

use super::WireError;

/// Reads from the front of bytes, and says what is missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let missing = WireError::Length { what: self.what, length: self.bytes.len(), expected: length };
        let (front, rest) = self.bytes.split_at_checked(length).ok_or(missing)?;
        self.bytes = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let missing = WireError::Length { what: self.what, length: self.bytes.len(), expected: N };
        let (front, rest) = self.bytes.split_first_chunk().ok_or(missing)?;
        self.bytes = rest;
        Ok(*front)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, WireError> {
        self.array().map(u128::from_be_bytes)
    }

    /// Reads bytes that must be zero.
    pub(super) fn zeros(&mut self, length: usize, field: &'static str) -> Result<(), WireError> {
        match self.take(length)?.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(byte) => Err(WireError::Field { field, value: (*byte).into() }),
        }
    }

    /// Reads a text behind a byte of its length.
    pub(super) fn text(&mut self, field: &'static str) -> Result<String, WireError> {
        let length = self.u8()?;
        let bytes = self.take(length.into())?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| WireError::Text(field))
    }

    pub(super) fn end(&self) -> Result<(), WireError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(WireError::Length { what: self.what, length: self.bytes.len(), expected: 0 })
    }
}
