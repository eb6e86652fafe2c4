//! Events of a device that nobody has asked for.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::library::{Functions, RawContext};

/// Where such events come, for another thread than that of the device.
///
/// libmlx5 waits without end for what it has posted to a device that is dead, until somebody takes the event that says so
/// (`mlx5_async_event`).
pub struct Events {
    /// libibverbs' own file once more, so that it can be waited for while the device is closed.
    file: OwnedFd,
    source: Source,
}

/// What libibverbs needs to give an event, until the device is closed.
#[derive(Clone)]
pub(super) struct Source(Arc<Mutex<Option<Open>>>);

struct Open {
    context: NonNull<RawContext>,
    get: unsafe extern "C" fn(*mut RawContext, *mut AsyncEvent) -> c_int,
    acknowledge: unsafe extern "C" fn(*mut AsyncEvent),
}

// SAFETY: libibverbs lets any thread ask for the events of a device that is open.
unsafe impl Send for Open {}

/// What has happened to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is dead (`IBV_EVENT_DEVICE_FATAL`).
    Died,
    /// Something else.
    Other,
}

/// `ibv_async_event`
#[repr(C)]
pub(super) struct AsyncEvent {
    /// A union of pointers and a port number.
    pub(super) element: *mut c_void,
    pub(super) kind: u32,
}

/// The beginning of `ibv_context`.
#[repr(C)]
pub(super) struct ContextHead {
    device: *mut c_void,
    operations: [*mut c_void; 32],
    command_file: c_int,
    pub(super) async_file: c_int,
}

/// `IBV_EVENT_DEVICE_FATAL`
pub(super) const DEVICE_FATAL: u32 = 8;

impl Source {
    pub(super) fn new(context: NonNull<RawContext>, functions: &Functions) -> Self {
        let (get, acknowledge) = (functions.ibv_get_async_event, functions.ibv_ack_async_event);
        Self(Arc::new(Mutex::new(Some(Open { context, get, acknowledge }))))
    }

    /// The device is about to be closed: nobody asks for events any more.
    pub(super) fn close(&self) {
        self.0.lock().take();
    }

    /// Opens what a thread takes events by. Fails if there are too many files.
    pub(super) fn events(&self) -> io::Result<Events> {
        let source = self.0.lock();
        let Some(open) = &*source else { return Err(io::ErrorKind::NotConnected.into()) };
        // SAFETY: the device is open, and its context begins so.
        let file = unsafe { open.context.cast::<ContextHead>().as_ref() }.async_file;
        // SAFETY: the file is open as long as the device is.
        let file = unsafe { BorrowedFd::borrow_raw(file) }.try_clone_to_owned()?;
        Ok(Events { file, source: self.clone() })
    }
}

impl Events {
    /// Waits for an event. Returns `None` if none has come within `patience`; fails if none will come any more.
    pub fn wait(&self, patience: Duration) -> io::Result<Option<Happened>> {
        let patience = Timespec::try_from(patience).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut files = [PollFd::new(&self.file, PollFlags::IN)];
        match poll(&mut files, Some(&patience)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let source = self.source.0.lock();
        let Some(Open { context, get, acknowledge }) = &*source else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let mut event = AsyncEvent { element: std::ptr::null_mut(), kind: 0 };
        // SAFETY: the device is open while the lock is held, and there is room for an event.
        if unsafe { get(context.as_ptr(), &raw mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is the event that was given, and is acknowledged once.
        unsafe { acknowledge(&raw mut event) };
        Ok(Some(if event.kind == DEVICE_FATAL { Happened::Died } else { Happened::Other }))
    }
}
