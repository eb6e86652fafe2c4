//! Slots without a life.

use super::arena::Arena;
use super::index::SHARDS;
use super::sync::Mutex;
use crate::ufid::Ufid;

/// Free slots of which a list gives some away.
const MANY: usize = 64;

/// Slots for which a list keeps memory, however few it has.
const FEW: usize = 256;

/// Several lists, only so that not all callers want the same one. At most one of their locks is held at a time.
pub(super) struct FreeSlots([Mutex<Vec<u32>>; SHARDS]);

impl FreeSlots {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }

    /// A slot for a flow. More are made only once no list has many: which flows come and go is chance, and each list would
    /// grow with its own longest run of it.
    pub(super) fn take(&self, ufid: Ufid, arena: &Arena) -> Option<u32> {
        let own = list_of(ufid);
        let known = pop(&mut self.0[own].lock());
        known.or_else(|| self.take_from_others(own, MANY)).or_else(|| {
            let Some(made) = arena.grow() else { return self.take_from_others(own, 1) };
            let mut list = self.0[own].lock();
            list.extend(made.rev());
            list.pop()
        })
    }

    /// The slot of a flow whose life is over.
    pub(super) fn give_back(&self, ufid: Ufid, slot: u32) {
        self.0[list_of(ufid)].lock().push(slot);
    }

    /// Moves half of the first list that has so many.
    fn take_from_others(&self, own: usize, many: usize) -> Option<u32> {
        let mut taken = (1..SHARDS).find_map(|further| {
            let mut other = self.0[(own + further) % SHARDS].lock();
            let left = other.len() / 2;
            (other.len() >= many).then(|| other.split_off(left))
        })?;
        let slot = taken.pop();
        self.0[own].lock().append(&mut taken);
        slot
    }
}

/// Takes the last slot out. The list gives memory back once it needs a quarter of what it has: all flows may go, and others come.
fn pop(list: &mut Vec<u32>) -> Option<u32> {
    let slot = list.pop();
    if list.capacity() / 4 > list.len().max(FEW) {
        list.shrink_to(list.len() * 2);
    }
    slot
}

/// Slots are reused by flows whose UFIDs agree in some bits.
const fn list_of(ufid: Ufid) -> usize {
    (ufid.0 >> 32) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_many_slots_that_are_used_again_gives_its_memory_back() {
        let mut list: Vec<u32> = (0..10_000).collect();
        for slot in (0..10_000).rev() {
            assert_eq!(pop(&mut list), Some(slot));
            assert!(list.capacity() <= 4 * list.len().max(FEW) + 3, "{} for {}", list.capacity(), list.len());
        }
        assert_eq!(pop(&mut list), None);
    }
}
