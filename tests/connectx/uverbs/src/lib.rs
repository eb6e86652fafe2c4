//! The device as libibverbs sees it: the kernel's uverbs interface, over the same core.
//!
//! [`Device::ioctl`] takes the requests of a program in whose memory they lie, does what mlx5_ib would, and sends the commands that
//! it would send. A thread carries out what the program posts to its queues, since programs wait for that without calling anybody.
//! What gets the program's calls here is not in this crate, for it cannot do without unsafe code: see `tests/connectx/uverbs`.
//!
//! An object, method or attribute that is not modelled is refused, and kept for [`Device::refusals`].

mod completions;
mod device;
mod devx;
mod engine;
mod flow;
mod ids;
mod kernel;
mod methods;
mod outlet;
mod process;
mod qp;
mod request;
mod roots;
mod specs;
pub mod sysfs;
mod verbs_flow;
mod work_queues;

use std::collections::BTreeMap;
use std::sync::Arc;

use nix::errno::Errno;
use parking_lot::Mutex;
use sluice_connectx::hca::Hca;
use sluice_connectx::profile::Profile;
use sluice_connectx::steering::{Port, Walk};

use completions::{Channel, Listener};
use engine::Engine;
use kernel::Kernel;
use methods::Object;
use outlet::Outlet;
use process::Process;
use request::{Refused, Request};
use roots::RootTables;
use verbs_flow::Groups;

/// Why a request is refused by which libibverbs only finds out what the kernel understands. It is no mistake, and not kept.
const PROBE: &str = "no room for an answer";

/// What the kernel lets a program do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privileges {
    /// CAP_NET_RAW: flows.
    pub net_raw: bool,
    /// CAP_SYS_RAWIO, which steering memory needs besides.
    pub sys_rawio: bool,
}

impl Privileges {
    /// Those of root.
    pub const ALL: Self = Self { net_raw: true, sys_rawio: true };
    /// Those of anybody.
    pub const NONE: Self = Self { net_raw: false, sys_rawio: false };
}

/// A device, and the programs' contexts on it. Copies are of the same device.
#[derive(Debug, Clone)]
pub struct Device {
    state: Arc<Mutex<State>>,
    engine: Arc<Engine>,
}

/// A context: an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContextId(u32);

#[derive(Debug)]
struct State {
    hca: Hca,
    kernel: Kernel,
    privileges: Privileges,
    contexts: BTreeMap<ContextId, Context>,
    next_context: u32,
    /// Tables of the kernel's that flows of programs go to.
    roots: RootTables,
    /// Flows of verbs in them.
    flows: Groups,
    /// Who hears of completions, by queue.
    listeners: BTreeMap<u32, Listener>,
    refusals: Vec<String>,
    left_behind: Vec<String>,
}

#[derive(Debug, Default)]
struct Context {
    /// The user context of the device, once the program has said who it is; 0 if it does not go past the driver.
    uid: u16,
    objects: BTreeMap<u32, Object>,
    /// Which objects an object uses: the kernel keeps them until it is gone.
    uses: BTreeMap<u32, Vec<u32>>,
    next_handle: u32,
    /// Where events go that come on their own.
    events: Vec<Outlet>,
    /// Where answers to queries go that need not be waited for, by the program's file.
    answers: BTreeMap<u64, Outlet>,
    /// Where events of completions go, by the program's file.
    channels: BTreeMap<u64, Channel>,
}

impl Device {
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
            refusals: Vec::new(),
            left_behind: Vec::new(),
        }));
        let engine = Engine::start(&state);
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
        state.contexts.insert(id, Context::default());
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
        let outcome = Request::read(&Process, argument).and_then(|request| state.request(context, &request));
        let paused = !self.engine.is_running();
        drop(state);
        if !paused {
            self.engine.wake();
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

    /// Carries out what is posted to queues, unless somebody else is at it, or it is held back. The device does so by itself; this is
    /// for who would otherwise wait.
    pub fn carry_out(&self) {
        if let Some(mut state) = self.state.try_lock()
            && self.engine.is_running()
        {
            state.drain();
        }
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

    /// Tells every program that the device is ill for good, as its driver does that has noticed: an event that comes on its own. What
    /// programs ask for is still carried out, since a driver goes on to take back what they have.
    ///
    /// # Errors
    /// If a program has so many events that it has not read that there is no room for one more.
    pub fn tell_fatal(&self) -> Result<(), Errno> {
        const DEVICE_FATAL: u32 = 8;
        // What it is about, of what kind it is, and nothing.
        let mut event = [0; 16];
        event[8..12].copy_from_slice(&DEVICE_FATAL.to_le_bytes());
        let state = self.state.lock();
        let mut events = state.contexts.values().flat_map(|context| &context.events);
        events.try_for_each(|outlet| outlet.put(&event))
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

impl State {
    fn request(&mut self, context: ContextId, request: &Request<'_>) -> Result<(), Refused> {
        let outcome = methods::find(request).and_then(|method| {
            request.require_known(method.attributes)?;
            (method.run)(self, context, request)
        });
        if let Err(Refused { errno, reason }) = &outcome
            && reason != PROBE
        {
            let name = methods::name(request);
            self.refusals.push(format!("{name} refused with {errno:?}: {reason} [{}]", request.describe()));
        }
        outcome
    }

    /// Carries out everything that is posted.
    fn drain(&mut self) {
        const AT_ONCE: usize = 1 << 16;
        while self.carry_out(AT_ONCE) >= AT_ONCE {}
    }

    /// Carries out so much of what is posted; how much it was.
    fn carry_out(&mut self, limit: usize) -> usize {
        let done = self.hca.run_queues(&Process, limit);
        self.tell_completions();
        done
    }

    fn context(&mut self, id: ContextId) -> Result<&mut Context, Refused> {
        self.contexts.get_mut(&id).ok_or_else(|| Refused::new(Errno::EBADF, "the context is closed"))
    }

    /// Keeps an object that a program has made: its handle.
    fn keep(&mut self, id: ContextId, object: Object) -> Result<u64, Refused> {
        let context = self.context(id)?;
        context.next_handle += 1;
        context.objects.insert(context.next_handle, object);
        Ok(context.next_handle.into())
    }

    /// The same of one that uses others, by their handles.
    fn keep_using(&mut self, id: ContextId, object: Object, used: Vec<u32>) -> Result<u64, Refused> {
        let handle = self.keep(id, object)?;
        let context = self.context(id)?;
        let user = context.next_handle;
        context.uses.insert(user, used);
        Ok(handle)
    }

    fn object(&mut self, id: ContextId, handle: u64) -> Result<&Object, Refused> {
        let missing = || Refused::new(Errno::ENOENT, format!("there is no object {handle}"));
        let handle = u32::try_from(handle).map_err(|_| missing())?;
        self.context(id)?.objects.get(&handle).ok_or_else(missing)
    }

    /// Destroys an object and forgets it, unless the device refuses.
    fn destroy(&mut self, id: ContextId, handle: u64) -> Result<(), Refused> {
        let object = self.object(id, handle)?.clone();
        let number = u32::try_from(handle).unwrap_or_default();
        if self.context(id)?.uses.values().flatten().any(|used| *used == number) {
            return Err(Refused::new(Errno::EBUSY, format!("{object} is in use")));
        }
        self.undo(&object)?;
        let context = self.context(id)?;
        context.objects.remove(&number);
        context.uses.remove(&number);
        Ok(())
    }

    fn close(&mut self, id: ContextId) {
        let Some(context) = self.contexts.remove(&id) else { return };
        self.listeners.retain(|_, listener| listener.context != id);
        // What was made last may use what was made before.
        for object in context.objects.into_values().rev() {
            self.left_behind.push(format!("{object} of a context that was closed"));
            if let Err(Refused { reason, .. }) = self.undo(&object) {
                self.left_behind.push(format!("{object}, which cannot be destroyed: {reason}"));
            }
        }
        if context.uid != 0
            && let Err(refused) = methods::destroy_user_context(&mut self.hca, context.uid)
        {
            self.left_behind.push(format!("user context {}: {}", context.uid, refused.reason));
        }
    }
}
