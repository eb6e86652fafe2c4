//! Waiting for the outcome of many requests at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluice_flow::table::{Settlement, Waiter};
use sluice_flow::{Counters, FlowId, Refusal};

/// Refusals that are kept word for word; more are only counted.
const REFUSALS_KEPT: usize = 16;

/// Waits until every request that was made with it is settled: a barrier over just these.
#[derive(Default)]
pub struct Batch {
    tally: Mutex<Tally>,
    changed: Condvar,
}

/// What has become of the requests of a batch so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests without an outcome.
    pub outstanding: usize,
    /// Requests that ended in the device as wanted.
    pub installed: usize,
    /// Requests that the device refused.
    pub refused: usize,
    /// Deletions that are done.
    pub deleted: usize,
    /// Requests that a later one overtook.
    pub superseded: usize,
    /// The first refusals.
    pub refusals: Vec<(FlowId, Arc<Refusal>)>,
    /// The counters of the last deletion.
    pub last_deleted: Option<Counters>,
}

impl Batch {
    /// One more request will be made. Said before it is made, for its outcome may come at once.
    pub fn expect_one(&self) {
        self.tally.lock().outstanding += 1;
    }

    /// The request was not taken on after all.
    pub fn expect_one_less(&self) {
        self.tally.lock().outstanding -= 1;
        self.changed.notify_all();
    }

    /// Waits for every outcome, at most so long. Gives what there is then.
    pub fn wait(&self, at_most: Duration) -> Tally {
        let mut tally = self.tally.lock();
        self.changed.wait_while_for(&mut tally, |tally| tally.outstanding > 0, at_most);
        tally.clone()
    }
}

impl Waiter for Batch {
    fn settled(&self, flow: FlowId, outcome: &Settlement) {
        let mut tally = self.tally.lock();
        match outcome {
            Settlement::Installed(_) => tally.installed += 1,
            Settlement::Refused(refusal) => {
                tally.refused += 1;
                if tally.refusals.len() < REFUSALS_KEPT {
                    tally.refusals.push((flow, refusal.clone()));
                }
            }
            Settlement::Deleted(counters) => {
                tally.deleted += 1;
                tally.last_deleted = Some(*counters);
            }
            Settlement::Superseded => tally.superseded += 1,
        }
        tally.outstanding -= 1;
        if tally.outstanding == 0 {
            self.changed.notify_all();
        }
    }
}
