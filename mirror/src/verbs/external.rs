//! Memory that is not allocated here, and that its owner lends piece by piece: the ring of a packet socket, which the kernel fills.

use std::fmt::Debug;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::error::CallError;
use super::memory::{Buffer, ProtectionDomain, Region};

/// Memory of another owner, of which pieces can be lent.
///
/// # Safety
/// - [`range`](Self::range) is the same each time, and stays mapped and initialized until the value is dropped.
/// - A piece that [`lend`](Self::lend) has returned is within the range, and nobody writes its bytes until [`take_back`](Self::take_back)
///   is called with its number. Until then no other piece overlaps with it.
pub(crate) unsafe trait ExternalMemory: Debug + Send + Sync {
    /// All of the memory.
    fn range(&self) -> NonNull<[u8]>;

    /// Lends the next piece; `None` if there is none now.
    fn lend(&self) -> Option<Piece>;

    /// Takes a piece back: no buffer of it is left.
    fn take_back(&self, number: usize);
}

/// A piece of external memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The owner's number for it.
    pub(crate) number: usize,
    /// Its place in the memory.
    pub(crate) range: Range<usize>,
}

/// External memory that is registered, so that queue pairs can send from it. The device never writes into it.
#[derive(Debug)]
pub(crate) struct ExternalRegion<M> {
    region: Arc<Region>,
    memory: Arc<M>,
}

impl<M: ExternalMemory + 'static> ExternalRegion<M> {
    /// Registers memory, which lives at least as long as the region and the buffers of it.
    ///
    /// # Errors
    /// As `ibv_reg_mr` fails.
    pub(crate) fn register(domain: &ProtectionDomain, memory: M) -> Result<Self, CallError> {
        let memory = Arc::new(memory);
        let region = Arc::new(Region::external(domain, memory.clone())?);
        Ok(Self { region, memory })
    }

    /// The owner of the memory.
    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the next piece that the owner lends as a buffer, which can be read and sent, with its number. The owner takes the piece back when the buffer, or the last
    /// part of it, is dropped, be that by the program or by a queue pair that ends.
    pub(crate) fn lend(&self) -> Option<(usize, Buffer)> {
        let Piece { number, range } = self.memory.lend()?;
        let loan = Loan { memory: self.memory.clone(), number };
        Some((number, Buffer::lent(&self.region, range, loan)))
    }
}

/// A piece that is lent, until this is dropped.
#[derive(Debug)]
pub(super) struct Loan {
    memory: Arc<dyn ExternalMemory>,
    number: usize,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.memory.take_back(self.number);
    }
}
