//! The thread that carries out what programs post.
//!
//! Programs write requests into their own memory and wait there for completions, so that nothing calls: it has to look. It looks
//! often while there is something to do, less often when there has been nothing for a while, and sleeps while no queue exists.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::state::State;

/// Requests until others get at the device.
const AT_ONCE: usize = 64;
/// Looks without a finding until it looks less often.
const EAGER: u32 = 200;
const SHORT: Duration = Duration::from_micros(20);
const LONG: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub(crate) struct Engine {
    running: Arc<AtomicBool>,
    thread: Option<Thread>,
}

impl Engine {
    /// Runs until the device is gone.
    pub(crate) fn start(state: &Arc<Mutex<State>>) -> Self {
        let running = Arc::new(AtomicBool::new(true));
        let (weak, is_running) = (Arc::downgrade(state), Arc::clone(&running));
        let builder = std::thread::Builder::new().name("connectx".to_owned());
        let handle = builder.spawn(move || run(&weak, &is_running)).ok();
        Self { running, thread: handle.map(|handle| handle.thread().clone()) }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    pub(crate) fn hold(&self) {
        self.running.store(false, Ordering::Release);
    }

    pub(crate) fn release(&self) {
        self.running.store(true, Ordering::Release);
        self.wake();
    }

    /// Has it look soon.
    pub(crate) fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The device goes with it, which the thread sees when it wakes.
        self.wake();
    }
}

fn run(state: &Weak<Mutex<State>>, running: &AtomicBool) {
    let mut idle = 0;
    while let Some(state) = state.upgrade() {
        let mut state = state.lock();
        // Asked under the lock, so that nothing is carried out after a hold.
        let runs = running.load(Ordering::Acquire) && state.hca.has_queues();
        let done = if runs { state.carry_out(AT_ONCE) } else { 0 };
        drop(state);
        match done {
            0 if !runs => std::thread::park_timeout(Duration::from_millis(50)),
            0 => {
                idle += 1;
                std::thread::park_timeout(if idle < EAGER { SHORT } else { LONG });
            }
            _ => idle = 0,
        }
    }
}
