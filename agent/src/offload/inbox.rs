//! The two sides of a worker's queue: callers hand flows over, the worker takes them or sleeps until there are some.
//!
//! The flows lie in the table's own [queue](sluice_flow::table::queue); only the bell is a channel, of one place and
//! without content. Who hands a flow over rings it if, and only if, the worker sleeps; that is the one system call on the
//! way of a flow, and only an idle agent makes it. A channel, for a worker that sleeps waits for two others as well: what a
//! backend completes later, and the word to stop.

use std::sync::Arc;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use sluice_flow::FlowId;
use sluice_flow::table::queue::{LookQueue, Pushed, Reader};
use sluice_flow::table::{Accepted, FlowTable};

/// The callers' side of all workers' queues.
pub(super) struct Inboxes {
    table: Arc<FlowTable>,
    slits: Box<[Slit]>,
    counted: Mutex<Counted>,
}

/// How many flows each worker had yet to look at, a moment ago.
#[derive(Default)]
struct Counted {
    at: Option<Instant>,
    queued: Vec<usize>,
}

/// Where flows for one worker are put in.
struct Slit {
    queue: Arc<LookQueue>,
    bell: Sender<()>,
}

/// A worker's own side of its queue.
pub(super) struct Inbox {
    table: Arc<FlowTable>,
    queue: Arc<LookQueue>,
    reader: Reader,
    bell: Receiver<()>,
}

impl Inboxes {
    const COUNT_INTERVAL: Duration = Duration::from_secs(1);

    /// Queues for so many workers.
    pub(super) fn new(table: &Arc<FlowTable>, workers: usize) -> (Self, Vec<Inbox>) {
        let (slits, inboxes): (Vec<_>, Vec<_>) = (0..workers.max(1))
            .map(|_| {
                let (queue, reader) = LookQueue::new();
                let (ring, bell) = bounded(1);
                let inbox = Inbox { table: table.clone(), queue: queue.clone(), reader, bell };
                (Slit { queue, bell: ring }, inbox)
            })
            .unzip();
        (Self { table: table.clone(), slits: slits.into(), counted: Mutex::default() }, inboxes)
    }

    /// Has the worker that a flow's slot picks look at it.
    #[inline]
    pub(super) fn hand_over(&self, accepted: Accepted) {
        let slit = &self.slits[self.worker_of(accepted.flow.slot)];
        if self.table.hand_over(accepted, &slit.queue) == Pushed::ReaderSleeps {
            // A bell that is full has been rung. A worker that is gone has taken the agent down with it.
            let _ = slit.bell.try_send(());
        }
    }

    /// How many flows each worker has yet to look at. The table is walked for it at most once a second, however many ask, and
    /// not at all if all queues are empty.
    pub(super) fn queued(&self) -> Vec<usize> {
        if self.slits.iter().all(|slit| slit.queue.is_empty()) {
            return vec![0; self.slits.len()];
        }
        let mut counted = self.counted.lock();
        if counted.at.is_none_or(|at| at.elapsed() >= Self::COUNT_INTERVAL) {
            counted.queued = vec![0; self.slits.len()];
            self.table.visit_queued(&mut |slot| counted.queued[self.worker_of(slot)] += 1);
            counted.at = Some(Instant::now());
        }
        counted.queued.clone()
    }

    /// How many flows of each worker have a rule. Walks the table.
    pub(super) fn with_rules(&self) -> Vec<usize> {
        let mut counts = vec![0; self.slits.len()];
        self.table.visit_rules(&mut |slot| counts[self.worker_of(slot)] += 1);
        counts
    }

    /// A slot has one worker for good, so that it is never in two queues. Lives of one identity in different slots wait for
    /// each other in the table.
    #[inline]
    fn worker_of(&self, slot: u32) -> usize {
        slot as usize % self.slits.len()
    }
}

impl Inbox {
    /// How long a worker looks before it sleeps, so that a flow that comes soon after another finds it awake. A time, not a number
    /// of looks: on a slow machine a look takes longer, and other threads need the processor.
    const PATIENCE: Duration = Duration::from_micros(10);

    /// The next flow to look at, if there is one.
    pub(super) fn take(&mut self) -> Option<FlowId> {
        self.table.take(&mut self.reader)
    }

    /// Waits a little until `is_over` or there may be a flow. Says whether either came to pass. Gives way to whoever else
    /// wants the processor: on a busy machine that is who hands flows over, and many come of it.
    pub(super) fn linger(&self, is_over: impl Fn() -> bool) -> bool {
        let began = Instant::now();
        loop {
            if is_over() || !self.queue.is_empty() {
                return true;
            }
            if began.elapsed() >= Self::PATIENCE {
                return false;
            }
            yield_now();
        }
    }

    /// Runs `sleep` with the bell that ends it, unless there is a flow, or somebody is handing one over.
    pub(super) fn sleep<R>(&mut self, sleep: impl FnOnce(&Receiver<()>) -> Option<R>) -> Option<R> {
        if !self.reader.fall_asleep() {
            // Who is handing over may wait for this processor.
            yield_now();
            return None;
        }
        let woken_by = sleep(&self.bell);
        self.reader.wake_up();
        woken_by
    }
}
