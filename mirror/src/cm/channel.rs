//! Event channels: files by which the connection manager tells what happened.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::time::Instant;

use rdma_sys as sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::time::timeout_at;

use super::error::CmError;
use super::event::{Event, EventKind};
use crate::verbs::{CallError, done, made};

/// How events are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// On the reactor of the tokio runtime that the identifier is made in.
    Reactor,
    /// By the calling thread, which blocks: each future of the identifier is ready when it is first polled. It needs no runtime.
    Blocking,
}

/// The channel of one identifier.
#[derive(Debug)]
pub(super) struct EventChannel {
    raw: NonNull<sys::rdma_event_channel>,
    /// There until the channel is destroyed, which closes the file; in the blocking mode it is not in a reactor.
    file: Option<Waiting>,
}

#[derive(Debug)]
enum Waiting {
    Reactor(AsyncFd<File>),
    Blocking(File),
}

/// The channel's file, which librdmacm closes.
#[derive(Debug)]
struct File(RawFd);

// SAFETY: librdmacm allows calls on a channel from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: and from several at a time.
unsafe impl Sync for EventChannel {}

/// What is read from a channel: what happened, and the new identifier if somebody asks for a connection.
pub(super) struct Told {
    pub(super) event: Event,
    pub(super) request: Option<NonNull<sys::rdma_cm_id>>,
}

impl EventChannel {
    pub(super) fn new(mode: Mode) -> Result<Self, CallError> {
        const CALL: &str = "rdma_create_event_channel";
        let told = |error: io::Error| CallError::new(CALL, error);
        if mode == Mode::Reactor {
            Handle::try_current().map_err(|error| told(io::Error::other(error)))?;
        }
        // SAFETY: it takes nothing.
        let raw = made(CALL, unsafe { sys::rdma_create_event_channel() })?;
        let mut channel = Self { raw, file: None };
        // SAFETY: the channel exists.
        let file = File(unsafe { raw.as_ref() }.fd);
        // In both modes, since a thread that blocks does so with a deadline.
        let flags = fcntl_getfl(&file).map_err(|errno| told(errno.into()))?;
        fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(|errno| told(errno.into()))?;
        channel.file = Some(match mode {
            Mode::Blocking => Waiting::Blocking(file),
            Mode::Reactor => {
                // SAFETY: the file stays open, and its number the same, until it is out of the reactor, which is before the channel is
                // destroyed.
                let registered = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
                Waiting::Reactor(registered.map_err(|error| told(error.into()))?)
            }
        });
        Ok(channel)
    }

    pub(super) fn mode(&self) -> Mode {
        if matches!(self.file, Some(Waiting::Reactor(_))) { Mode::Reactor } else { Mode::Blocking }
    }

    pub(super) fn raw(&self) -> *mut sys::rdma_event_channel {
        self.raw.as_ptr()
    }

    /// Waits for the next event, until a deadline if there is one.
    pub(super) async fn next(&self, deadline: Option<Instant>) -> Result<Told, CmError> {
        let gone = || CallError::new(GET, io::ErrorKind::NotConnected);
        match (self.file.as_ref().ok_or_else(gone)?, deadline) {
            (Waiting::Blocking(file), deadline) => self.block(file, deadline),
            (Waiting::Reactor(file), None) => self.wait(file).await,
            (Waiting::Reactor(file), Some(deadline)) => {
                timeout_at(deadline.into(), self.wait(file)).await.unwrap_or(Err(CmError::Silence))
            }
        }
    }

    async fn wait(&self, file: &AsyncFd<File>) -> Result<Told, CmError> {
        loop {
            let mut guard = file.readable().await.map_err(|error| CallError::new(GET, error))?;
            match self.read()? {
                Some(told) => return Ok(told),
                None => guard.clear_ready(),
            }
        }
    }

    fn block(&self, file: &File, deadline: Option<Instant>) -> Result<Told, CmError> {
        loop {
            if let Some(told) = self.read()? {
                return Ok(told);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(CmError::Silence);
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(file, PollFlags::IN)], left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(CallError::new(GET, io::Error::from(errno)).into()),
            }
        }
    }

    /// Takes an event, if there is one, and gives it back to the library: an identifier cannot be destroyed before.
    fn read(&self) -> Result<Option<Told>, CallError> {
        let mut event = null_mut();
        // SAFETY: the channel exists, and there is room for a pointer.
        match done(GET, unsafe { sys::rdma_get_cm_event(self.raw(), &raw mut event) }) {
            Ok(()) => {}
            Err(error) if error.source.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // SAFETY: the call returned an event, which is valid until it is acknowledged. Identifiers of datagrams are not made here, and
        // where nothing was sent along all of the parameters are zeroes.
        let told = unsafe {
            let told = &*event;
            let connection = &told.param.conn;
            let length = usize::from(connection.private_data_len);
            let private_data = match NonNull::new(connection.private_data.cast_mut().cast::<u8>()) {
                Some(data) => slice::from_raw_parts(data.as_ptr(), length).to_vec(),
                None => Vec::new(),
            };
            let kind = EventKind::new(told.event);
            let request = if kind == EventKind::ConnectRequest { NonNull::new(told.id) } else { None };
            let event = Event { kind, status: told.status, remote: connection.qp_num, private_data };
            Told { event, request }
        };
        // SAFETY: it is acknowledged once, and not looked at any more.
        done("rdma_ack_cm_event", unsafe { sys::rdma_ack_cm_event(event) })?;
        Ok(Some(told))
    }
}

const GET: &str = "rdma_get_cm_event";

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

impl Drop for EventChannel {
    fn drop(&mut self) {
        // Out of the reactor before the file is closed, whose number may be another's at once.
        self.file = None;
        // SAFETY: the identifier that it serves is destroyed.
        unsafe { sys::rdma_destroy_event_channel(self.raw()) };
    }
}
