//! The connection to the agent, and the memory that came by it.
//!
//! A process has one set of everything here: the library is not called with anything to hang it on.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use rustix::net::{SocketAddrUnix, connect};
use sluice_feedback::protocol::{Message, Received, receive, send};
use sluice_feedback::{Attachment, MeterSetter, Refusal, SOCKET};

/// How long until the agent is looked for again, or looked at whether it is still there, in ms.
const PERIOD: u64 = 1000;
/// The same while its answer is awaited.
const IMPATIENCE: u64 = 10;

/// The socket's path, with a zero byte at its end: as long as the kernel takes one.
static PATH: [AtomicU8; 108] = [const { AtomicU8::new(0) }; 108];

/// Held by the thread that speaks to the agent. Nobody waits for it.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// The connection; -1 is none.
static CONNECTION: AtomicI32 = AtomicI32::new(-1);
/// When to look after the connection next, in ms of `CLOCK_MONOTONIC`.
static NEXT: AtomicU64 = AtomicU64::new(0);

const NONE: usize = usize::MAX;
/// Which of the places has the memory in use.
static CURRENT: AtomicUsize = AtomicUsize::new(NONE);
static PLACES: [Place; 2] = [const { Place { readers: AtomicUsize::new(0), memory: UnsafeCell::new(None) } }; 2];

struct Place {
    readers: AtomicUsize,
    memory: UnsafeCell<Option<Attachment>>,
}

// SAFETY: the memory is written only by the holder of `IS_BUSY`, while the place is not current and without readers; a reader looks at it
// only if the place was current after it had made itself known.
unsafe impl Sync for Place {}

/// The meters that this process has set.
pub(crate) static METERS: MeterSetter = MeterSetter::new();

/// Says where the agent is, once, before anything else here.
pub(crate) fn set_path(path: &[u8]) {
    let path = if path.is_empty() || path.len() >= PATH.len() { SOCKET.as_bytes() } else { path };
    PATH.iter().zip(path).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
}

/// Has `work` done with the memory, if there is one.
pub(crate) fn with_memory<R>(mut work: impl FnMut(&Attachment) -> R) -> Option<R> {
    // It changes once a second at most.
    for _ in 0..3 {
        let index = CURRENT.load(Ordering::SeqCst);
        let place = PLACES.get(index)?;
        place.readers.fetch_add(1, Ordering::SeqCst);
        let result = if CURRENT.load(Ordering::SeqCst) == index {
            // SAFETY: whoever would change the memory finds this place current, or this reader in it.
            let memory = unsafe { &*place.memory.get() };
            Some(memory.as_ref().map(&mut work))
        } else {
            None
        };
        place.readers.fetch_sub(1, Ordering::SeqCst);
        if let Some(result) = result {
            return result;
        }
    }
    None
}

/// Looks after the connection, if it is time and nobody else does. `now` is in ms of `CLOCK_MONOTONIC`.
pub(crate) fn tend(now: u64) {
    if now < NEXT.load(Ordering::Relaxed) || IS_BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    let is_waiting = match CONNECTION.swap(-1, Ordering::Relaxed) {
        -1 => open().is_some_and(keep),
        // SAFETY: it is the connection that was kept, and nobody else takes it meanwhile.
        file => hear(unsafe { OwnedFd::from_raw_fd(file) }),
    };
    NEXT.store(now.wrapping_add(if is_waiting { IMPATIENCE } else { PERIOD }), Ordering::Relaxed);
    IS_BUSY.store(false, Ordering::Release);
}

fn keep(connection: OwnedFd) -> bool {
    CONNECTION.store(connection.into_raw_fd(), Ordering::Relaxed);
    true
}

/// Connects and says hello.
fn open() -> Option<OwnedFd> {
    let path = PATH.each_ref().map(|byte| byte.load(Ordering::Relaxed));
    let address = SocketAddrUnix::new(CStr::from_bytes_until_nul(&path).ok()?).ok()?;
    // By libc, since rustix's function has a panic in it, though the kernel never gives a reason for that.
    // SAFETY: the arguments are numbers.
    let socket =
        unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if socket < 0 {
        return None;
    }
    // SAFETY: the kernel has just made it for this process.
    let connection = unsafe { OwnedFd::from_raw_fd(socket) };
    connect(&connection, &address).ok()?;
    let hello = |file: Option<BorrowedFd<'_>>| send(&connection, Message::Hello { tells_meters: true }, file);
    with_memory(|memory| hello(Some(memory.file()))).unwrap_or_else(|| hello(None)).then_some(connection)
}

/// Takes what the agent has said. Returns whether more is awaited.
fn hear(connection: OwnedFd) -> bool {
    let mut is_waiting = CURRENT.load(Ordering::Relaxed) == NONE;
    // Who sends without an end does not keep ovs-vswitchd from its work.
    for _ in 0..4 {
        match receive(&connection) {
            Received::Nothing => {
                keep(connection);
                return is_waiting;
            }
            Received::Message(Message::Memory, file) => {
                let verdict = match file.map_or(Some(Err(Refusal::None)), take) {
                    Some(Ok(())) => {
                        // The agent relies on them from then on.
                        METERS.renew();
                        with_memory(|memory| METERS.publish(memory));
                        Message::Taken
                    }
                    Some(Err(refusal)) => Message::Refused(refusal as u32),
                    None => return false,
                };
                is_waiting = false;
                if !send(&connection, verdict, None) {
                    return false;
                }
            }
            Received::End | Received::Garbage | Received::Message(..) => return false,
        }
    }
    keep(connection);
    false
}

/// Uses another memory from now on, unless it is the same. `None` if somebody still reads the one before the last: it is tried again with
/// another connection.
fn take(file: OwnedFd) -> Option<Result<(), Refusal>> {
    if with_memory(|memory| memory.is(file.as_fd())) == Some(true) {
        return Some(Ok(()));
    }
    let memory = match Attachment::new(file) {
        Ok(memory) => memory,
        Err(refusal) => return Some(Err(refusal)),
    };
    let index = usize::from(CURRENT.load(Ordering::SeqCst) == 0);
    let place = PLACES.get(index).filter(|place| place.readers.load(Ordering::SeqCst) == 0)?;
    // SAFETY: the place is not current and without readers, and only the holder of `IS_BUSY` gets here.
    unsafe { *place.memory.get() = Some(memory) };
    CURRENT.store(index, Ordering::SeqCst);
    Some(Ok(()))
}
