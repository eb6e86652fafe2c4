//! What of the table a log has yet to write.
//!
//! A change to what is wanted puts the slot of its flow into a queue, in which a slot is at most once. The log takes slots in
//! their order and reads what is wanted when it gets there: so changes that follow each other quickly become one record, and a
//! log whose disk hangs falls behind without growing.
//!
//! A life that is over before its end is written keeps its slot, with the UFID alone in it, until the log has read that. No life
//! begins in the slot before. A slot is put in when its life begins and when it ends, and the next life of the same UFID begins
//! after that in another slot: so the log has the ends and beginnings of a UFID in their order.
//!
//! At most so many slots are kept that way as the log allows. Beyond that the end of a life is given up, which is counted: the
//! log is then not whole until everything has been written anew. So is a life that begins in such a slot while that is in the queue,
//! for its turn comes too early. What was in the queue by then must be read before everything is written.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::FlowTable;
use super::arena::Arena;
use super::queue::{Head, Links, List, Pushed, STUB, node_of};
use super::record::Record;
use super::sync::{AtomicU32, AtomicUsize, Ordering, yield_now};
use crate::event::Wish;
use crate::flow::Flow;
use crate::id::FlowId;
use crate::ufid::Ufid;

/// The end of the queue that the table has.
pub struct Unwritten {
    list: List,
    /// Slots that are kept for the end of a life.
    kept: CachePadded<AtomicUsize>,
    most_kept: usize,
    given_up: AtomicUsize,
    call: Box<dyn Fn() + Send + Sync>,
}

/// The end of the queue that the log has for itself.
pub struct UnwrittenReader {
    unwritten: Arc<Unwritten>,
    head: Head,
}

/// How far a reader shall go: up to what was in the queue when the mark was made. What comes later waits for the next.
#[derive(Clone, Copy, Debug)]
pub struct Mark(Option<u32>);

impl Unwritten {
    /// A queue that keeps at most so many slots for the ends of lives. `call` is called when there are many of them.
    pub fn new(most_kept: usize, call: impl Fn() + Send + Sync + 'static) -> (Arc<Self>, UnwrittenReader) {
        let unwritten = Arc::new(Self {
            list: List::new(),
            kept: CachePadded::default(),
            most_kept,
            given_up: AtomicUsize::new(0),
            call: Box::new(call),
        });
        (unwritten.clone(), UnwrittenReader { unwritten, head: Head::new() })
    }

    /// Whether there is nothing to write; by the time of the answer there may be.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Slots that are kept for ends of lives that are not written.
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Ends and beginnings of lives that were given up so far.
    pub fn given_up(&self) -> usize {
        self.given_up.load(Ordering::Acquire)
    }

    /// Asks to keep a slot for the end of its life; false if there are too many.
    fn keep(&self) -> bool {
        let kept = self.kept.fetch_add(1, Ordering::Relaxed) + 1;
        if kept > self.most_kept {
            self.kept.fetch_sub(1, Ordering::Relaxed);
            self.given_up.fetch_add(1, Ordering::Release);
            return false;
        }
        // Early enough that a log that only sleeps keeps up.
        if kept.is_multiple_of((self.most_kept / 16).max(1)) {
            (self.call)();
        }
        true
    }
}

impl UnwrittenReader {
    /// A mark behind all that is in the queue now.
    pub fn mark(&self) -> Mark {
        Mark((!self.is_drained()).then(|| self.unwritten.list.last()))
    }

    fn is_drained(&self) -> bool {
        self.head.is_at_stub() && self.unwritten.list.is_empty()
    }

    /// The next slot before a mark.
    fn take(&mut self, links: &impl Links, mark: &mut Mark) -> Option<u32> {
        let last = mark.0?;
        loop {
            if let Some(slot) = self.head.take(&self.unwritten.list, links) {
                let is_last = node_of(slot) == last || last == STUB && self.head.is_at_stub();
                if is_last {
                    mark.0 = None;
                }
                return Some(slot);
            }
            if self.is_drained() {
                mark.0 = None;
                return None;
            }
            // Somebody is about to link what is there.
            yield_now();
        }
    }
}

impl Mark {
    /// Whether the reader has come to it.
    pub const fn is_reached(&self) -> bool {
        self.0.is_none()
    }
}

impl FlowTable {
    /// Has a log hear of every change. To be called before there is any flow.
    #[must_use]
    pub fn kept_by(self, unwritten: Option<Arc<Unwritten>>) -> Self {
        Self { unwritten, ..self }
    }

    /// Takes the next slot before a mark and shows what is wanted of its flow now, which `write` must be quick to write down, for
    /// the flow is locked. False if there is none before the mark any more.
    pub fn write_next(&self, reader: &mut UnwrittenReader, mark: &mut Mark, write: impl FnOnce(Wish<'_>)) -> bool {
        let Some(slot) = reader.take(&LogLinks(&self.arena), mark) else { return false };
        let Some((_, mut record)) = self.arena.slot(slot) else { return true };
        let Some(ufid) = record.take_over() else {
            // A flow of a source may have begun in the slot of a life whose end was given up.
            if record.flow().is_some_and(|flow| flow.origin.is_logged()) {
                record.write(write);
            }
            return true;
        };
        write(Wish::Unwanted(ufid));
        drop(record);
        reader.unwritten.kept.fetch_sub(1, Ordering::Relaxed);
        self.free.give_back(ufid, slot);
        true
    }

    /// Has the log look at a flow; says whether there is one that keeps it. Called under the flow's lock, after the change.
    pub(super) fn has_changed(&self, id: FlowId, flow: &Flow) -> bool {
        let Some(unwritten) = self.log_of(flow) else { return false };
        // It may be there already: what is wanted by its turn is what counts.
        let _ = unwritten.list.push(&LogLinks(&self.arena), id.slot);
        true
    }

    /// The same of a flow that is new.
    pub(super) fn has_begun(&self, id: FlowId, flow: &Flow) {
        if let Some(unwritten) = self.log_of(flow)
            && unwritten.list.push(&LogLinks(&self.arena), id.slot) == Pushed::AlreadyThere
        {
            unwritten.given_up.fetch_add(1, Ordering::Release);
        }
    }

    fn log_of(&self, flow: &Flow) -> Option<&Unwritten> {
        self.unwritten.as_deref().filter(|_| flow.origin.is_logged())
    }

    /// What becomes of the slot of a life that is over.
    pub(super) fn after_life(&self, ufid: Ufid, is_end_unwritten: bool) -> Record {
        let is_kept = is_end_unwritten && self.unwritten.as_ref().is_some_and(|unwritten| unwritten.keep());
        if is_kept { Record::Over(ufid.0.to_ne_bytes()) } else { Record::Free }
    }
}

/// The links by which slots lie in the queue of the log.
struct LogLinks<'a>(&'a Arena);

impl Links for LogLinks<'_> {
    #[inline]
    fn link(&self, slot: u32) -> Option<&AtomicU32> {
        self.0.log_link_of(slot)
    }
}
