//! The device as libibverbs sees it: the kernel's uverbs interface, over the same core.
//!
//! [`Device::ioctl`] takes the requests of a program in whose memory they lie, does what mlx5_ib would, and sends the commands that
//! it would send. A thread carries out what the program posts to its queues, since programs wait for that without calling anybody.
//! What gets the program's calls here is not in this crate, for it cannot do without unsafe code: see `tests/connectx/preload`.
//!
//! An object, method or attribute that is not modelled is refused, and kept for [`Device::refusals`].

mod command;
mod completions;
mod connections;
mod device;
mod devx;
mod engine;
mod faults;
mod flow;
mod gids;
mod ids;
mod kernel;
mod methods;
mod objects;
mod outlet;
mod place;
mod process;
mod qp;
mod request;
mod roots;
mod shared_receives;
mod specs;
mod state;
pub mod sysfs;
mod tables;
mod verbs_flow;
mod work_queues;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use parking_lot::Mutex;
use sluice_connectx::hca::Hca;
use sluice_connectx::profile::Profile;
use sluice_connectx::steering::{Port, Walk};

use engine::Engine;
use kernel::Kernel;
use objects::{Groups, RootTables};
use process::Process;
use request::Request;
use state::State;
pub use state::{ContextId, Privileges};

/// A device, and the programs' contexts on it. Copies are of the same device.
#[derive(Debug, Clone)]
pub struct Device {
    state: Arc<Mutex<State>>,
    engine: Arc<Engine>,
}

impl Device {
    /// Whether both are copies of one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// A device with software steering, if the profile's generation has it, that a kernel has initialized.
    ///
    /// # Errors
    /// If the profile cannot be initialized, with the reason.
    pub fn new(profile: Profile, privileges: Privileges) -> Result<Self, String> {
        let (kernel, hca) = Kernel::start(profile.with_software_steering()).map_err(|refused| refused.reason)?;
        let state = Arc::new(Mutex::new(State {
            hca,
            kernel,
            privileges,
            contexts: BTreeMap::new(),
            next_context: 1,
            roots: RootTables::default(),
            flows: Groups::new(),
            listeners: BTreeMap::new(),
            started: Instant::now(),
            refusals: Vec::new(),
            left_behind: Vec::new(),
            is_gone: false,
        }));
        let engine = Engine::start(&state).map_err(|error| format!("no thread for its queues: {error}"))?;
        Ok(Self { state, engine: Arc::new(engine) })
    }

    /// Has packets that no flow of the switch takes go to the function that manages it, as the kernel does in switchdev mode.
    /// Otherwise they are lost.
    ///
    /// # Errors
    /// If the device refuses, as it does where the function manages no switch.
    pub fn open_slow_path(&self) -> Result<(), String> {
        roots::open_slow_path(&mut self.state.lock()).map_err(|refused| refused.reason)
    }

    /// A program opens the device.
    #[must_use]
    pub fn open(&self) -> ContextId {
        let mut state = self.state.lock();
        let id = ContextId(state.next_context);
        state.next_context += 1;
        state.contexts.insert(id, state::Context::default());
        id
    }

    /// A program closes the device: what it has not destroyed is destroyed now, and kept for [`Device::left`].
    pub fn close(&self, context: ContextId) {
        self.state.lock().close(context);
    }

    /// A program's request, at `argument` in this process.
    ///
    /// # Errors
    /// As the ioctl fails.
    pub fn ioctl(&self, context: ContextId, argument: u64) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.is_gone {
            return Err(Errno::EIO);
        }
        let outcome = Request::read(&Process, argument).and_then(|request| state.request(context, &request));
        let paused = !self.engine.is_running();
        let late = state.hca.take_lateness();
        drop(state);
        if !paused {
            self.engine.wake();
        }
        if !late.is_zero() {
            std::thread::sleep(late);
        }
        outcome.map_err(|refused| refused.errno)
    }

    /// A packet comes in from the wire or from a vport. Everything that was posted before is carried out before it. Where the walk
    /// ends at a receive queue, the program has it there.
    pub fn receive(&self, from: Port, frame: &[u8]) -> Walk {
        let mut state = self.state.lock();
        if self.engine.is_running() {
            state.drain();
        }
        let walk = state.hca.receive(from, frame);
        state.hca.hand_over(&Process, &walk.received);
        state.tell_completions();
        walk
    }

    /// Uses the core: counters, faults, what it refused.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut Hca) -> T) -> T {
        use_it(&mut self.state.lock().hca)
    }

    /// A program may have posted something to a queue. The device's thread looks for that by itself, but not at once; and a program that
    /// is far ahead of it is held up here.
    pub fn posted(&self) {
        self.engine.posted();
    }

    /// From now on holds a program up whenever it has posted something ([`posted`](Self::posted)), until that is carried out: the completion
    /// is there when it looks for it, however the threads have their turns.
    pub fn keep_in_step(&self) {
        self.engine.keep_in_step();
    }

    /// Carries out what is posted to queues, and nothing from then on.
    pub fn hold(&self) {
        let mut state = self.state.lock();
        state.drain();
        self.engine.hold();
    }

    /// Carries out one request of a queue, while it is held back; whether there was one.
    pub fn step(&self) -> bool {
        self.state.lock().carry_out(1) > 0
    }

    /// Carries out again what is posted.
    pub fn release(&self) {
        self.engine.release();
    }

    /// All that was refused: requests, and commands to the device.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        let state = self.state.lock();
        state.refusals.iter().cloned().chain(state.hca.refusals().iter().map(ToString::to_string)).collect()
    }

    /// What programs have made and not destroyed, also those that have closed the device. Empty where everything was cleaned up.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let state = self.state.lock();
        let mut left = state.left_behind.clone();
        left.extend(state.hca.left().into_iter().filter(|name| !state.kernel.own.contains(name)));
        left
    }
}
