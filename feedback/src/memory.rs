//! Memory that two processes map: made, sealed, looked at before it is trusted, and mapped.
//!
//! It cannot shrink, so that no reader dies of `SIGBUS`, and whatever is in it is read and written as atomic words.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::{self, MAGIC, PART, RECORD, VERSION, header, length};

/// What a memory must be sealed with. Without the first whoever holds it could cut it short under its readers.
pub const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// `TMPFS_MAGIC`. Memory of huge pages has seals as well, and may have too few pages when it is touched.
const TMPFS: u64 = 0x0102_1994;

/// Why a memory is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum Refusal {
    /// Not a memfd with [`SEALS`].
    #[error("it is no memfd that is sealed against shrinking, growing and further seals")]
    Seals = 1,
    /// Not as long as its header says, or as no memory is.
    #[error("its length is not that of its header")]
    Length = 2,
    /// It does not begin with [`MAGIC`].
    #[error("it does not begin as it should")]
    Magic = 3,
    /// Of another version.
    #[error("it is of another version")]
    Version = 4,
    /// Records of another size, or slots that are no power of two.
    #[error("its records are not as they should be")]
    Shape = 5,
    /// The kernel does not map it.
    #[error("it cannot be mapped")]
    Map = 6,
    /// No file came with the message.
    #[error("no memory came with the message")]
    None = 7,
}

impl Refusal {
    /// The reverse of its number.
    pub fn of(number: u32) -> Option<Self> {
        let all = [Self::Seals, Self::Length, Self::Magic, Self::Version, Self::Shape, Self::Map, Self::None];
        all.into_iter().find(|refusal| *refusal as u32 == number)
    }
}

/// What the header says, read once: it may be anything a moment later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Flows that the memory is for.
    pub capacity: usize,
    /// Records that there is room for, a power of two.
    pub slots: usize,
    /// Told apart from every other memory by it.
    pub epoch: u64,
}

/// Makes a memory, seals it and writes its header.
pub(crate) fn create(shape: Shape) -> io::Result<OwnedFd> {
    let file = memfd_create("sluice-ovs-feedback", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, length(shape.slots) as u64)?;
    fcntl_add_seals(&file, SEALS)?;
    let region = Region::map(file.as_fd(), 0, PART, true)?;
    let words = region.words();
    words[header::VERSION].store(VERSION, Ordering::Relaxed);
    words[header::RECORD].store(RECORD as u64, Ordering::Relaxed);
    words[header::CAPACITY].store(shape.capacity as u64, Ordering::Relaxed);
    words[header::SLOTS].store(shape.slots as u64, Ordering::Relaxed);
    words[header::EPOCH].store(shape.epoch, Ordering::Relaxed);
    words[header::MAGIC].store(MAGIC, Ordering::Release);
    Ok(file)
}

/// Says what a memory that came from elsewhere is, or why it is not to be used.
///
/// Seals come first: to ask for them never waits, whatever kind of file it is.
pub(crate) fn inspect(file: BorrowedFd<'_>) -> Result<Shape, Refusal> {
    let seals = fcntl_get_seals(file).map_err(|_| Refusal::Seals)?;
    #[allow(clippy::unnecessary_cast, reason = "the type is the machine's")]
    let is_memory = fstatfs(file).is_ok_and(|status| status.f_type as u64 == TMPFS);
    if !seals.contains(SEALS) || !is_memory {
        return Err(Refusal::Seals);
    }
    let size = fstat(file).ok().and_then(|status| usize::try_from(status.st_size).ok()).ok_or(Refusal::Length)?;
    if size <= layout::RECORDS {
        return Err(Refusal::Length);
    }
    let region = Region::map(file, 0, PART, false).map_err(|_| Refusal::Map)?;
    let mut words = [0; header::WORDS];
    for (word, shared) in words.iter_mut().zip(region.words()) {
        *word = shared.load(Ordering::Relaxed);
    }
    let [magic, version, record, capacity, slots, epoch] = words;
    let number = |word: u64| usize::try_from(word).map_err(|_| Refusal::Shape);
    let shape = Shape { capacity: number(capacity)?, slots: number(slots)?, epoch };
    if magic != MAGIC {
        Err(Refusal::Magic)
    } else if version != VERSION {
        Err(Refusal::Version)
    } else if record != RECORD as u64 || !shape.slots.is_power_of_two() || shape.slots > layout::MAX_SLOTS {
        Err(Refusal::Shape)
    } else if size != length(shape.slots) {
        Err(Refusal::Length)
    } else {
        Ok(shape)
    }
}

/// A part of a memory, mapped.
pub(crate) struct Region {
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: it is memory of the process until it is dropped, and atomic words may be used by all threads.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` bytes from `offset` on, both multiples of [`PART`] or the memory's end. The file must be sealed against shrinking and
    /// as long as that.
    ///
    /// Of a region that is not writable words may only be loaded, `Relaxed`: that is what loads of read-only memory may be.
    pub(crate) fn map(file: BorrowedFd<'_>, offset: usize, bytes: usize, is_writable: bool) -> io::Result<Self> {
        let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses a place where nothing is.
        let base = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, offset as u64) }?;
        let words = NonNull::new(base.cast()).ok_or(io::Errno::FAULT)?;
        Ok(Self { words, count: bytes / 8 })
    }

    /// Its words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped until this is dropped, on the border of a page, and the file behind them cannot shrink. Others
        // write them at any time, which is what atomics are for.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and what borrowed its words is gone.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), self.count * 8) };
    }
}
