//! Lists of buffers as programs post them (PRM, "Data Segment"), and what is written into them.

use super::failed::Failed;
use super::key::Use;
use super::state::Hca;
use crate::memory::Memory;

/// A buffer for part of what is received.
pub(super) struct Buffer {
    key: u32,
    address: u64,
    pub(super) length: usize,
}

/// Unit of the list of buffers: length, key, address.
const SEGMENT: usize = 16;

/// The buffers of a list, but for those of no length, with which lists end.
pub(super) fn buffers(list: &[u8]) -> Vec<Buffer> {
    // The highest bit asks for padding in front, which the capabilities do not offer.
    const LENGTH: u64 = 0x7fff_ffff;
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let buffer = |segment: &[u8]| Buffer {
        key: u32::try_from(number(&segment[4..8])).unwrap_or_default(),
        address: number(&segment[8..16]),
        length: usize::try_from(number(&segment[..4]) & LENGTH).unwrap_or(usize::MAX),
    };
    list.chunks_exact(SEGMENT).map(buffer).filter(|buffer| buffer.length > 0).collect()
}

impl Hca {
    /// Fills buffers in their order, each under its key.
    pub(super) fn scatter(&mut self, memory: &dyn Memory, buffers: &[Buffer], data: &[u8]) -> Result<(), Failed> {
        let mut rest = data;
        for buffer in buffers {
            let (part, left) = rest.split_at(rest.len().min(buffer.length));
            self.write_by_key(memory, (buffer.key, buffer.address), Use::LocalWrite, part)?;
            rest = left;
        }
        Ok(())
    }
}
