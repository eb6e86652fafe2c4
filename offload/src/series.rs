//! Many new flows, one after the other, of one caller.

use std::sync::Arc;

use sluice_flow::table::{Accepted, TableError};
use sluice_flow::{Flow, FlowId, Timestamp};

use super::batch::Batch;
use super::queue::OffloadQueue;

impl OffloadQueue {
    /// Takes many new flows on, whose outcomes `batch` shall hear of.
    pub fn series(&self, batch: Arc<Batch>) -> Series<'_> {
        Series::new(self, batch)
    }
}

/// Takes new flows on as [`OffloadQueue::add`] does, and hands them over to their workers in groups: so a worker is woken,
/// and what both sides write changes hands, once a group and not once a flow.
pub struct Series<'q> {
    queue: &'q OffloadQueue,
    batch: Arc<Batch>,
    /// When the present group was begun.
    now: Timestamp,
    /// Outcomes that the batch expects of requests that are still to come.
    promised: usize,
    /// Taken on, and not handed over yet.
    group: Vec<Accepted>,
}

impl<'q> Series<'q> {
    /// As many flows as a worker looks at in one go.
    const GROUP: usize = 64;

    fn new(queue: &'q OffloadQueue, batch: Arc<Batch>) -> Self {
        Self { queue, batch, now: queue.clock.now(), promised: 0, group: Vec::with_capacity(Self::GROUP) }
    }

    /// Takes a new flow on. It counts as accepted at the time when its group was begun.
    pub fn add(&mut self, flow: Flow) -> Result<FlowId, TableError> {
        if self.promised == 0 {
            self.batch.expect(Self::GROUP);
            self.promised = Self::GROUP;
        }
        let accepted = self.queue.accept(flow, self.now, Some(self.batch.clone()))?;
        self.promised -= 1;
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
        self.batch.expect_less(self.promised);
    }
}
