//! Refused flows that are tried again.

use std::sync::atomic::fence;

use super::life::Life;
use super::sync::{AtomicU64, Ordering};
use super::{Accepted, FlowTable};
use crate::cause::Cause;
use crate::id::FlowId;
use crate::refusal::Refusal;
use crate::time::Timestamp;

/// When each kind of cause last changed. A device may refuse a change, and what it waits for may be there before the table hears of the refusal:
/// nobody would tell it another time.
#[derive(Default)]
pub(super) struct Changes([AtomicU64; u8::BITS as usize]);

impl Changes {
    /// Whether a cause of this kind has changed since then. To be asked once it can be found that the flow waits for it.
    fn has_changed(&self, cause: Cause, since: Timestamp) -> bool {
        // Either this finds the change, or who tries flows again for it finds the flow.
        fence(Ordering::SeqCst);
        self.of(cause).is_some_and(|changed| changed.load(Ordering::Relaxed) > since.0)
    }

    fn of(&self, cause: Cause) -> Option<&AtomicU64> {
        self.0.get(cause.kind().trailing_zeros() as usize)
    }
}

impl FlowTable {
    /// Takes note that a cause has changed, before flows that wait for it are [tried again](Self::retry): a refusal of a flow that was asked for
    /// before, and of which the table hears later, is out of date.
    pub fn note_change(&self, cause: Cause, now: Timestamp) {
        if let Some(changed) = self.changes.of(cause) {
            changed.fetch_max(now.0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Has refused flows tried again that wait for one of these causes, and so removals that were refused, from a slot on;
    /// hands those to look at to `enqueue`. At most so many are [tried](super::Census::retries) at a time: then it gives the
    /// slot to go on from once there are fewer.
    ///
    /// Looks at as many slots as chunks have in which some flow waits for such a cause, and at one byte of each other chunk.
    pub fn retry(
        &self,
        causes: &[Cause],
        from: u32,
        at_most: usize,
        now: Timestamp,
        enqueue: &mut dyn FnMut(Accepted),
    ) -> Option<u32> {
        let kinds = causes.iter().fold(0, |kinds, cause| kinds | cause.kind());
        let mut from = from;
        while let Some(slots) = self.arena.next_awaiting(from, kinds) {
            from = slots.end;
            for slot in slots {
                if self.census.retries() >= at_most {
                    self.arena.await_kind(slot, kinds);
                    return Some(slot);
                }
                if let Some(accepted) = self.retry_slot(slot, causes, now) {
                    enqueue(accepted);
                }
            }
        }
        None
    }

    fn retry_slot(&self, slot: u32, causes: &[Cause], now: Timestamp) -> Option<Accepted> {
        let (id, mut record) = self.arena.slot(slot)?;
        let awaited = record.awaited()?;
        if !causes.iter().any(|cause| cause.concerns(awaited)) {
            self.arena.await_kind(slot, awaited.kind());
            return None;
        }
        record.change(|life| self.begin_retry(id, life, now))?
    }

    fn begin_retry(&self, id: FlowId, life: &mut Life, now: Timestamp) -> Option<Accepted> {
        if life.in_flight {
            // Its outcome says what it waits for then, and whether that has changed meanwhile.
            return None;
        }
        // The worker may be yet to tell who waits of the outcome.
        let reply_to = life.reply_to.take();
        self.changed(id, life, now, reply_to);
        // Until then it is counted as what somebody waits for.
        if !life.unsettled {
            life.is_retried = true;
            self.census.begin_retry();
        }
        Some(Accepted { flow: id, lane: life.lane() })
    }

    /// Whether what a refusal waits for has changed since the flow was asked for, so that it may be out of date.
    pub(super) fn is_out_of_date(&self, refusal: &Refusal, id: FlowId, life: &Life) -> bool {
        refusal.cause().is_some_and(|cause| {
            self.arena.await_kind(id.slot, cause.kind());
            self.changes.has_changed(cause, life.asked)
        })
    }

    /// Once the old rule is gone of a flow whose modification was refused: has the flow asked for again if what it waits for has
    /// changed meanwhile. Who tries flows again has passed it over as long as the rule was there.
    pub(super) fn drop_old_refusal(&self, id: FlowId, life: &mut Life, now: Timestamp) {
        let refusal = life.refusal.as_ref().filter(|(generation, _)| *generation == life.generation);
        if life.end.is_none() && refusal.is_some_and(|(_, refusal)| self.is_out_of_date(refusal, id, life)) {
            life.refusal = None;
            life.asked = now;
        }
    }

    pub(super) fn end_retry(&self, life: &mut Life) {
        if std::mem::take(&mut life.is_retried) {
            self.census.end_retry();
        }
    }
}
