//! The slots of the device: one for each rule, with its counters and what it does.
//!
//! A slot never moves, so that packets count in it without a lock and a reader walks all of them in order. A slot is
//! given to another rule only after every packet that could count on the old one is through.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_flow::backend::{Handle, Placement};
use sluice_flow::counters::{Counters, Reading};
use sluice_flow::flow::Flow;
use sluice_flow::table::{FlowId, Generation};
use sluice_flow::time::Timestamp;

use crate::chunks::Chunks;
use crate::free_list::FreeList;
use crate::programs::ProgramId;

/// At most half of such a chunk is made in vain, on average: half a byte a rule of a million.
const CHUNKS: Chunks = Chunks { first: 1024, doubling: 16_384, further: 16_384 };
/// Slots that there can be at most.
pub(crate) const CAPACITY: u32 = 1 << 28;
/// Lists of free slots, so that workers do not meet at one lock.
const FREE_LISTS: usize = 16;

/// All slots.
pub(crate) struct Rules {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    /// Slots from here on were never used.
    fresh: AtomicU32,
    free: [Mutex<FreeList>; FREE_LISTS],
}

/// A place for one rule: a cache line.
#[repr(align(64))]
#[derive(Default)]
pub(crate) struct Slot {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// When the last packet came, in nanoseconds and one more; 0 for never.
    used: AtomicU64,
    id: AtomicU64,
    /// Read now and then, and never by packets, so that a lock is cheaper than what lets readers in without one.
    flow: Mutex<Held>,
    generation: AtomicU32,
    program: AtomicU32,
    /// Odd while a rule is in the slot; counts up with every coming and going.
    life: AtomicU32,
    tcp_flags: AtomicU16,
    in_software: AtomicBool,
}

/// A flow, if there is one. Aligned as what lies around it, so that a slot is a cache line.
#[derive(Default)]
#[repr(Rust, packed(4))]
struct Held(Option<Flow>);

/// A flow and what its rule does. Rules of many flows do the same.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) flow: Flow,
    pub(crate) program: ProgramId,
}

/// A packet as a rule counts it.
#[derive(Clone, Copy)]
pub(crate) struct Count {
    pub(crate) bytes: u64,
    pub(crate) at: Timestamp,
    pub(crate) tcp_flags: u16,
}

impl Slot {
    /// What the rule does.
    pub(crate) fn program(&self) -> ProgramId {
        ProgramId(self.program.load(Ordering::Acquire))
    }

    /// The flow whose rule is in the slot.
    pub(crate) fn flow(&self) -> Option<Flow> {
        self.flow.lock().get()
    }

    /// What the flow is called.
    pub(crate) fn flow_id(&self) -> FlowId {
        unpack(self.id.load(Ordering::Relaxed))
    }

    /// Counts one packet.
    pub(crate) fn count(&self, count: Count) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(count.bytes, Ordering::Relaxed);
        let used = count.at.0.saturating_add(1);
        if self.used.load(Ordering::Relaxed) < used {
            self.used.fetch_max(used, Ordering::Relaxed);
        }
        let flags = count.tcp_flags;
        if self.tcp_flags.load(Ordering::Relaxed) & flags != flags {
            self.tcp_flags.fetch_or(flags, Ordering::Relaxed);
        }
    }

    /// Lets the rule do something else, as the flow now says; what it was and did comes back. Counters go on.
    pub(crate) fn replace(&self, rule: Rule) -> Option<Rule> {
        let flow = self.flow.lock().swap(Some(rule.flow))?;
        Some(Rule { flow, program: ProgramId(self.program.swap(rule.program.0, Ordering::AcqRel)) })
    }

    /// Where the rule counts as being.
    pub(crate) fn placement(&self) -> Placement {
        if self.in_software.load(Ordering::SeqCst) { Placement::Software } else { Placement::Hardware }
    }

    /// Has the rule be there. Says whether it was not before.
    pub(crate) fn place(&self, placement: Placement) -> bool {
        let in_software = placement != Placement::Hardware;
        self.in_software.swap(in_software, Ordering::SeqCst) != in_software
    }

    /// The counters since the rule was installed.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            used: self.used.load(Ordering::Relaxed).checked_sub(1).map(Timestamp),
            tcp_flags: self.tcp_flags.load(Ordering::Relaxed),
        }
    }

    /// The reading of the rule that is in the slot, unless there is none or it comes or goes right now.
    pub(crate) fn reading(&self) -> Option<Reading> {
        let life = self.life.load(Ordering::SeqCst);
        if !is_live(life) {
            return None;
        }
        // Stores before a change of `life` are seen with it, so what is read between two equal values is of one life.
        let flow = unpack(self.id.load(Ordering::SeqCst));
        let installed_as = Generation(self.generation.load(Ordering::SeqCst));
        let counters = Counters {
            packets: self.packets.load(Ordering::SeqCst),
            bytes: self.bytes.load(Ordering::SeqCst),
            used: self.used.load(Ordering::SeqCst).checked_sub(1).map(Timestamp),
            tcp_flags: self.tcp_flags.load(Ordering::SeqCst),
        };
        (self.life.load(Ordering::SeqCst) == life).then_some(Reading { flow, installed_as, counters })
    }
}

impl Held {
    fn get(&mut self) -> Option<Flow> {
        let flow = self.swap(None);
        self.swap(flow.clone());
        flow
    }

    fn swap(&mut self, flow: Option<Flow>) -> Option<Flow> {
        let Self(before) = std::mem::replace(self, Self(flow));
        before
    }
}

impl Rules {
    pub(crate) fn new() -> Self {
        Self {
            chunks: (0..CHUNKS.needed(CAPACITY)).map(|_| OnceLock::new()).collect(),
            fresh: AtomicU32::new(0),
            free: Default::default(),
        }
    }

    /// The slot of an index that was handed out.
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        let (chunk, offset) = CHUNKS.place(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Takes a slot for a rule, which comes back if there are too many. The rule is not read before [`Rules::publish`].
    /// `hint` spreads callers over the free lists.
    pub(crate) fn take(&self, hint: usize, flow: FlowId, installed_as: Generation, rule: Rule) -> Result<u32, Rule> {
        let Some((index, slot)) = self.free_slot(hint).and_then(|index| Some((index, self.slot(index)?))) else {
            return Err(rule);
        };
        // A reader that sees one of these sees as well that the life before is over, for that was said earlier.
        slot.packets.store(0, Ordering::Release);
        slot.bytes.store(0, Ordering::Release);
        slot.used.store(0, Ordering::Release);
        slot.tcp_flags.store(0, Ordering::Release);
        slot.id.store(pack(flow), Ordering::Release);
        slot.generation.store(installed_as.0, Ordering::Release);
        slot.flow.lock().swap(Some(rule.flow));
        slot.program.store(rule.program.0, Ordering::Release);
        Ok(index)
    }

    fn free_slot(&self, hint: usize) -> Option<u32> {
        if let Some(index) = self.free[hint % FREE_LISTS].lock().pop() {
            return Some(index);
        }
        for other in &self.free {
            if let Some(index) = other.try_lock().and_then(|mut list| list.pop()) {
                return Some(index);
            }
        }
        let one_more = |fresh: u32| (fresh < CAPACITY).then(|| fresh + 1);
        let index = self.fresh.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        let (chunk, _) = CHUNKS.place(index);
        self.chunks[chunk].get_or_init(|| (0..CHUNKS.length(chunk)).map(|_| Slot::default()).collect());
        Some(index)
    }

    /// Lets readers see the rule, and gives it a name that no other rule ever had.
    pub(crate) fn publish(&self, index: u32) -> Option<Handle> {
        let life = self.slot(index)?.life.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        Some(handle(index, life))
    }

    /// The slot that a handle names, if its rule is still there.
    pub(crate) fn find(&self, handle: Handle) -> Option<(u32, &Slot)> {
        let (index, life) = parts(handle);
        let slot = self.slot(index)?;
        (is_live(life) && slot.life.load(Ordering::SeqCst) == life).then_some((index, slot))
    }

    /// Takes the rule away from everybody else who may want to remove it, and from readers. Only one succeeds.
    pub(crate) fn claim(&self, handle: Handle) -> Option<(u32, &Slot)> {
        let (index, slot) = self.find(handle)?;
        let (_, life) = parts(handle);
        let claimed = slot.life.compare_exchange(life, life.wrapping_add(1), Ordering::SeqCst, Ordering::SeqCst);
        claimed.is_ok().then_some((index, slot))
    }

    /// Gives back a slot that nothing refers to any more: never published, or claimed and unlinked.
    pub(crate) fn free(&self, hint: usize, index: u32) -> Option<Rule> {
        let slot = self.slot(index)?;
        let (program, flow) = (slot.program(), slot.flow.lock().swap(None));
        self.free[hint % FREE_LISTS].lock().push(index);
        Some(Rule { flow: flow?, program })
    }

    /// Every slot that was ever used, in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let used = self.fresh.load(Ordering::SeqCst);
        let chunks = self.chunks.iter().map_while(OnceLock::get).flatten();
        (0..used).zip(chunks)
    }

    /// The handle of the rule that is in a slot.
    pub(crate) fn handle_of(&self, index: u32) -> Option<Handle> {
        let life = self.slot(index)?.life.load(Ordering::SeqCst);
        is_live(life).then(|| handle(index, life))
    }
}

fn is_live(life: u32) -> bool {
    life % 2 == 1
}

fn handle(index: u32, life: u32) -> Handle {
    Handle(u64::from(life) << 32 | u64::from(index))
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of the number")]
fn parts(handle: Handle) -> (u32, u32) {
    (handle.0 as u32, (handle.0 >> 32) as u32)
}

fn pack(flow: FlowId) -> u64 {
    u64::from(flow.incarnation) << 32 | u64::from(flow.slot)
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of the number")]
fn unpack(flow: u64) -> FlowId {
    FlowId { slot: flow as u32, incarnation: (flow >> 32) as u32 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use sluice_flow::key::{MaskedKey, Match};
    use sluice_flow::ufid::Seed;
    use sluice_flow::{Expiry, Flow, Priority};

    fn rule() -> Rule {
        let matching = MaskedKey::new(&Match::default());
        let flow = Flow::new(None, matching, Arc::from([]), Priority::default(), Expiry::default(), &Seed([0; 16]));
        Rule { program: ProgramId(0), flow }
    }

    #[test]
    fn a_slot_is_a_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    #[test]
    fn a_handle_dies_with_its_rule_and_names_no_other() {
        let rules = Rules::new();
        let flow = FlowId { slot: 7, incarnation: 3 };
        let rule = rule();
        let index = rules.take(0, flow, Generation(5), rule.clone()).ok().unwrap();
        assert_eq!(rules.slots().filter_map(|(_, slot)| slot.reading()).count(), 0, "not yet published");
        let handle = rules.publish(index).unwrap();
        rules.slot(index).unwrap().count(Count { bytes: 60, at: Timestamp(0), tcp_flags: 2 });
        let reading = rules.slot(index).unwrap().reading().unwrap();
        assert_eq!((reading.flow, reading.installed_as), (flow, Generation(5)));
        assert_eq!(
            reading.counters,
            Counters { packets: 1, bytes: 60, used: Some(Timestamp(0)), tcp_flags: 2 },
            "time zero is a time"
        );
        assert!(rules.claim(handle).is_some());
        assert!(rules.claim(handle).is_none(), "only one can remove it");
        rules.free(0, index);
        let again = rules.take(0, flow, Generation(6), rule).ok().unwrap();
        assert_eq!(again, index, "the slot is used again");
        assert_ne!(rules.publish(again), Some(handle));
        assert!(rules.find(handle).is_none());
    }
}
