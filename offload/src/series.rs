//! Many new flows, one after the other, of one caller.

use sluice_flow::table::{Accepted, ReplyTo, TableError};
use sluice_flow::{Flow, FlowId, Timestamp};

use super::queue::OffloadQueue;

impl OffloadQueue {
    /// Takes many new flows on.
    pub fn series(&self) -> Series<'_> {
        Series { queue: self, now: self.clock.now(), group: Vec::with_capacity(Series::GROUP) }
    }
}

/// Takes new flows on as [`OffloadQueue::add`] does, and hands them over to their workers in groups: so a worker is woken,
/// and what both sides write changes hands, once a group and not once a flow.
pub struct Series<'q> {
    queue: &'q OffloadQueue,
    /// When the present group was begun.
    now: Timestamp,
    /// Taken on, and not handed over yet.
    group: Vec<Accepted>,
}

impl Series<'_> {
    /// As many flows as a worker looks at in one go.
    const GROUP: usize = 64;

    /// Takes a new flow on. It counts as accepted at the time when its group was begun.
    pub fn add(&mut self, flow: Flow, reply_to: ReplyTo) -> Result<FlowId, TableError> {
        let accepted = self.queue.accept(flow, self.now, Some(reply_to))?;
        self.group.push(accepted);
        if self.group.len() >= Self::GROUP {
            self.hand_over();
        }
        Ok(accepted.flow)
    }

    /// Hands over what was taken on so far. To be called before the caller waits for anything.
    pub fn hand_over(&mut self) {
        for accepted in self.group.drain(..) {
            self.queue.hand_over(accepted);
        }
        self.now = self.queue.clock.now();
    }
}

impl Drop for Series<'_> {
    fn drop(&mut self) {
        self.hand_over();
    }
}
