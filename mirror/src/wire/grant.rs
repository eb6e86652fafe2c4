//! Grants, the collector's messages: how much more the sender may send, and what has been taken over.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic, `SLMG` |
//! | 4..6 | version |
//! | 6 | number of classes |
//! | 7 | zero |
//! | 8..12 | bytes of the longest message that the collector has room for |
//! | 12..16 | zeros |
//! | 16..24 | hellos and heartbeats that were taken |
//! | 24.. | of each class: messages, bytes, sequence number; 8 bytes each |
//!
//! All but the length are totals of the connection, so that a later grant contains an earlier one.

use super::reader::Reader;
use super::{CLASSES, VERSION, WireError};

const MAGIC: [u8; 4] = *b"SLMG";

/// Bytes of a grant.
pub const GRANT: usize = 24 + 24 * CLASSES;

/// What a collector grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grant {
    /// Bytes of the longest message that the collector has room for, header included.
    pub longest: u32,
    /// How many hellos and heartbeats it has taken in this connection.
    pub controls: u64,
    /// By class.
    pub classes: [ClassGrant; CLASSES],
}

/// What a collector grants of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassGrant {
    /// How many batches may be sent in this connection.
    pub messages: u64,
    /// How many bytes these may have together, headers included.
    pub bytes: u64,
    /// The collector has taken over all frames before this sequence number, and will take none of them again.
    pub acknowledged: u64,
}

impl Grant {
    /// As bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; GRANT] {
        let mut bytes = [0; GRANT];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_be_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "there are not so many classes")]
        {
            bytes[6] = CLASSES as u8;
        }
        bytes[8..12].copy_from_slice(&self.longest.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.controls.to_be_bytes());
        for (class, into) in self.classes.iter().zip(bytes[24..].chunks_exact_mut(24)) {
            for (number, into) in [class.messages, class.bytes, class.acknowledged].iter().zip(into.chunks_exact_mut(8))
            {
                into.copy_from_slice(&number.to_be_bytes());
            }
        }
        bytes
    }

    /// Reads a grant.
    ///
    /// # Errors
    /// Fails if the bytes are no grant of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("a grant", bytes);
        if reader.take(4)? != MAGIC {
            return Err(WireError::Magic);
        }
        let version = reader.u16()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let classes = reader.u8()?;
        if usize::from(classes) != CLASSES {
            return Err(WireError::Field { field: "the number of classes of a grant", value: classes.into() });
        }
        reader.zeros(1, "the reserved byte of a grant")?;
        let longest = reader.u32()?;
        reader.zeros(4, "a reserved byte of a grant")?;
        let mut grant = Self { longest, controls: reader.u64()?, ..Self::default() };
        for class in &mut grant.classes {
            *class = ClassGrant { messages: reader.u64()?, bytes: reader.u64()?, acknowledged: reader.u64()? };
        }
        reader.end()?;
        Ok(grant)
    }
}
