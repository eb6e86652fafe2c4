//! The numbers in a record.

use super::error::RecordError;

/// A checked view of the numbers of a record.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(RecordError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn number(&mut self, bytes: usize) -> Result<u128, RecordError> {
        let mut number = [0; 16];
        number[..bytes].copy_from_slice(self.take(bytes)?);
        Ok(u128::from_le_bytes(number))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        self.take(N)?.try_into().map_err(|_| RecordError::Short)
    }

    pub(super) fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, RecordError> {
        self.array().map(u128::from_le_bytes)
    }
}
