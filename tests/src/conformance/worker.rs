//! An install queue and its worker, as the agent has them.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sluice_flow::backend::{ChainChange, ChainCompletion, ChainOperation, Change, Completion, InstallQueue};
use sluice_flow::{Backend, ChainId, Refusal};

/// A worker that sleeps until its queue wakes it.
pub struct Worker {
    queue: Box<dyn InstallQueue>,
    bell: Arc<Bell>,
    in_flight: usize,
    done: Vec<Completion>,
    chains_done: Vec<ChainCompletion>,
}

#[derive(Default)]
struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.has_rung.lock() = true;
        self.rings.notify_all();
    }
}

impl Bell {
    /// Waits until it rings, or has rung since this was last called. Returns whether it did in time.
    fn wait(&self) -> bool {
        // In the machine of `tests/lab/run`, which is emulated, everything takes many times as long.
        let patience = Duration::from_secs(if std::env::var_os("LAB_OUT").is_some() { 60 } else { 5 });
        let deadline = Instant::now() + patience;
        let mut has_rung = self.has_rung.lock();
        while !*has_rung {
            if self.rings.wait_until(&mut has_rung, deadline).timed_out() {
                return false;
            }
        }
        *has_rung = false;
        true
    }
}

impl Worker {
    /// A worker with a queue of its own.
    pub fn new(backend: &dyn Backend) -> Self {
        let mut queue = backend.install_queue().expect("a queue opens");
        let bell = Arc::new(Bell::default());
        queue.set_waker(Waker::from(bell.clone()));
        Self { queue, bell, in_flight: 0, done: Vec::new(), chains_done: Vec::new() }
    }

    /// Hands changes over, and does not wait for what becomes of them.
    pub fn submit(&mut self, mut batch: Vec<Change>) {
        self.in_flight += batch.len();
        self.queue.submit(&mut batch, &mut self.done);
        assert!(batch.is_empty(), "a batch is taken as a whole");
    }

    /// Returns completions once nothing is in flight any more.
    ///
    /// # Panics
    ///
    /// If there are more or fewer than changes, or if nobody wakes the worker.
    pub fn finish(&mut self) -> Vec<Completion> {
        while self.done.len() < self.in_flight {
            assert!(self.bell.wait(), "{} of {} changes, and no wake-up", self.done.len(), self.in_flight);
            self.queue.poll(&mut self.done);
        }
        self.queue.poll(&mut self.done);
        assert_eq!(self.done.len(), self.in_flight, "every change is completed once");
        self.in_flight = 0;
        std::mem::take(&mut self.done)
    }

    /// Returns what is completed by now.
    pub fn poll(&mut self) -> &[Completion] {
        self.queue.poll(&mut self.done);
        &self.done
    }

    /// Hands changes over and waits for what becomes of them.
    pub fn make(&mut self, batch: Vec<Change>) -> Vec<Completion> {
        self.submit(batch);
        self.finish()
    }

    /// Hands a change to a chain over, and does not wait for what becomes of it.
    pub fn submit_chain(&mut self, chain: ChainId, operation: ChainOperation) {
        self.queue.submit_chain(ChainChange { chain, operation }, &mut self.chains_done);
    }

    /// Returns what became of the change to a chain that is in flight.
    ///
    /// # Panics
    ///
    /// If there are more completions than one, or if nobody wakes the worker.
    pub fn finish_chain(&mut self) -> ChainCompletion {
        while self.chains_done.is_empty() {
            assert!(self.bell.wait(), "a change to a chain is in flight, and no wake-up");
            self.queue.poll_chains(&mut self.chains_done);
        }
        self.queue.poll_chains(&mut self.chains_done);
        let done = self.chains_done.pop().expect("one");
        assert_eq!(self.chains_done, [], "a change to a chain is completed once");
        done
    }

    /// Returns what is completed of changes to chains by now.
    pub fn poll_chains(&mut self) -> &[ChainCompletion] {
        self.queue.poll_chains(&mut self.chains_done);
        &self.chains_done
    }

    /// Hands a change to a chain over and waits for what becomes of it.
    pub fn change_chain(&mut self, chain: ChainId, operation: ChainOperation) -> Result<(), Refusal> {
        self.submit_chain(chain, operation);
        let ChainCompletion { change, result } = self.finish_chain();
        assert_eq!(change, ChainChange { chain, operation }, "an answer to what was asked");
        result
    }
}
