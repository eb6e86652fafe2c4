//! The thread that runs the revalidator: waits for the next round, takes pause, resume and wait, publishes results.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, after, bounded, never, select, unbounded};
use parking_lot::Mutex;
use sluice_flow::{Clock, EndReason, FlowId, FlowTable};
use sluice_revalidator::{Config, Revalidator, Round};

use crate::upkeep::inspection::{Inspected, Inspection};
use crate::upkeep::rebalancing::{Rebalancing, Report};
use sluice_host::liveness::Progress;
use sluice_offload::OffloadQueue;

/// Rounds never follow each other faster than this, however often somebody asks for one (as OVS, 70d0cd067).
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);

/// Steers the revalidator's thread.
#[derive(Clone)]
pub struct Revalidation {
    requests: Sender<Request>,
    published: Arc<Mutex<Published>>,
}

/// What the revalidator has done.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Rounds so far.
    pub rounds: u64,
    /// The last one.
    pub last: Round,
    /// Mean number of flows over the last rounds, and the most there ever were.
    pub flows_average: f64,
    /// The most flows that a round ever saw.
    pub flows_max: usize,
    /// Polls that were not complete.
    pub failures: u64,
    /// Readings that went backwards.
    pub backwards: u64,
    /// Rules that others had changed, which were made anew.
    pub changed_by_others: u64,
    /// Whether it is paused.
    pub paused: bool,
    /// The timeouts and the interval in force.
    pub config: Option<Config>,
    /// Who takes turns in a full device.
    pub rebalancing: Report,
}

enum Request {
    Pause(Sender<()>),
    Resume,
    /// Answered at the end of a round that begins after the request.
    Wait(Sender<()>),
    Configure(Config, Option<Duration>),
}

impl Revalidation {
    /// The handle of a revalidator, and what is to [run](RevalidatorThread::run).
    pub fn new(
        config: Config,
        revalidator: Revalidator,
        rebalancing: Rebalancing,
        inspection: Inspection,
        table: Arc<FlowTable>,
        queue: Arc<OffloadQueue>,
        clock: Arc<dyn Clock>,
    ) -> (Self, RevalidatorThread) {
        let (requests, inbox) = unbounded();
        let published = Arc::new(Mutex::new(Published { config: Some(config), ..Published::default() }));
        let shared = published.clone();
        let thread =
            RevalidatorThread { inbox, published: shared, revalidator, rebalancing, inspection, table, queue, clock };
        (Self { requests, published }, thread)
    }

    /// What has been done so far.
    pub fn published(&self) -> Published {
        self.published.lock().clone()
    }

    /// Stops polling and ageing until [`Revalidation::resume`]. Returns once no round is running.
    pub fn pause(&self) {
        let (done, wait) = bounded(1);
        if self.requests.send(Request::Pause(done)).is_ok() {
            let _ = wait.recv();
        }
    }

    /// Goes on after a pause, with a round at once.
    pub fn resume(&self) {
        let _ = self.requests.send(Request::Resume);
    }

    /// Returns after a whole round that began after this call; not before it is resumed if it is paused. Says whether
    /// there was one: not if the agent stops.
    pub fn wait(&self, gone: &dyn Fn() -> bool) -> bool {
        let (done, wait) = bounded(1);
        if self.requests.send(Request::Wait(done)).is_err() {
            return false;
        }
        loop {
            match wait.recv_timeout(Duration::from_millis(200)) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) if !gone() => {}
                Err(_) => return false,
            }
        }
    }

    /// Takes a new configuration, and time between two passes of rebalancing, from the next round on.
    pub fn configure(&self, config: Config, rebalance_interval: Option<Duration>) {
        let _ = self.requests.send(Request::Configure(config, rebalance_interval));
    }
}

/// A revalidator that is to run on a thread of its own.
pub struct RevalidatorThread {
    inbox: Receiver<Request>,
    published: Arc<Mutex<Published>>,
    revalidator: Revalidator,
    rebalancing: Rebalancing,
    inspection: Inspection,
    table: Arc<FlowTable>,
    queue: Arc<OffloadQueue>,
    clock: Arc<dyn Clock>,
}

impl RevalidatorThread {
    /// Runs rounds until `stop` is disconnected, and `before_round` before each.
    pub fn run(mut self, stop: &Receiver<Infallible>, progress: &Progress, before_round: impl Fn()) {
        let mut paused = false;
        let mut waiting: Vec<Sender<()>> = Vec::new();
        let mut pause = Duration::ZERO;
        loop {
            let next_round = if paused { never() } else { after(pause) };
            let request = select! {
                recv(stop) -> _ => return,
                recv(self.inbox) -> request => request.ok(),
                recv(next_round) -> _ => None,
            };
            match request {
                Some(Request::Pause(done)) => {
                    paused = true;
                    self.published.lock().paused = true;
                    let _ = done.send(());
                }
                Some(Request::Resume) => {
                    paused = false;
                    self.published.lock().paused = false;
                    pause = Duration::ZERO;
                }
                Some(Request::Wait(done)) => {
                    waiting.push(done);
                    pause = SHORTEST_PAUSE;
                }
                Some(Request::Configure(config, rebalance_interval)) => {
                    self.revalidator.configure(config);
                    self.rebalancing.set_interval(rebalance_interval);
                    self.published.lock().config = Some(config);
                    pause = SHORTEST_PAUSE;
                }
                None => {
                    progress.works();
                    before_round();
                    progress.works();
                    pause = self.round();
                    progress.rests();
                    for done in waiting.drain(..) {
                        // Who waited may be gone.
                        let _ = done.send(());
                    }
                }
            }
        }
    }

    /// One round; gives the time until the next.
    fn round(&mut self) -> Duration {
        let mut ends = Vec::new();
        let mut end = |id: FlowId, reason: EndReason| ends.push((id, reason));
        let round = self.revalidator.round(&self.table, &*self.clock, &mut end);
        for (id, reason) in ends {
            // A flow that somebody deleted meanwhile is on its way already.
            let _ = self.queue.delete(id, reason, None);
        }
        if let Some(failure) = &round.failure {
            tracing::warn!("the poll of the counters was not complete: {failure}");
        }
        if round.backwards > 0 {
            tracing::warn!("{} counters went backwards; what had been counted is kept", round.backwards);
        }
        if round.failure.is_none() {
            self.rebalancing.round(&self.table, &self.queue, || self.clock.now());
        }
        let Inspected { redone, failure } = self.inspection.round(self.clock.now());
        self.published.lock().changed_by_others += redone as u64;
        if let Some(refusal) = failure {
            tracing::warn!("rules could not be read back: {refusal}");
        }
        let spent = self.clock.now().since(round.began);
        let pause = round.wait().saturating_sub(spent).max(SHORTEST_PAUSE);
        self.publish(round);
        pause
    }

    fn publish(&self, round: Round) {
        // As OVS's `upcall/show`: the average leans half on the last round.
        let mut published = self.published.lock();
        #[expect(clippy::cast_precision_loss, reason = "an average for people to read")]
        let flows = round.flows as f64;
        published.flows_average = if published.rounds == 0 { flows } else { (published.flows_average + flows) / 2.0 };
        published.flows_max = published.flows_max.max(round.flows);
        published.rounds += 1;
        published.failures += u64::from(round.failure.is_some());
        published.backwards += round.backwards as u64;
        published.rebalancing = self.rebalancing.report().clone();
        published.last = round;
    }
}
