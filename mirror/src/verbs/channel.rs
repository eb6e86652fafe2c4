//! Completion channels: files by which the device tells of completions, on tokio's reactor.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rdma_sys as sys;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::Notify;

use super::context::Context;
use super::error::{CallError, done, made};

/// A completion channel, which may serve several completion queues. Copies are of the same one. Whoever waits for one of its queues is woken
/// by events of all, and an event costs one call of the kernel less if there is only one.
#[derive(Debug, Clone)]
pub struct CompletionChannel(Arc<Channel>);

#[derive(Debug)]
struct Channel {
    raw: NonNull<sys::ibv_comp_channel>,
    /// There until the channel is destroyed, which closes the file.
    file: Option<AsyncFd<File>>,
    queues: Mutex<Queues>,
    context: Context,
}

// SAFETY: libibverbs allows calls on a channel from any thread.
unsafe impl Send for Channel {}
// SAFETY: and events are read under a lock only.
unsafe impl Sync for Channel {}

/// The queues that a channel serves, by a number of ours.
#[derive(Debug, Default)]
struct Queues {
    next: usize,
    told: HashMap<usize, Arc<Told>>,
}

/// What a queue was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    notify: Notify,
    /// Events that were read, and that the library does not know to be over yet.
    unacknowledged: AtomicU32,
}

/// The channel's file, which libibverbs closes.
#[derive(Debug)]
struct File(RawFd);

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is dropped before the channel is destroyed, with which the file is closed.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl CompletionChannel {
    /// Creates a channel, in the reactor of the tokio runtime that this is called in.
    ///
    /// # Errors
    /// Fails outside of a runtime, or as `ibv_create_comp_channel` fails.
    ///
    /// # Panics
    /// Panics in a runtime without I/O.
    pub fn new(context: &Context) -> Result<Self, CallError> {
        const CALL: &str = "ibv_create_comp_channel";
        Handle::try_current().map_err(|error| CallError::new(CALL, io::Error::other(error)))?;
        // SAFETY: the context is open.
        let raw = made(CALL, unsafe { sys::ibv_create_comp_channel(context.raw()) })?;
        let queues = Mutex::default();
        let mut channel = Channel { raw, file: None, queues, context: context.clone() };
        // SAFETY: the channel exists.
        let fd = unsafe { raw.as_ref() }.fd;
        let file = File(fd);
        let told = |error: io::Error| CallError::new(CALL, error);
        let flags = fcntl_getfl(&file).map_err(|errno| told(errno.into()))?;
        fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(|errno| told(errno.into()))?;
        // SAFETY: the file stays open, and its number the same, until it is out of the reactor, which is before the channel is destroyed.
        let registered = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        channel.file = Some(registered.map_err(|error| told(error.into()))?);
        Ok(Self(Arc::new(channel)))
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Has `create` make a queue of which this channel tells, by the number that it is given.
    pub(super) fn serve<T>(
        &self,
        create: impl FnOnce(*mut sys::ibv_comp_channel, *mut std::ffi::c_void) -> Result<T, CallError>,
    ) -> Result<(T, usize, Arc<Told>), CallError> {
        let mut queues = self.0.queues.lock();
        queues.next += 1;
        let number = queues.next;
        let queue = create(self.0.raw.as_ptr(), without_provenance_mut(number))?;
        let told = Arc::new(Told::default());
        queues.told.insert(number, Arc::clone(&told));
        Ok((queue, number, told))
    }

    /// Has `destroy` destroy a queue that this channel serves. No event of it is read meanwhile, since each refers to it.
    pub(super) fn dismiss(&self, number: usize, destroy: impl FnOnce()) {
        let mut queues = self.0.queues.lock();
        queues.told.remove(&number);
        destroy();
    }

    /// Waits until the channel tells of a queue.
    pub(super) async fn wait(&self, told: &Told) -> Result<(), CallError> {
        const CALL: &str = "ibv_get_cq_event";
        let gone = || CallError::new(CALL, io::ErrorKind::NotConnected);
        let file = self.0.file.as_ref().ok_or_else(gone)?;
        loop {
            select! {
                // What was read is used before it is asked whether there is more.
                biased;
                () = told.notify.notified() => return Ok(()),
                guard = file.readable() => {
                    let mut guard = guard.map_err(|error| CallError::new(CALL, error))?;
                    let was_there = self.read_event()?;
                    // Whether there is another event costs a call. One of the same queue would tell nothing new, since whoever is woken takes
                    // all completions, and each later event makes the file readable anew.
                    if !was_there || self.serves_one() {
                        guard.clear_ready();
                    }
                }
            }
        }
    }

    fn serves_one(&self) -> bool {
        self.0.queues.lock().told.len() == 1
    }

    /// Reads an event and tells its queue. Returns whether there was one.
    fn read_event(&self) -> Result<bool, CallError> {
        let queues = self.0.queues.lock();
        let (mut queue, mut number) = (null_mut(), null_mut());
        // SAFETY: there is room for both, and queues are destroyed under the lock only, so that an event is of one that exists.
        let code = unsafe { sys::ibv_get_cq_event(self.0.raw.as_ptr(), &raw mut queue, &raw mut number) };
        match done("ibv_get_cq_event", code) {
            Ok(()) => {
                if let Some(told) = queues.told.get(&number.addr()) {
                    told.unacknowledged.fetch_add(1, Ordering::Relaxed);
                    told.notify.notify_one();
                }
                Ok(true)
            }
            Err(error) if error.source.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Told {
    /// Takes the events that are to be acknowledged, if there are at least so many.
    pub(super) fn take(&self, least: u32) -> Option<u32> {
        let ready = self.unacknowledged.load(Ordering::Relaxed);
        (ready >= least.max(1)).then(|| self.unacknowledged.swap(0, Ordering::Relaxed)).filter(|events| *events > 0)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Out of the reactor before the file is closed, whose number may be another's at once.
        self.file = None;
        // SAFETY: queues that it serves keep it, and are gone.
        unsafe { sys::ibv_destroy_comp_channel(self.raw.as_ptr()) };
    }
}
