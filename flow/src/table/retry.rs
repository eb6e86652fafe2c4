//! Refused flows that are tried again.

use super::life::Life;
use super::{Accepted, FlowTable};
use crate::cause::Cause;
use crate::id::FlowId;
use crate::time::Timestamp;

impl FlowTable {
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
            // Its outcome says what it waits for then.
            return None;
        }
        life.stuck = false;
        self.changed(id, life, now, None);
        life.is_retried = true;
        self.census.begin_retry();
        Some(Accepted { flow: id, lane: life.lane() })
    }

    pub(super) fn end_retry(&self, life: &mut Life) {
        if std::mem::take(&mut life.is_retried) {
            self.census.end_retry();
        }
    }
}
