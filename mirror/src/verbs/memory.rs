//! Registered memory, and the domain that it belongs to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::mem::forget;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use rdma_sys as sys;

use super::context::Context;
use super::error::{CallError, made};
use super::external::{ExternalMemory, Loan};

const REGISTER: &str = "ibv_reg_mr";

/// A protection domain: queue pairs reach memory of their own domain only. Copies are of the same one.
#[derive(Debug, Clone)]
pub struct ProtectionDomain(Arc<Domain>);

#[derive(Debug)]
struct Domain {
    raw: NonNull<sys::ibv_pd>,
    /// Kept open.
    _context: Context,
}

// SAFETY: a domain is a number, and calls on it may come from any thread.
unsafe impl Send for Domain {}
// SAFETY: and from several at a time.
unsafe impl Sync for Domain {}

impl ProtectionDomain {
    /// Allocates a domain.
    ///
    /// # Errors
    /// As `ibv_alloc_pd` fails.
    pub fn new(context: &Context) -> Result<Self, CallError> {
        // SAFETY: the context is open.
        let raw = made("ibv_alloc_pd", unsafe { sys::ibv_alloc_pd(context.raw()) })?;
        Ok(Self(Arc::new(Domain { raw, _context: context.clone() })))
    }

    /// Allocates zeroed memory of `length` bytes, which queue pairs of this domain can send from and receive into. The other side of a
    /// connection cannot reach it by itself.
    ///
    /// # Errors
    /// Fails if there is no memory, if `length` is 0, or as `ibv_reg_mr` fails.
    pub fn buffer(&self, length: usize) -> Result<Buffer, CallError> {
        let region = Region::new(self, length, sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE)?;
        Ok(Buffer { region: Arc::new(region), start: 0, length, capacity: length, loan: None })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_pd {
        self.0.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: whatever was made of it keeps it, and is gone.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// A memory region: registered memory, and what it is registered as.
#[derive(Debug)]
pub(super) struct Region {
    raw: NonNull<sys::ibv_mr>,
    start: NonNull<u8>,
    length: usize,
    memory: Memory,
    /// Kept until it is deregistered.
    _domain: ProtectionDomain,
}

/// Where the memory of a region comes from.
#[derive(Debug)]
enum Memory {
    /// It was allocated with this layout, and goes with the region.
    Allocated(Layout),
    /// It is its owner's, which is kept until the region is deregistered.
    External(Arc<dyn ExternalMemory>),
}

// SAFETY: who may touch the memory, those who share a region know.
unsafe impl Send for Region {}
// SAFETY: the same; the fields do not change.
unsafe impl Sync for Region {}

impl Region {
    pub(super) fn new(
        domain: &ProtectionDomain,
        length: usize,
        access: sys::ibv_access_flags,
    ) -> Result<Self, CallError> {
        const PAGE: usize = 4096;
        let invalid = || CallError::new(REGISTER, io::ErrorKind::InvalidInput);
        let layout = Layout::from_size_align(length, PAGE).ok().filter(|_| length > 0).ok_or_else(invalid)?;
        // SAFETY: the length is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let start = start.ok_or_else(|| CallError::new(REGISTER, io::ErrorKind::OutOfMemory))?;
        // SAFETY: the memory stays where it is until the region is deregistered.
        match unsafe { register(domain, start, length, access) } {
            Ok(raw) => Ok(Self { raw, start, length, memory: Memory::Allocated(layout), _domain: domain.clone() }),
            Err(error) => {
                // SAFETY: it was allocated with this layout, and nobody has it.
                unsafe { dealloc(start.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    /// Registers memory of another owner, which the device may read only.
    pub(super) fn external(domain: &ProtectionDomain, owner: Arc<dyn ExternalMemory>) -> Result<Self, CallError> {
        let range = owner.range();
        let (start, length) = (range.cast::<u8>(), range.len());
        // SAFETY: the memory stays where it is for as long as its owner lives, which the region keeps.
        let raw = unsafe { register(domain, start, length, sys::ibv_access_flags(0)) }?;
        Ok(Self { raw, start, length, memory: Memory::External(owner), _domain: domain.clone() })
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: it is registered.
        unsafe { self.raw.as_ref() }.lkey
    }

    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: it is registered.
        unsafe { self.raw.as_ref() }.rkey
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: each buffer of it keeps it, also those that a queue pair has, so nothing uses it any more.
        let is_deregistered = unsafe { sys::ibv_dereg_mr(self.raw.as_ptr()) } == 0;
        match &self.memory {
            // SAFETY: it was allocated with this layout, and nobody has it.
            Memory::Allocated(layout) if is_deregistered => unsafe { dealloc(self.start.as_ptr(), *layout) },
            Memory::External(_) if is_deregistered => {}
            // The device may still know the memory, which must not become somebody else's.
            Memory::Allocated(_) => {}
            Memory::External(owner) => forget(Arc::clone(owner)),
        }
    }
}

/// # Safety
/// The memory must stay where it is until it is deregistered.
unsafe fn register(
    domain: &ProtectionDomain,
    start: NonNull<u8>,
    length: usize,
    access: sys::ibv_access_flags,
) -> Result<NonNull<sys::ibv_mr>, CallError> {
    // SAFETY: the domain exists, and the caller vouches for the memory.
    let raw = unsafe { sys::ibv_reg_mr(domain.raw(), start.as_ptr().cast(), length, access.0.cast_signed()) };
    made(REGISTER, raw)
}

/// A range of registered memory that nobody else has.
///
/// Posting a buffer hands it over; its completion brings it back. So nobody reads memory that the device is writing:
///
/// ```compile_fail,E0382
/// # use sluice_mirror::verbs::{Buffer, QueuePair, ReceiveRequest};
/// fn peek(pair: &QueuePair, buffer: Buffer) -> u8 {
///     let posted = pair.receive(vec![ReceiveRequest { tag: 0, buffers: vec![buffer] }]);
///     // The device may be writing here.
///     buffer[0]
/// }
/// ```
#[derive(Debug)]
pub struct Buffer {
    region: Arc<Region>,
    start: usize,
    length: usize,
    /// Bytes that it has from its start on; the length is at most this.
    capacity: usize,
    /// Kept by all parts of a piece of memory that is lent by its owner.
    loan: Option<Arc<Loan>>,
}

impl Buffer {
    /// A range of a region, which must be within it and nobody else's for as long as the loan lasts.
    pub(super) fn lent(region: &Arc<Region>, range: Range<usize>, loan: Loan) -> Self {
        let (region, loan) = (Arc::clone(region), Some(Arc::new(loan)));
        Self { region, start: range.start, length: range.len(), capacity: range.len(), loan }
    }

    /// Takes the first `at` bytes out of it, as a buffer of its own; all of it if it has fewer.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Self {
        let at = at.min(self.length);
        let (region, loan) = (Arc::clone(&self.region), self.loan.clone());
        let front = Self { region, start: self.start, length: at, capacity: at, loan };
        self.start += at;
        self.length -= at;
        self.capacity -= at;
        front
    }

    /// Shortens what is sent of it to so many bytes, if it has more. [`Buffer::restore`] takes that back.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Makes it as long as it was before [`Buffer::truncate`].
    pub fn restore(&mut self) {
        self.length = self.capacity;
    }

    /// As a segment of a work request.
    pub(super) fn segment(&self) -> Result<sys::ibv_sge, CallError> {
        let too_long = |_| CallError::new("ibv_post", io::ErrorKind::InvalidInput);
        let length = u32::try_from(self.length).map_err(too_long)?;
        Ok(sys::ibv_sge { addr: self.as_ptr().addr() as u64, length, lkey: self.region.local_key() })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is within the region and initialized; no other buffer has it, and no device writes into it, since whoever
        // posts a buffer owns it.
        unsafe { slice::from_raw_parts(self.region.start().as_ptr().add(self.start), self.length) }
    }
}

impl DerefMut for Buffer {
    /// Memory of another owner, such as a block of a packet ring, is not for writing: as a mutable slice it is empty.
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.loan.is_some() {
            return &mut [];
        }
        // SAFETY: as above, and nobody else borrows this buffer.
        unsafe { slice::from_raw_parts_mut(self.region.start().as_ptr().add(self.start), self.length) }
    }
}
