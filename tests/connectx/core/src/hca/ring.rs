//! Rings in the driver's memory: events and completions that the device writes, work that it reads.

use super::failed::Syndrome;
use crate::command::{Failure, Status, require};

/// A ring of entries of one size, in pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ring {
    pages: Vec<u64>,
    log_page: u32,
    offset: u64,
    log_stride: u32,
    log_size: u32,
}

impl Ring {
    /// `offset` is in units of 64 bytes, as queue contexts have it.
    pub(crate) fn new(
        pages: Vec<u64>,
        log_page: u32,
        offset: u64,
        log_stride: u32,
        log_size: u32,
    ) -> Result<Self, Failure> {
        let offset = offset * 64;
        require(log_size + log_stride < 40, Status::LimitExceeded, 0x0601, "a queue without end")?;
        let end = offset + (1 << (log_size + log_stride));
        let pages_needed = end.div_ceil(1 << log_page);
        let enough = pages.len() as u64 >= pages_needed;
        let reason = format!("{} pages for a queue of {pages_needed}", pages.len());
        require(enough, Status::BadInputLength, 0x0602, reason)?;
        let aligned = pages.iter().all(|page| page % 4096 == 0);
        require(aligned, Status::BadParameter, 0x0603, "a page of the queue is not aligned")?;
        Ok(Self { pages, log_page, offset, log_stride, log_size })
    }

    pub(crate) fn log_size(&self) -> u32 {
        self.log_size
    }

    /// Where the entry of a counter lies. Entries do not cross pages.
    pub(crate) fn address(&self, counter: u32) -> u64 {
        let at = self.offset + (u64::from(counter & (self.entries() - 1)) << self.log_stride);
        let page = usize::try_from(at >> self.log_page).unwrap_or(usize::MAX);
        self.pages.get(page).copied().unwrap_or_default() + (at & ((1 << self.log_page) - 1))
    }

    pub(super) fn entries(&self) -> u32 {
        1 << self.log_size
    }

    /// Bytes of an entry.
    pub(crate) fn stride(&self) -> usize {
        1 << self.log_stride
    }

    /// 0 in the first lap, 1 in the second, and so on.
    pub(super) fn owner(&self, counter: u32) -> u8 {
        u8::from(counter >> self.log_size & 1 == 1)
    }
}

pub(crate) const COMPLETION: usize = 64;

/// In the last byte: whoever wants to hear of marked completions only hears of this one.
pub(crate) const SOLICITED: u8 = 1 << 1;

/// A completion of a request or of buffers, by opcode, queue, the driver's number of that, and index; but for its last byte, of which
/// only [`SOLICITED`] may be set.
pub(crate) fn completion(
    (opcode, queue): (u8, u32),
    user_index: u32,
    index: u16,
    error: Option<Syndrome>,
) -> [u8; COMPLETION] {
    let mut bytes = [0; COMPLETION];
    bytes[32..36].copy_from_slice(&user_index.to_be_bytes());
    bytes[54] = error.map_or(0, Syndrome::vendor);
    bytes[55] = error.map_or(0, |syndrome| syndrome as u8);
    bytes[56..60].copy_from_slice(&(u32::from(opcode) << 24 | queue & 0xff_ffff).to_be_bytes());
    bytes[60..62].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// Opcodes of completions that tell of a request, or of a buffer, that failed.
pub(super) const ERRORS: [u8; 2] = [0xd, 0xe];
