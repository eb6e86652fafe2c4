//! The two sides of a worker's queue: callers hand flows over, the worker takes them or sleeps until there are some.
//!
//! The flows lie in the table's own [queue](sluice_flow::table::queue); only the bell is a channel, of one place and
//! without content. Who hands a flow over rings it if, and only if, the worker sleeps; that is the one system call on the
//! way of a flow, and only an idle agent makes it. The worker's install queue rings the same bell when it has completions.
//! A channel, because a worker that sleeps waits for the word to stop as well.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select};
use parking_lot::Mutex;
use sluice_flow::FlowId;
use sluice_flow::table::queue::{LookQueue, Pushed, Reader};
use sluice_flow::table::{Accepted, FlowTable};

/// The callers' side of all workers' queues.
pub(super) struct Inboxes {
    table: Arc<FlowTable>,
    inboxes: Box<[Inbox]>,
    counted: Mutex<Counted>,
}

/// How many flows each worker had yet to look at, a moment ago.
#[derive(Default)]
struct Counted {
    at: Option<Instant>,
    queued: Vec<usize>,
}

/// Where flows for one worker are put in.
struct Inbox {
    queue: Arc<LookQueue>,
    bell: Arc<Bell>,
}

/// What wakes a worker.
struct Bell(Sender<()>);

impl Bell {
    fn ring(&self) {
        // A bell that is full has been rung. A worker that is gone has taken the agent down with it.
        let _ = self.0.try_send(());
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// A worker's own side of its queue.
pub(super) struct InboxReader {
    table: Arc<FlowTable>,
    queue: Arc<LookQueue>,
    reader: Reader,
    bell: Receiver<()>,
    /// The other end, for the worker's install queue.
    ringer: Arc<Bell>,
}

impl Inboxes {
    const COUNT_INTERVAL: Duration = Duration::from_secs(1);

    /// Queues for so many workers.
    pub(super) fn new(table: &Arc<FlowTable>, workers: usize) -> (Self, Vec<InboxReader>) {
        let (inboxes, readers): (Vec<_>, Vec<_>) = (0..workers.max(1))
            .map(|_| {
                let (queue, reader) = LookQueue::new();
                let (ring, bell) = bounded(1);
                let ringer = Arc::new(Bell(ring));
                let inbox = Inbox { queue: queue.clone(), bell: ringer.clone() };
                (inbox, InboxReader { table: table.clone(), queue, reader, bell, ringer })
            })
            .unzip();
        (Self { table: table.clone(), inboxes: inboxes.into(), counted: Mutex::default() }, readers)
    }

    /// Has the worker that a flow's slot picks look at it.
    #[inline]
    pub(super) fn hand_over(&self, accepted: Accepted) {
        let inbox = &self.inboxes[self.worker_of(accepted.flow.slot)];
        if self.table.hand_over(accepted, &inbox.queue) == Pushed::ReaderSleeps {
            inbox.bell.ring();
        }
    }

    /// Whether there are flows that this worker has yet to look at.
    pub(super) fn is_awaited(&self, worker: usize) -> bool {
        self.inboxes.get(worker).is_some_and(|inbox| !inbox.queue.is_empty())
    }

    /// How many flows each worker has yet to look at. The table is walked for it at most once a second, however many ask, and
    /// not at all if all queues are empty.
    pub(super) fn queued(&self) -> Vec<usize> {
        if self.inboxes.iter().all(|inbox| inbox.queue.is_empty()) {
            return vec![0; self.inboxes.len()];
        }
        let mut counted = self.counted.lock();
        if counted.at.is_none_or(|at| at.elapsed() >= Self::COUNT_INTERVAL) {
            counted.queued = vec![0; self.inboxes.len()];
            self.table.visit_queued(&mut |slot| counted.queued[self.worker_of(slot)] += 1);
            counted.at = Some(Instant::now());
        }
        counted.queued.clone()
    }

    /// How many flows of each worker have a rule. Walks the table.
    pub(super) fn with_rules(&self) -> Vec<usize> {
        let mut counts = vec![0; self.inboxes.len()];
        self.table.visit_rules(&mut |slot| counts[self.worker_of(slot)] += 1);
        counts
    }

    /// A slot has one worker for good, so that it is never in two queues. Lives of one identity in different slots wait for
    /// each other in the table.
    #[inline]
    fn worker_of(&self, slot: u32) -> usize {
        slot as usize % self.inboxes.len()
    }
}

impl InboxReader {
    /// How long a worker looks before it sleeps, so that a flow that comes soon after another finds it awake. A time, not a number
    /// of looks: on a slow machine a look takes longer, and other threads need the processor.
    const PATIENCE: Duration = Duration::from_micros(10);

    /// The next flow to look at, if there is one.
    pub(super) fn take(&mut self) -> Option<FlowId> {
        self.table.take(&mut self.reader)
    }

    /// Returns what wakes the worker, for the one other that may have something for it.
    pub(super) fn waker(&self) -> Waker {
        Waker::from(self.ringer.clone())
    }

    /// Returns when there may be a flow or a completion, or it is time to stop.
    pub(super) fn wait(&mut self, stop: &Receiver<Infallible>) {
        if self.linger() {
            return;
        }
        if !self.reader.fall_asleep() {
            // Who is handing over may wait for this processor.
            return yield_now();
        }
        select! {
            recv(self.bell) -> _ => {}
            recv(stop) -> _ => {}
        }
        self.reader.wake_up();
    }

    /// Returns when there may be a completion. Who hands flows over does not wake the worker meanwhile.
    pub(super) fn wait_for_queue(&self) {
        // The bell has another end here, so that it does not come to an end.
        let _ = self.bell.recv();
    }

    /// Waits a little until there may be a flow or a completion. Says whether that came to pass. Gives way to whoever else
    /// wants the processor: on a busy machine that is who hands flows over, and many come of it.
    fn linger(&self) -> bool {
        let began = Instant::now();
        loop {
            if !self.queue.is_empty() || self.bell.try_recv().is_ok() {
                return true;
            }
            if began.elapsed() >= Self::PATIENCE {
                return false;
            }
            yield_now();
        }
    }
}
