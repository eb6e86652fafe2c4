//! Requests of a send queue or of a queue pair, as the driver has written them.

use super::ring::Ring;
use crate::memory::Memory;

/// Unit of a send queue.
pub(crate) const BLOCK: usize = 64;

/// Unit of a request.
pub(super) const SEGMENT: usize = 16;

/// When a request gives a completion (PRM, "CE" of the control segment): otherwise with any error.
const COMPLETES_FIRST_ERROR: u8 = 1;

pub(super) const ALWAYS_COMPLETES: u8 = 2;

/// A request: control segment, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) index: u16,
    pub(crate) opcode: u8,
    pub(super) mode: u8,
    pub(super) bytes: Vec<u8>,
}

impl Request {
    /// Reads the request at `index`.
    pub(crate) fn read(memory: &dyn Memory, ring: &Ring, index: u16) -> Result<Self, String> {
        let mut bytes = read_block(memory, ring, index)?;
        let segments = usize::from(bytes[7] & 0x3f);
        let length = segments.max(1) * SEGMENT;
        let blocks = length.div_ceil(BLOCK);
        for block in 1..blocks {
            let at = index.wrapping_add(u16::try_from(block).unwrap_or(u16::MAX));
            bytes.extend_from_slice(&read_block(memory, ring, at)?);
        }
        bytes.truncate(length);
        Ok(Self { index, opcode: bytes[3], mode: bytes[11] >> 2 & 3, bytes })
    }

    pub(crate) fn blocks(&self) -> u16 {
        u16::try_from(self.bytes.len().div_ceil(BLOCK)).unwrap_or(u16::MAX)
    }

    pub(crate) fn wants_completion(&self) -> bool {
        self.mode & ALWAYS_COMPLETES != 0
    }

    /// Whether it gives no completion as flushed behind another one.
    pub(crate) fn completes_first_error_only(&self) -> bool {
        self.mode == COMPLETES_FIRST_ERROR
    }

    /// Whether the completion at the other side is marked for an event.
    pub(super) fn is_solicited(&self) -> bool {
        const SOLICITED: u8 = 1 << 1;
        self.bytes.get(11).is_some_and(|flags| flags & SOLICITED != 0)
    }

    pub(super) fn modifier(&self) -> u8 {
        self.bytes.first().copied().unwrap_or_default()
    }

    pub(crate) fn bytes(&self, at: usize, length: usize) -> Option<&[u8]> {
        self.bytes.get(at..at.checked_add(length)?)
    }

    pub(crate) fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at + 4)?;
        Some(bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }
}

fn read_block(memory: &dyn Memory, ring: &Ring, index: u16) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; BLOCK];
    memory.read(ring.address(u32::from(index)), &mut bytes).map_err(|fault| fault.to_string())?;
    Ok(bytes)
}
