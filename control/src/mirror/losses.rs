//! How many copies a client of the mirror socket did not get because it was too slow.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | header of all messages |
//! | 4..76 | for each class in the order of the codes: frames lost since the client connected, 8 bytes each |

use super::class::{CLASSES, Class};
use super::error::MessageError;
use super::header::{HEADER, Kind};

/// Frames that were lost since the client connected. They were copied before whatever frame comes behind this message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses(pub [u64; CLASSES]);

impl Losses {
    /// Returns the frames of a class.
    pub const fn of(&self, class: Class) -> u64 {
        self.0[class.index()]
    }

    /// Returns the message.
    pub fn message(&self) -> Vec<u8> {
        let header = Kind::LOSSES.header().into_iter();
        header.chain(self.0.into_iter().flat_map(u64::to_be_bytes)).collect()
    }

    /// Reads the body of a message.
    pub(super) fn parse(body: &[u8]) -> Result<Self, MessageError> {
        let wrong = || MessageError::Length { what: "message of losses", length: HEADER + body.len() };
        let (numbers, rest) = body.as_chunks::<8>();
        let numbers: [[u8; 8]; CLASSES] = numbers.try_into().map_err(|_| wrong())?;
        if rest.is_empty() { Ok(Self(numbers.map(u64::from_be_bytes))) } else { Err(wrong()) }
    }
}
