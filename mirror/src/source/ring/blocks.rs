//! The memory of a ring: blocks that the kernel and the program hand each other.

#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{tpacket_block_desc, tpacket_hdr_v1};
use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::RingSize;
use super::socket::PacketSocket;
use crate::verbs::{ExternalMemory, Piece};

/// The blocks of a ring. They stay mapped until this is dropped, also if the socket is closed before.
#[derive(Debug)]
pub(super) struct Blocks {
    start: NonNull<u8>,
    block_bytes: usize,
    /// Of each block, whether it is lent. The kernel knows such blocks as those of the program, and full ones, too.
    lent: Box<[AtomicBool]>,
    /// The block that the kernel fills next, or has filled.
    next: Mutex<usize>,
}

// SAFETY: what is in the memory is reached by pieces that are lent, and of each block by its status.
unsafe impl Send for Blocks {}
// SAFETY: the same.
unsafe impl Sync for Blocks {}

/// What the kernel says of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) frames: u32,
    pub(super) opened_ns: u64,
    pub(super) sequence: u64,
    pub(super) is_losing: bool,
}

impl Blocks {
    /// Maps the ring of a socket, which has this size.
    pub(super) fn map(socket: &PacketSocket, size: RingSize) -> io::Result<Self> {
        let block_bytes = usize::try_from(size.block_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let blocks = usize::try_from(size.blocks).map_err(|_| io::ErrorKind::InvalidInput)?;
        let length = block_bytes.checked_mul(blocks).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the address is the kernel's choice, and nobody has a reference into what it maps there.
        let start = unsafe { mmap(null_mut(), length, protection, MapFlags::SHARED, socket, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let lent = (0..blocks).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { start, block_bytes, lent, next: Mutex::default() })
    }

    /// What the kernel says of a block that is lent.
    pub(super) fn header(&self, number: usize) -> BlockHeader {
        const NANOSECONDS: u64 = 1_000_000_000;
        let header = self.raw_header(number);
        let first = header.ts_first_pkt;
        BlockHeader {
            frames: header.num_pkts,
            // `packet_mmap.rst` calls the field nanoseconds; libc has the name of the other half of the union.
            opened_ns: u64::from(first.ts_sec) * NANOSECONDS + u64::from(first.ts_usec),
            sequence: header.seq_num,
            is_losing: header.block_status & libc::TP_STATUS_LOSING != 0,
        }
    }

    fn raw_header(&self, number: usize) -> tpacket_hdr_v1 {
        // SAFETY: each block begins with such a description, which the kernel does not write while the block is the program's. Its status
        // is written at the end of that only, when nobody comes here for the same block.
        unsafe { (*self.block(number).cast::<tpacket_block_desc>().as_ptr()).hdr.bh1 }
    }

    /// Whose a block is.
    fn status(&self, number: usize) -> &AtomicU32 {
        let at = offset_of!(tpacket_block_desc, hdr) + offset_of!(tpacket_hdr_v1, block_status);
        // SAFETY: the status is within the description, aligned, and both the kernel and this side read and write it as a whole.
        unsafe { AtomicU32::from_ptr(self.block(number).add(at).cast().as_ptr()) }
    }

    fn block(&self, number: usize) -> NonNull<u8> {
        debug_assert!(number < self.lent.len());
        // SAFETY: there are as many blocks as flags, all of them mapped.
        unsafe { self.start.add(number * self.block_bytes) }
    }
}

// SAFETY: the mapping stays until this is dropped, and its pages begin as zeroes. A piece is a block that has become the program's; the
// kernel does not write it before its status says that it is the kernel's again, which `take_back` alone writes, and no block is lent twice
// meanwhile. Whoever has a piece only reads it, as this does.
unsafe impl ExternalMemory for Blocks {
    fn range(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start, self.block_bytes * self.lent.len())
    }

    fn lend(&self) -> Option<Piece> {
        let mut next = self.next.lock();
        let number = *next;
        // First this: a block that has just come back is the kernel's by its status, too.
        if self.lent[number].load(Ordering::Acquire) {
            return None;
        }
        if self.status(number).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let length = usize::try_from(self.raw_header(number).blk_len).unwrap_or(usize::MAX).min(self.block_bytes);
        self.lent[number].store(true, Ordering::Relaxed);
        *next = (number + 1) % self.lent.len();
        let block = number * self.block_bytes;
        Some(Piece { number, range: block..block + length })
    }

    fn take_back(&self, number: usize) {
        self.status(number).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.lent[number].store(false, Ordering::Release);
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let length = self.block_bytes * self.lent.len();
        // SAFETY: it was mapped with this length, and whoever has a piece of it keeps this.
        // What cannot be unmapped stays mapped, which does no harm.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), length) };
    }
}
