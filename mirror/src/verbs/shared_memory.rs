//! Memory that the other side of a connection writes into.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use rdma_sys as sys;

use super::error::CallError;
use super::memory::{ProtectionDomain, Region};
use super::request::Remote;

/// Memory that the other side of a connection may write at any time. So it is read by copies, which may be torn; that the other side has
/// written all is said by the completion of a write with immediate data.
#[derive(Debug, Clone)]
pub struct SharedMemory(Arc<Region>);

impl SharedMemory {
    /// Allocates zeroed memory of `length` bytes.
    ///
    /// # Errors
    /// Fails if there is no memory, if `length` is 0, or as `ibv_reg_mr` fails.
    pub fn new(domain: &ProtectionDomain, length: usize) -> Result<Self, CallError> {
        let access = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        Region::new(domain, length, access).map(|region| Self(Arc::new(region)))
    }

    /// Where it is, for the other side.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote { address: self.0.start().as_ptr().addr() as u64, key: self.0.remote_key() }
    }

    /// Copies from it, from the byte `at` on.
    ///
    /// # Errors
    /// Fails if the range is not within it.
    pub fn read(&self, at: usize, into: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(into.len()).filter(|end| *end <= self.0.length());
        end.ok_or(io::ErrorKind::InvalidInput)?;
        // What the completion has told of is seen by what follows.
        fence(Ordering::Acquire);
        for (place, byte) in (at..).zip(into) {
            // SAFETY: the place is within the region, all of which is initialized, and which the device writes by itself only; there are no
            // references into it.
            *byte = unsafe { AtomicU8::from_ptr(self.0.start().as_ptr().add(place)) }.load(Ordering::Relaxed);
        }
        Ok(())
    }
}
