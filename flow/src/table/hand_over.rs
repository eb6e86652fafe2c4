//! From a change to what is wanted to a worker's look at it. See [`queue`] for how.

use super::arena::Arena;
use super::queue::{self, Links, LookQueue, Pushed, Reader};
use super::sync::AtomicU32;
use super::{Accepted, FlowTable};
use crate::id::FlowId;

impl FlowTable {
    /// Has the reader of a queue look at a flow. A flow must always be handed to the queue that its slot picks. Takes no
    /// lock, allocates nothing and makes no system call.
    #[inline]
    pub fn hand_over(&self, accepted: Accepted, queue: &LookQueue) -> Pushed {
        queue.push(&self.arena, accepted.flow.slot, accepted.lane)
    }

    /// The next flow that a reader shall look at: the slot's present life, or the name of one that is still to come. Takes no lock, and
    /// begins to load what a look reads: who takes several before the first look waits for memory once.
    pub fn take(&self, reader: &mut Reader) -> Option<FlowId> {
        self.arena.prepare(reader.take(&self.arena)?)
    }

    /// What to hand over so that a flow is looked at again, though nothing else is wanted of it; `None` if it is gone.
    pub fn look_again(&self, id: FlowId) -> Option<Accepted> {
        self.with_life(id, |life| Accepted { flow: id, lane: life.lane() })
    }

    /// Shows every slot that is in a queue. Walks four bytes per slot that was ever used.
    pub fn visit_queued(&self, visit: &mut dyn FnMut(u32)) {
        for (slot, link) in self.arena.links() {
            if queue::is_queued(link) {
                visit(slot);
            }
        }
    }
}

impl Links for Arena {
    #[inline]
    fn link(&self, slot: u32) -> Option<&AtomicU32> {
        self.link_of(slot)
    }
}
