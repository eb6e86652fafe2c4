//! The thread that carries out what programs post.
//!
//! Programs write requests into their own memory and wait there for completions, so that nothing calls: it has to look. It looks
//! all the time while there is something to do, less and less often when there has been nothing for a while, and sleeps while no queue
//! exists. Whoever knows that a program may have posted something tells it ([`Engine::posted`]), so that it looks at once.
//!
//! A program that waits for a completion does so without letting go of its processor. Where there are fewer of those than threads, this
//! thread would get its turn only when the other's is over, some milliseconds for each completion. So [`Engine::posted`] holds up whoever
//! is far ahead of the device, before it waits in its own way.
//!
//! As a device's queues are not for a child of fork, there is no such thread in one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{Builder, Thread, park_timeout, yield_now};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::state::State;

/// Requests until others get at the device.
const AT_ONCE: usize = 64;

/// Looks without a finding until it lets others have the processor in between, until it sleeps for a short while after each, and until
/// it sleeps longer.
const EAGER: u32 = 32;
const POLITE: u32 = EAGER + 16;
const SHORT_OF_WORK: u32 = POLITE + 200;
const SHORT: Duration = Duration::from_micros(20);
const LONG: Duration = Duration::from_micros(500);
/// How long it sleeps while no queue exists.
const OFF: Duration = Duration::from_millis(50);

/// How often somebody may have posted something that nobody has looked for yet. libmlx5 waits for completions when 16 requests are out,
/// and posts two each time.
const LEAD: u64 = 6;
/// How often somebody who is held up looks for the device to catch up, before sleeping until then, and for how long at most.
const LOOKS: u32 = 16;
const PATIENCE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Engine {
    bell: Arc<Bell>,
    thread: Thread,
}

/// What the thread and those who post know of each other.
#[derive(Debug, Default)]
struct Bell {
    /// Whether nobody holds the queues back.
    running: AtomicBool,
    /// Whether the thread looks at queues: nobody holds them back, and there are some.
    looking: AtomicBool,
    /// How often somebody may have posted something, and how many of these times the thread has looked since.
    posted: AtomicU64,
    looked: AtomicU64,
    /// Whether the thread sleeps, or is about to.
    asleep: AtomicBool,
    /// Whether nobody may be ahead of the device at all.
    in_step: AtomicBool,
    /// How many are held up, and what they wait for.
    held_up: AtomicUsize,
    gate: Mutex<()>,
    caught_up: Condvar,
}

impl Engine {
    /// Runs until the device is gone.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(crate) fn start(state: &Arc<Mutex<State>>) -> io::Result<Self> {
        let bell = Arc::new(Bell::default());
        bell.running.store(true, Ordering::Release);
        let (weak, shared) = (Arc::downgrade(state), Arc::clone(&bell));
        let handle = Builder::new().name("connectx".to_owned()).spawn(move || run(&weak, &shared))?;
        Ok(Self { bell, thread: handle.thread().clone() })
    }

    pub(crate) fn is_running(&self) -> bool {
        self.bell.running.load(Ordering::Acquire)
    }

    pub(crate) fn hold(&self) {
        self.bell.running.store(false, Ordering::Release);
    }

    pub(crate) fn release(&self) {
        self.bell.running.store(true, Ordering::Release);
        self.wake();
    }

    /// From now on holds up whoever posts until that is carried out.
    pub(crate) fn keep_in_step(&self) {
        self.bell.in_step.store(true, Ordering::Release);
    }

    /// Has it look soon.
    pub(crate) fn wake(&self) {
        self.thread.unpark();
    }

    /// Somebody may have posted something: has it look at once, and waits if that happens too often for it.
    pub(crate) fn posted(&self) {
        let bell = &*self.bell;
        let in_step = bell.in_step.load(Ordering::Acquire);
        let looks = if in_step { &bell.running } else { &bell.looking };
        if !looks.load(Ordering::Acquire) {
            return;
        }
        let posted = bell.posted.fetch_add(1, Ordering::SeqCst) + 1;
        if in_step || bell.asleep.load(Ordering::SeqCst) && bell.asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
        let mut times = 0;
        while bell.is_behind(posted) && looks.load(Ordering::Acquire) {
            if times < LOOKS {
                times += 1;
                std::hint::spin_loop();
                continue;
            }
            bell.wait(posted);
            if !in_step {
                return;
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The device goes with it, which the thread sees when it wakes.
        self.wake();
    }
}

impl Bell {
    fn is_behind(&self, posted: u64) -> bool {
        let lead = if self.in_step.load(Ordering::Relaxed) { 0 } else { LEAD };
        posted > self.looked.load(Ordering::SeqCst).saturating_add(lead)
    }

    fn wait(&self, posted: u64) {
        self.held_up.fetch_add(1, Ordering::SeqCst);
        let mut gate = self.gate.lock();
        // Asked behind the gate, which the thread passes before it tells.
        if self.is_behind(posted) {
            self.caught_up.wait_for(&mut gate, PATIENCE);
        }
        drop(gate);
        self.held_up.fetch_sub(1, Ordering::SeqCst);
    }

    /// Everything that was posted so many times is carried out.
    fn has_looked(&self, posted: u64) {
        self.looked.store(posted, Ordering::SeqCst);
        if self.held_up.load(Ordering::SeqCst) > 0 {
            drop(self.gate.lock());
            self.caught_up.notify_all();
        }
    }

    /// Sleeps, unless somebody has posted something since.
    fn sleep(&self, posted: u64, time: Duration) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.posted.load(Ordering::SeqCst) == posted {
            park_timeout(time);
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

fn run(state: &Weak<Mutex<State>>, bell: &Bell) {
    let mut idle = 0;
    while let Some(state) = state.upgrade() {
        let posted = bell.posted.load(Ordering::SeqCst);
        let mut state = state.lock();
        // Asked under the lock, so that nothing is carried out after a hold.
        let looks = bell.running.load(Ordering::Acquire) && state.hca.has_queues();
        bell.looking.store(looks, Ordering::Release);
        let done = if looks { state.carry_out(AT_ONCE) } else { 0 };
        // Others wait for it, too, and would not get it from a thread that takes it again at once.
        MutexGuard::unlock_fair(state);
        if done < AT_ONCE {
            bell.has_looked(posted);
        }
        idle = if done > 0 { 0 } else { idle + 1 };
        match idle {
            _ if !looks => park_timeout(OFF),
            0 => {}
            1..EAGER => std::hint::spin_loop(),
            EAGER..POLITE => yield_now(),
            POLITE..SHORT_OF_WORK => bell.sleep(posted, SHORT),
            _ => bell.sleep(posted, LONG),
        }
    }
}
