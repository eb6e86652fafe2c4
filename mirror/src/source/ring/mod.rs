//! The ring of a packet socket (`PACKET_RX_RING` of version 3, `packet(7)` and the kernel's `packet_mmap.rst`), which is registered memory
//! itself: the kernel copies a frame into it once, and the RDMA device sends whole blocks of frames from where they are.
//!
//! A block that is full, or older than the ring's `retire_after`, belongs to the program until its [`Buffer`] is dropped. Meanwhile the
//! kernel fills the others. If it has none left it drops frames, and counts each ([`Ring::counts`]), so that frames of blocks and drops
//! are together what the filter let through.

mod blocks;
mod classes;
mod socket;

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_control::mirror::Class;
use sluice_control::mirror::filter::{Instruction, TooLong};
use tokio::io::unix::AsyncFd;

use self::blocks::{BlockHeader, Blocks};
pub use self::classes::RingSource;
use self::socket::PacketSocket;
use crate::verbs::{Buffer, CallError, ExternalRegion, ProtectionDomain};
use crate::wire::ring;

/// A packet socket with a ring in registered memory.
#[derive(Debug)]
pub struct Ring {
    socket: AsyncFd<PacketSocket>,
    region: ExternalRegion<Blocks>,
    counts: Mutex<RingCounts>,
}

/// The size of a ring, which is all the memory that it ever has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSize {
    /// Bytes of a block, a multiple of the page size. A frame that is longer is cut: with segmentation offload frames have up to 64 KiB.
    pub block_bytes: u32,
    /// How many blocks there are, at least 2.
    pub blocks: u32,
    /// After what time a block that is not full is handed over, in whole milliseconds. The kernel rounds it up to its own clock ticks,
    /// which are 4 ms on Debian.
    pub retire_after: Duration,
}

/// What became of the frames that the filter let through, since the ring was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingCounts {
    /// Frames that the kernel has put into blocks, those that are not handed over yet among them (`tp_packets` without `tp_drops`).
    pub frames: u64,
    /// Frames that found no room (`tp_drops`).
    pub drops: u64,
    /// How often the kernel found the whole ring occupied and had to wait for a block (`tp_freeze_q_cnt`).
    pub freezes: u64,
}

/// A block of frames.
#[derive(Debug)]
pub struct Block {
    /// The block as the kernel wrote it, to be read by [`frames`](crate::wire::ring::frames). It cannot be written. The block goes back to the kernel when this is dropped.
    pub buffer: Buffer,
    /// How many there are.
    pub frames: u32,
    /// When the first of them came, in nanoseconds since 1970.
    pub first_ns: u64,
    /// The kernel's number for the block, from 1 on, without gaps.
    pub sequence: u64,
    /// When the kernel closed the block, it had counted drops that nobody had asked for ([`Ring::counts`]).
    pub is_losing: bool,
}

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The socket, which needs `CAP_NET_RAW`.
    #[error("the packet socket: {call}: {source}")]
    Socket {
        /// What was asked of it.
        call: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The memory cannot be registered, for which the limit of locked memory may be too low.
    #[error("the ring of the packet socket cannot be registered: {0}")]
    Memory(#[from] CallError),
    /// There is none for this class.
    #[error("class {class}: {source}")]
    Class {
        /// The class.
        class: Class,
        /// Why.
        source: Box<Self>,
    },
    /// The kernel cannot be asked for network devices.
    #[error("the socket by which network devices are looked up: {0}")]
    Names(#[source] io::Error),
    /// The kernel takes no packet filter for so many devices.
    #[error(transparent)]
    Filter(#[from] TooLong),
}

impl Ring {
    /// Opens a ring for the frames that a filter lets through, in the reactor of the tokio runtime that this is called in. No other frame
    /// is ever in it.
    ///
    /// # Errors
    /// Fails without `CAP_NET_RAW`, outside of a runtime, if the kernel does not take the size or the filter, or if the memory cannot be
    /// registered.
    ///
    /// # Panics
    /// Panics in a runtime without I/O.
    pub fn open(domain: &ProtectionDomain, filter: &[Instruction], size: RingSize) -> Result<Self, RingError> {
        let failed = |call| move |source| RingError::Socket { call, source };
        let socket = PacketSocket::open().map_err(failed("socket"))?;
        socket.set_filter(filter).map_err(failed("SO_ATTACH_FILTER"))?;
        socket.set_ring(size).map_err(failed("PACKET_RX_RING"))?;
        let blocks = Blocks::map(&socket, size).map_err(failed("mmap"))?;
        let region = ExternalRegion::register(domain, blocks)?;
        let socket = socket.in_reactor().map_err(failed("epoll"))?;
        // Only now do frames come in.
        socket.get_ref().bind().map_err(failed("bind"))?;
        Ok(Self { socket, region, counts: Mutex::default() })
    }

    /// Has another filter decide from the next frame on. No frame is lost in between.
    ///
    /// # Errors
    /// As `SO_ATTACH_FILTER` fails. The filter is then as it was.
    pub fn set_filter(&self, filter: &[Instruction]) -> io::Result<()> {
        self.socket.get_ref().set_filter(filter)
    }

    /// Waits for the next block. Nothing is lost if this is dropped before it is done.
    ///
    /// # Errors
    /// Fails if the reactor is gone.
    pub async fn next(&mut self) -> io::Result<Block> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The same, to be polled.
    ///
    /// # Errors
    /// As [`Ring::next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Block>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(context))?;
            // Looked at behind the readiness: a block that comes later gives a new one.
            match take(&self.region) {
                Some(block) => return Poll::Ready(Ok(block)),
                None => guard.clear_ready(),
            }
        }
    }

    /// Takes the next block if there is one.
    pub fn take(&mut self) -> Option<Block> {
        take(&self.region)
    }

    /// Asks the kernel for what became of all frames so far.
    ///
    /// # Errors
    /// As `PACKET_STATISTICS` fails.
    pub fn counts(&self) -> io::Result<RingCounts> {
        let mut counts = self.counts.lock();
        // The kernel begins anew with each answer.
        let since = self.socket.get_ref().statistics()?;
        counts.frames += u64::from(since.tp_packets.saturating_sub(since.tp_drops));
        counts.drops += u64::from(since.tp_drops);
        counts.freezes += u64::from(since.tp_freeze_q_cnt);
        Ok(*counts)
    }
}

fn take(region: &ExternalRegion<Blocks>) -> Option<Block> {
    loop {
        let (number, buffer) = region.lend()?;
        let BlockHeader { frames, opened_ns, sequence, is_losing } = region.memory().header(number);
        // One without frames goes back at once.
        if frames > 0 {
            let first = ring::frames(&buffer).ok().and_then(|mut frames| frames.next()?.ok());
            // What the kernel calls the time of the first frame is when it opened the block.
            let first_ns = first.map_or(opened_ns, |frame| frame.captured);
            return Some(Block { buffer, frames, first_ns, sequence, is_losing });
        }
    }
}
