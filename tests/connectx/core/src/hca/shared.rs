//! Receive queues that several queue pairs share (RMP): lists of buffers in a linked list, of which each names the one behind it (PRM,
//! "Linked List WQ").

use super::ring::Ring;
use super::scatter::{self, Buffer};
use super::state::Hca;
use crate::memory::{Memory, read_u32};

/// A receive queue that is shared.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    ring: Ring,
    doorbell_record: u64,
    /// The entry that is next, and how many have been taken.
    head: u16,
    taken: u16,
}

impl SharedReceives {
    pub(super) fn new(ring: Ring, doorbell_record: u64) -> Self {
        Self { ring, doorbell_record, head: 0, taken: 0 }
    }
}

impl Hca {
    /// Takes the next list of buffers of a shared queue and its place, if one is posted.
    pub(super) fn take_shared(
        &mut self,
        memory: &dyn Memory,
        number: u32,
    ) -> Result<Option<(u16, Vec<Buffer>)>, String> {
        const NEXT: usize = 2;
        const BUFFERS: usize = 16;
        let missing = || format!("there is no RMP {number:#x}");
        let queue = self.queues.shared.get_mut(&number).ok_or_else(missing)?;
        let posted = read_u32(memory, queue.doorbell_record).map_err(|fault| fault.to_string())?;
        if u32::from(queue.taken) == posted & 0xffff {
            return Ok(None);
        }
        let mut entry = vec![0; queue.ring.stride()];
        memory.read(queue.ring.address(queue.head.into()), &mut entry).map_err(|fault| fault.to_string())?;
        let index = queue.head;
        queue.head = u16::from_be_bytes([entry[NEXT], entry[NEXT + 1]]);
        queue.taken = queue.taken.wrapping_add(1);
        Ok(Some((index, scatter::buffers(&entry[BUFFERS..]))))
    }
}
