//! All that the kernel knows: the device, and what programs have made of it.

use std::collections::BTreeMap;
use std::time::Instant;

use nix::errno::Errno;
use sluice_connectx::hca::Hca;

use super::command::destroy_user_context;
use super::kernel::Kernel;
use super::objects::{Groups, Object, RootTables};
use super::outlet::Outlet;
use super::process::Process;
use super::request::Refused;

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

/// A context: an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContextId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) hca: Hca,
    pub(crate) kernel: Kernel,
    pub(crate) privileges: Privileges,
    pub(crate) contexts: BTreeMap<ContextId, Context>,
    pub(crate) next_context: u32,
    /// Tables of the kernel's that flows of programs go to.
    pub(crate) roots: RootTables,
    /// Flows of verbs in them.
    pub(crate) flows: Groups,
    /// Who hears of completions, by queue.
    pub(crate) listeners: BTreeMap<u32, Listener>,
    /// When the device's clock began.
    pub(crate) started: Instant,
    pub(crate) refusals: Vec<String>,
    pub(crate) left_behind: Vec<String>,
    /// Whether it was taken out.
    pub(crate) is_gone: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Context {
    /// The user context of the device, once the program has said who it is; 0 if it does not go past the driver.
    pub(crate) uid: u16,
    pub(crate) objects: BTreeMap<u32, Object>,
    /// Which objects an object uses: the kernel keeps them until it is gone.
    pub(crate) uses: BTreeMap<u32, Vec<u32>>,
    pub(crate) next_handle: u32,
    /// Where events go that come on their own.
    pub(crate) events: Vec<Outlet>,
    /// Where answers to queries go that need not be waited for, by the program's file.
    pub(crate) answers: BTreeMap<u64, Outlet>,
    /// Where events of completions go, by the program's file.
    pub(crate) channels: BTreeMap<u64, Channel>,
}

/// A file by which a program hears of completions: of each the program's own name of the queue comes out (`struct
/// ib_uverbs_comp_event_desc`).
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) outlet: Outlet,
    /// How many events each queue has had here, by its name.
    pub(crate) told: BTreeMap<u64, u32>,
}

/// Who hears of a queue's completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listener {
    pub(crate) context: ContextId,
    pub(crate) file: u64,
    pub(crate) name: u64,
}

impl State {
    /// Carries out everything that is posted.
    pub(crate) fn drain(&mut self) {
        const AT_ONCE: usize = 1 << 16;
        while self.carry_out(AT_ONCE) >= AT_ONCE {}
    }

    /// Carries out so much of what is posted; how much it was.
    pub(crate) fn carry_out(&mut self, limit: usize) -> usize {
        self.hca.tell_time(self.started.elapsed());
        let done = self.hca.run_queues(&Process, limit);
        self.tell_completions();
        done
    }

    pub(crate) fn context(&mut self, id: ContextId) -> Result<&mut Context, Refused> {
        self.contexts.get_mut(&id).ok_or_else(|| Refused::new(Errno::EBADF, "the context is closed"))
    }

    /// Keeps an object that a program has made: its handle.
    pub(crate) fn keep(&mut self, id: ContextId, object: Object) -> Result<u64, Refused> {
        let context = self.context(id)?;
        context.next_handle += 1;
        context.objects.insert(context.next_handle, object);
        Ok(context.next_handle.into())
    }

    /// The same of one that uses others, by their handles.
    pub(crate) fn keep_using(&mut self, id: ContextId, object: Object, used: Vec<u32>) -> Result<u64, Refused> {
        let handle = self.keep(id, object)?;
        let context = self.context(id)?;
        let user = context.next_handle;
        context.uses.insert(user, used);
        Ok(handle)
    }

    pub(crate) fn object(&mut self, id: ContextId, handle: u64) -> Result<&Object, Refused> {
        let missing = || Refused::new(Errno::ENOENT, format!("there is no object {handle}"));
        let handle = u32::try_from(handle).map_err(|_| missing())?;
        self.context(id)?.objects.get(&handle).ok_or_else(missing)
    }

    /// Destroys an object and forgets it, unless the device refuses.
    pub(crate) fn destroy(&mut self, id: ContextId, handle: u64) -> Result<(), Refused> {
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

    /// Takes back what a context has made, and keeps what that was.
    pub(crate) fn close(&mut self, id: ContextId) {
        let left = self.take_back(id);
        self.left_behind.extend(left);
    }

    /// Takes back what a context has made: what that was, and what stays all the same.
    pub(crate) fn take_back(&mut self, id: ContextId) -> Vec<String> {
        let mut left = Vec::new();
        let Some(context) = self.contexts.remove(&id) else { return left };
        self.listeners.retain(|_, listener| listener.context != id);
        // What was made last may use what was made before.
        for object in context.objects.into_values().rev() {
            left.push(format!("{object} of a context that was closed"));
            if let Err(Refused { reason, .. }) = self.undo(&object) {
                left.push(format!("{object}, which cannot be destroyed: {reason}"));
            }
        }
        if context.uid != 0
            && let Err(refused) = destroy_user_context(&mut self.hca, context.uid)
        {
            left.push(format!("user context {}: {}", context.uid, refused.reason));
        }
        left
    }
}

pub(crate) fn may_steer(state: &State) -> Result<(), Refused> {
    if state.privileges.net_raw { Ok(()) } else { Err(Refused::new(Errno::EPERM, "flows need CAP_NET_RAW")) }
}
