//! The four bytes that every message begins with.

use super::error::MessageError;

const VERSION: u8 = 1;

/// Bytes of the header.
pub(super) const HEADER: usize = 4;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(pub(super) u8);

impl Kind {
    pub(super) const PLAN: Self = Self(1);
    pub(super) const FRAME: Self = Self(2);
    pub(super) const LOSSES: Self = Self(3);

    /// Returns the header of a message of this kind.
    pub(super) const fn header(self) -> [u8; HEADER] {
        [VERSION, self.0, 0, 0]
    }

    /// Takes the header off a message.
    pub(super) fn split(message: &[u8]) -> Result<(Self, &[u8]), MessageError> {
        let error = MessageError::Length { what: "message", length: message.len() };
        match message.split_first_chunk::<HEADER>().ok_or(error)? {
            ([VERSION, kind, 0, 0], body) => Ok((Self(*kind), body)),
            ([VERSION, ..], _) => Err(MessageError::Field { what: "message", field: "padding" }),
            ([version, ..], _) => Err(MessageError::Version(*version)),
        }
    }
}
