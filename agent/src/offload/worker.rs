//! One worker: looks at flows, hands changes to its install queue, takes the outcomes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TryRecvError, never, select};
use parking_lot::Mutex;
use sluice_flow::backend::{Change, Completion, InstallQueue, Operation, Outcome};
use sluice_flow::table::Look;
use sluice_flow::{Clock, Flow, FlowId, FlowTable, Refusal};

use super::chains::Chains;
use super::enqueue;

/// A worker that is to run on a thread of its own.
pub struct Worker {
    pub(super) table: Arc<FlowTable>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) chains: Arc<Chains>,
    /// To all workers, for flows that this one sets free.
    pub(super) senders: Arc<[Sender<FlowId>]>,
    pub(super) ids: Receiver<FlowId>,
    pub(super) install: Box<dyn InstallQueue>,
    pub(super) batch: usize,
    pub(super) statistics: Arc<WorkerStatistics>,
}

impl Worker {
    /// Works until `stop` is disconnected and nothing is in flight. What is in the queue then stays undone.
    pub fn run(mut self, stop: &Receiver<Infallible>) {
        let mut stop = stop.clone();
        let later = self.install.later().cloned().unwrap_or_else(never);
        let mut in_flight = HashMap::new();
        let mut batch = Vec::with_capacity(self.batch);
        let mut done = Vec::with_capacity(self.batch);
        let mut stopping = false;
        while !(stopping && in_flight.is_empty()) {
            select! {
                recv(self.ids) -> id => if let Ok(id) = id { self.look(id, &mut batch) },
                recv(later) -> completion => if let Ok(completion) = completion { done.push(completion) },
                recv(stop) -> _ => {
                    stopping = true;
                    stop = never();
                }
            }
            self.gather(&later, &mut batch, &mut done);
            while !batch.is_empty() || !done.is_empty() {
                for change in &batch {
                    in_flight.insert(change.flow, change.clone());
                }
                if !batch.is_empty() {
                    self.install.submit(&mut batch, &mut done);
                    batch.clear();
                }
                for completion in std::mem::take(&mut done) {
                    self.complete(completion, &mut in_flight, &mut batch);
                }
            }
            self.statistics.set_in_flight(in_flight.len());
        }
    }

    /// Takes what else is there, up to a batch.
    fn gather(&self, later: &Receiver<Completion>, batch: &mut Vec<Change>, done: &mut Vec<Completion>) {
        while batch.len() < self.batch {
            match self.ids.try_recv() {
                Ok(id) => self.look(id, batch),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        done.extend(later.try_iter());
    }

    fn look(&self, id: FlowId, batch: &mut Vec<Change>) {
        let gate = |operation: &Operation, flow: &Flow| self.chains.may_begin(id, operation, flow);
        match self.table.look(id, gate) {
            Look::Nothing | Look::Held => {}
            Look::Change(change) => self.begin(change, batch),
            Look::Retired { successor, .. } => {
                self.set_free(self.chains.gone(id));
                if let Some(successor) = successor {
                    self.set_free(vec![successor]);
                }
            }
        }
    }

    fn begin(&self, change: Change, batch: &mut Vec<Change>) {
        let opened = match &change.operation {
            Operation::Install(flow) | Operation::Modify(_, flow) => self.chains.open(change.flow, flow),
            Operation::Remove(_) => Ok(()),
        };
        match opened {
            Ok(()) => batch.push(change),
            Err(refusal) => self.finish(&change, Err(refusal), batch),
        }
    }

    fn complete(&self, completion: Completion, in_flight: &mut HashMap<FlowId, Change>, batch: &mut Vec<Change>) {
        match in_flight.remove(&completion.flow) {
            Some(change) if change.generation == completion.generation => {
                self.finish(&change, completion.result, batch);
            }
            Some(change) => {
                // An answer to something else: the right one is still to come.
                self.statistics.stray();
                in_flight.insert(change.flow, change);
            }
            None => self.statistics.stray(),
        }
    }

    fn finish(&self, change: &Change, result: Result<Outcome, Refusal>, batch: &mut Vec<Change>) {
        let in_place = matches!(result, Ok(Outcome::InPlace { .. }));
        let latency = self.table.complete(change, result, self.clock.now());
        if let (true, Some(latency)) = (in_place, latency) {
            self.statistics.installed(latency);
        }
        let free = match &change.operation {
            Operation::Install(flow) | Operation::Modify(_, flow) if in_place => {
                self.chains.settled(change.flow, Some(flow))
            }
            // The old rule is still there and holds its chains open until it goes.
            Operation::Modify(..) => Vec::new(),
            Operation::Install(_) | Operation::Remove(_) => self.chains.settled(change.flow, None),
        };
        self.set_free(free);
        self.look(change.flow, batch);
    }

    /// Has flows looked at that waited for something that has happened.
    fn set_free(&self, ids: Vec<FlowId>) {
        for accepted in ids.into_iter().filter_map(|id| self.table.mark_queued(id)) {
            enqueue(&self.senders, accepted);
        }
    }
}

/// What a worker has done, as it goes.
#[derive(Default)]
pub(super) struct WorkerStatistics(Mutex<WorkerReport>);

/// What a worker has done and has before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerReport {
    /// Flows to look at.
    pub queued: usize,
    /// Changes handed to the backend and not completed.
    pub in_flight: usize,
    /// Rules installed or modified.
    pub installed: u64,
    /// Completions that answered nothing that was asked.
    pub strays: u64,
    /// Sum of the times from wish to outcome, in seconds.
    pub latency_sum: f64,
    /// Sum of their squares.
    pub latency_square_sum: f64,
    /// Exponential average over about 100 installations, in seconds.
    pub latency_average: f64,
    /// Exponential average of the squared deviation from it.
    pub latency_variance: f64,
    /// Installations by latency: how many took at most as long as the [`LATENCY_BUCKETS`] say.
    pub latency_buckets: [u64; LATENCY_BUCKETS.len()],
}

/// Upper bounds of the latency histogram, in seconds.
pub const LATENCY_BUCKETS: [f64; 10] = [1e-5, 1e-4, 2.5e-4, 1e-3, 5e-3, 2e-2, 0.1, 0.5, 2.0, 10.0];

impl WorkerStatistics {
    pub(super) fn report(&self, queued: usize) -> WorkerReport {
        WorkerReport { queued, ..*self.0.lock() }
    }

    fn installed(&self, latency: Duration) {
        // As `mov_avg_ema` of OVS with 100 samples.
        const WEIGHT: f64 = 2.0 / 101.0;
        let seconds = latency.as_secs_f64();
        let mut report = self.0.lock();
        report.installed += 1;
        report.latency_sum += seconds;
        report.latency_square_sum += seconds * seconds;
        let deviation = seconds - report.latency_average;
        report.latency_average += WEIGHT * deviation;
        report.latency_variance = (1.0 - WEIGHT) * (report.latency_variance + WEIGHT * deviation * deviation);
        for (count, bound) in report.latency_buckets.iter_mut().zip(LATENCY_BUCKETS) {
            *count += u64::from(seconds <= bound);
        }
    }

    fn set_in_flight(&self, count: usize) {
        self.0.lock().in_flight = count;
    }

    fn stray(&self) {
        self.0.lock().strays += 1;
    }
}
