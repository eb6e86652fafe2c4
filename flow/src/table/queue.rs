//! The queue of one worker: which slots it shall look at.
//!
//! Many callers hand slots over, one [`Reader`] takes them. The queue is intrusive: a slot has one [link](Links) per table,
//! an atomic number that says "in no queue", "last", or which slot comes next. So it allocates nothing, takes no lock, holds
//! each slot at most once, and cannot outgrow the table.
//!
//! It is Dmitry Vyukov's intrusive queue for many producers and one consumer, with slot numbers for pointers:
//!
//! 1. **Mark.** The caller exchanges the slot's link from "in no queue" to "last". If that fails, the slot is in the queue
//!    already and the look that is to come will do. What the look reads lies under a lock that the caller held before, and
//!    the reader makes the link "in no queue" before it takes that lock: so a look follows every change.
//! 2. **Append.** The caller swaps the slot into the tail and links it behind what was there. Between the two the rest of
//!    the list cannot be reached; the reader takes the queue for empty until the link is there.
//! 3. **Take.** The reader follows the links from its head. A slot leaves when there is one behind it; behind the last one
//!    the reader appends the list's stub, a node of its own, first.
//! 4. **Sleep.** A reader that finds all lists empty exchanges their tails from "stub" to "stub, and the reader sleeps". A
//!    caller learns from its own swap of the tail that it must wake the reader. One exchange decides who was first, so that
//!    no wake-up is lost and none is sent to a reader that is awake; no fence and no further flag is needed.
//!
//! A slot belongs to one queue for good (the owner picks it by slot), for a slot may be in a queue while its life ends and
//! the next begins: the look then concerns the next, which harms nobody.
//!
//! Slots go into one of three [lanes](Lane), so that removals need not wait behind everything that was added before, and what
//! is only tried again does not stand in front of what is new.

use std::sync::Arc;

use super::sync::{AtomicU32, Ordering};

/// Where the links of slots are.
pub trait Links {
    /// The link of a slot that was given out. It begins as 0 and is changed by the queue alone.
    fn link(&self, slot: u32) -> Option<&AtomicU32>;
}

/// A link: in no queue.
const IDLE: u32 = 0;
/// A link: in a queue, and nothing is behind it, or nothing yet.
const LAST: u32 = 1;
/// A link or a tail: the list's stub.
pub(super) const STUB: u32 = 2;
/// A tail: the list's stub, and the reader sleeps.
const ASLEEP: u32 = 3;
/// A link or a tail: slot 0; the others follow.
const FIRST_SLOT: u32 = 4;

/// What a slot shall be looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A flow that is no longer wanted. Removals go before changes, but not without end.
    Removal,
    /// Everything that is newly wanted.
    Change,
    /// A flow that is tried again although nothing else is wanted of it. Retries go after changes, but not without end.
    Retry,
}

/// What became of a slot that was handed over.
#[must_use = "a reader that sleeps must be woken"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the queue already, in whichever lane.
    AlreadyThere,
    /// It is in the queue now.
    Queued,
    /// It is in the queue now, and the reader sleeps: who gets this answer wakes it.
    ReaderSleeps,
}

/// The end of a queue that callers share.
pub struct LookQueue {
    removals: List,
    changes: List,
    retries: List,
}

/// The end of a queue that its worker has for itself.
pub struct Reader {
    queue: Arc<LookQueue>,
    removals: Head,
    changes: Head,
    retries: Head,
    /// Removals taken since the last change.
    in_a_row: u32,
    /// Changes taken since retries last had their turn.
    changes_in_a_row: u32,
}

/// On cache lines of its own, as every caller writes its tail.
#[repr(align(128))]
pub(super) struct List {
    tail: AtomicU32,
    stub: AtomicU32,
}

/// The node that is taken next, or the stub before it.
pub(super) struct Head(u32);

impl LookQueue {
    /// Removals that are taken before a change has its turn.
    pub const REMOVALS_IN_A_ROW: u32 = 3;
    /// Changes that are taken before a retry has its turn.
    pub const CHANGES_IN_A_ROW: u32 = 15;

    /// An empty queue.
    pub fn new() -> (Arc<Self>, Reader) {
        let queue = Arc::new(Self { removals: List::new(), changes: List::new(), retries: List::new() });
        let [removals, changes, retries] = std::array::from_fn(|_| Head::new());
        let reader = Reader { queue: queue.clone(), removals, changes, retries, in_a_row: 0, changes_in_a_row: 0 };
        (queue, reader)
    }

    /// Has the reader look at a slot. What the look shall find must have been written before, under the lock that the look
    /// takes.
    #[inline]
    pub fn push(&self, links: &impl Links, slot: u32, lane: Lane) -> Pushed {
        let list = match lane {
            Lane::Removal => &self.removals,
            Lane::Change => &self.changes,
            Lane::Retry => &self.retries,
        };
        list.push(links, slot)
    }

    /// Whether there is nothing in it; by the time of the answer there may be.
    pub fn is_empty(&self) -> bool {
        self.removals.is_empty() && self.changes.is_empty() && self.retries.is_empty()
    }
}

impl Reader {
    /// The next slot to look at; none if there is none, or if the next one is being handed over right now.
    pub fn take(&mut self, links: &impl Links) -> Option<u32> {
        if self.in_a_row < LookQueue::REMOVALS_IN_A_ROW
            && let Some(slot) = self.removals.take(&self.queue.removals, links)
        {
            self.in_a_row += 1;
            return Some(slot);
        }
        self.in_a_row = 0;
        if self.changes_in_a_row < LookQueue::CHANGES_IN_A_ROW
            && let Some(slot) = self.changes.take(&self.queue.changes, links)
        {
            self.changes_in_a_row += 1;
            return Some(slot);
        }
        self.changes_in_a_row = 0;
        let retry = self.retries.take(&self.queue.retries, links);
        let change = retry.or_else(|| self.changes.take(&self.queue.changes, links));
        change.or_else(|| self.removals.take(&self.queue.removals, links))
    }

    /// Asks to be woken by who hands the next slot over. False if there is one already, or is being handed over: then
    /// nobody will wake the reader, and it must not sleep.
    pub fn fall_asleep(&mut self) -> bool {
        if !self.removals.fall_asleep(&self.queue.removals) {
            return false;
        }
        if !self.changes.fall_asleep(&self.queue.changes) {
            self.queue.removals.wake_up();
            return false;
        }
        if !self.retries.fall_asleep(&self.queue.retries) {
            self.queue.removals.wake_up();
            self.queue.changes.wake_up();
            return false;
        }
        true
    }

    /// Is awake again, whoever woke it; callers need not wake it any more.
    pub fn wake_up(&mut self) {
        self.queue.removals.wake_up();
        self.queue.changes.wake_up();
        self.queue.retries.wake_up();
    }
}

impl List {
    pub(super) fn new() -> Self {
        Self { tail: AtomicU32::new(STUB), stub: AtomicU32::new(LAST) }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self.tail.load(Ordering::Acquire), STUB | ASLEEP)
    }

    /// The node behind which the next one will come.
    pub(super) fn last(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    /// Puts a slot in, unless it is there already.
    #[inline]
    pub(super) fn push(&self, links: &impl Links, slot: u32) -> Pushed {
        let Some(link) = links.link(slot) else { return Pushed::AlreadyThere };
        if link.compare_exchange(IDLE, LAST, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Pushed::AlreadyThere;
        }
        if self.append(links, node_of(slot)) { Pushed::ReaderSleeps } else { Pushed::Queued }
    }

    /// Puts a node, whose link says that it is the last, behind all others. Says whether the reader sleeps.
    #[inline]
    fn append(&self, links: &impl Links, node: u32) -> bool {
        let before = self.tail.swap(node, Ordering::AcqRel);
        if let Some(link) = self.link(links, before) {
            link.store(node, Ordering::Release);
        }
        before == ASLEEP
    }

    /// The link of a node of the list. There always is one.
    #[inline]
    fn link<'a>(&'a self, links: &'a impl Links, node: u32) -> Option<&'a AtomicU32> {
        match node {
            STUB | ASLEEP => Some(&self.stub),
            slot => links.link(slot - FIRST_SLOT),
        }
    }

    fn wake_up(&self) {
        // Fails if somebody has appended meanwhile, or nobody slept.
        let _ = self.tail.compare_exchange(ASLEEP, STUB, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The node of a slot.
pub(super) const fn node_of(slot: u32) -> u32 {
    FIRST_SLOT + slot
}

impl Head {
    pub(super) fn new() -> Self {
        Self(STUB)
    }

    pub(super) fn is_at_stub(&self) -> bool {
        self.0 == STUB
    }

    pub(super) fn take(&mut self, list: &List, links: &impl Links) -> Option<u32> {
        let mut next = list.link(links, self.0)?.load(Ordering::Acquire);
        if self.0 == STUB {
            if next == LAST {
                return None;
            }
            self.0 = next;
            next = list.link(links, self.0)?.load(Ordering::Acquire);
        }
        if next == LAST {
            if list.tail.load(Ordering::Relaxed) != self.0 {
                // Somebody has swapped the tail and is about to link.
                return None;
            }
            list.stub.store(LAST, Ordering::Relaxed);
            list.append(links, STUB);
            next = list.link(links, self.0)?.load(Ordering::Acquire);
            if next == LAST {
                return None;
            }
        }
        let slot = self.0 - FIRST_SLOT;
        self.0 = next;
        links.link(slot)?.store(IDLE, Ordering::Release);
        Some(slot)
    }

    fn fall_asleep(&self, list: &List) -> bool {
        self.0 == STUB && list.tail.compare_exchange(STUB, ASLEEP, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Whether a link says that its slot is in a queue.
pub(super) fn is_queued(link: &AtomicU32) -> bool {
    link.load(Ordering::Relaxed) != IDLE
}
