//! What stands in for `recvmsg` and `sendmsg`.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, Ordering};

use libc::{msghdr, size_t, ssize_t};
use sluice_feedback::answer::meter::{agreed, change_meters, requested};
use sluice_feedback::answer::{CONTROLLER, change, family, kind};

use crate::link::{METERS, set_path, tend, with_memory};

/// Longer than all that the kernel puts into a datagram of a dump (32 KiB), and as long as ovs-vswitchd says that messages are.
const LONGEST: usize = 1 << 16;
/// Bytes of the shortest message that is looked at: the end of a dump, which is a header and a number.
const SHORTEST: usize = 20;
/// `NLMSG_DONE`. It comes with each look of ovs-vswitchd at its flows, even if there are none.
const DONE: u16 = 3;

/// libc's functions; null until they are found.
static RECEIVE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static SEND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The number of the family `ovs_flow`; 0 until ovs-vswitchd has asked for it.
static FLOW_FAMILY: AtomicU16 = AtomicU16::new(0);
/// The same of `ovs_meter`.
static METER_FAMILY: AtomicU16 = AtomicU16::new(0);
/// Whether this process has asked for a change of a meter.
static HAS_ASKED: AtomicBool = AtomicBool::new(false);

#[used]
// SAFETY: the section is an array of such functions, which the loader calls before the program begins.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    // SAFETY: the name is a string. The loader has loaded libc before it calls this.
    RECEIVE.store(unsafe { libc::dlsym(libc::RTLD_NEXT, c"recvmsg".as_ptr()) }, Ordering::Relaxed);
    // SAFETY: as above.
    SEND.store(unsafe { libc::dlsym(libc::RTLD_NEXT, c"sendmsg".as_ptr()) }, Ordering::Relaxed);
    // SAFETY: the name is a string, and nobody changes the environment before the program begins.
    let path: *const c_char = unsafe { libc::getenv(c"SLUICE_OVS_FEEDBACK".as_ptr()) };
    if path.is_null() {
        set_path(&[]);
    } else {
        // SAFETY: what is in the environment is a string.
        set_path(unsafe { CStr::from_ptr(path) }.to_bytes());
    }
}

/// Receives as libc does, and adds to what the kernel answers about flows and meters.
///
/// # Safety
/// As of libc's: `message` and what it points to may be written.
// SAFETY: the name is libc's on purpose, and so are arguments and result.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: arguments go on as they came.
    let received = unsafe { receive(socket, message, flags) };
    let Some(length) = usize::try_from(received).ok().filter(|length| *length >= SHORTEST) else { return received };
    // SAFETY: the kernel has read it, so it is there.
    let buffers = unsafe { buffers(message) };
    // ovs-vswitchd's first buffer has room for many messages; what is split earlier is not its.
    let Some(kind) = buffers.first().and_then(|first| kind(first)) else { return received };
    let families = Families::known();
    let is_wanted =
        kind != 0 && (kind == CONTROLLER || kind == DONE || kind == families.flows || kind == families.meters);
    // SAFETY: as above.
    if !is_wanted || unsafe { (*message).msg_flags } & libc::MSG_TRUNC != 0 {
        return received;
    }
    // SAFETY: libc has a place for it in each thread.
    let errno = unsafe { *libc::__errno_location() };
    let length = match is_generic_netlink(socket) {
        true if kind == DONE => {
            tend(now());
            length
        }
        true => look(socket, buffers, length, families),
        false => length,
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    ssize_t::try_from(length).unwrap_or(received)
}

/// Sends as libc does, and sees what is asked for meters.
///
/// # Safety
/// As of libc's: `message` and what it points to may be read.
// SAFETY: the name is libc's on purpose, and so are arguments and result.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let family = METER_FAMILY.load(Ordering::Relaxed);
    if family != 0 {
        // SAFETY: the caller promises that it is there.
        let request = unsafe { first_buffer(message) };
        if let Some(request) = request.and_then(|request| requested(request, family))
            && is_generic_netlink(socket)
        {
            if !HAS_ASKED.swap(true, Ordering::Relaxed) {
                // Not when the library is loaded: ovs-vswitchd may watch over itself (`--monitor`), and when it dies the next one is a copy of
                // the process that watches, in which this was not called.
                METERS.begin(u16::try_from(now() & 0xffff).unwrap_or(0));
            }
            // Before it goes: another thread may receive the answer.
            METERS.ask(socket, &request);
        }
    }
    // SAFETY: arguments go on as they came.
    unsafe { send(socket, message, flags) }
}

/// Numbers of families; 0 until ovs-vswitchd has asked for them.
#[derive(Clone, Copy)]
struct Families {
    flows: u16,
    meters: u16,
}

impl Families {
    fn known() -> Self {
        Self { flows: FLOW_FAMILY.load(Ordering::Relaxed), meters: METER_FAMILY.load(Ordering::Relaxed) }
    }

    /// Takes those that the kernel tells of.
    fn learn(datagram: &[u8]) {
        for (number, name) in [(&FLOW_FAMILY, &b"ovs_flow\0"[..]), (&METER_FAMILY, b"ovs_meter\0")] {
            if let Some(family) = family(datagram, name) {
                number.store(family, Ordering::Relaxed);
            }
        }
    }
}

/// libc's own function, or the kernel's call if this comes before the former is found.
///
/// # Safety
/// As of libc's `recvmsg`.
unsafe fn receive(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    type Receive = unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> ssize_t;
    let real = RECEIVE.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: arguments go on as they came, and the kernel's structure is libc's on 64-bit targets.
        let received = unsafe { libc::syscall(libc::SYS_recvmsg, socket, message, flags) };
        return ssize_t::try_from(received).unwrap_or(-1);
    }
    // SAFETY: it is libc's function of that name, or that of another library that stands in for it.
    let real: Receive = unsafe { std::mem::transmute::<*mut c_void, Receive>(real) };
    // SAFETY: arguments go on as they came.
    unsafe { real(socket, message, flags) }
}

/// The same for `sendmsg`.
///
/// # Safety
/// As of libc's `sendmsg`.
unsafe fn send(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    type Send = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;
    let real = SEND.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: arguments go on as they came, and the kernel's structure is libc's on 64-bit targets.
        let sent = unsafe { libc::syscall(libc::SYS_sendmsg, socket, message, flags) };
        return ssize_t::try_from(sent).unwrap_or(-1);
    }
    // SAFETY: it is libc's function of that name, or that of another library that stands in for it.
    let real: Send = unsafe { std::mem::transmute::<*mut c_void, Send>(real) };
    // SAFETY: arguments go on as they came.
    unsafe { real(socket, message, flags) }
}

/// What a message begins with: all of it, if ovs-vswitchd asks for one thing.
///
/// # Safety
/// `message` and its buffers are there until the end of the borrow, and nobody writes them.
unsafe fn first_buffer<'a>(message: *const msghdr) -> Option<&'a [u8]> {
    // SAFETY: the caller promises that it is there.
    let (first, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen as size_t) };
    if first.is_null() || count == 0 {
        return None;
    }
    // SAFETY: the caller promises that it is there.
    let (base, length) = unsafe { ((*first).iov_base, (*first).iov_len) };
    // SAFETY: as above, of the bytes.
    (!base.is_null()).then(|| unsafe { slice::from_raw_parts(base.cast(), length) })
}

/// # Safety
/// `message` and its buffers are there and nobody else's until this returns, as after a `recvmsg` that did not fail.
unsafe fn buffers<'a>(message: *mut msghdr) -> &'a mut [IoSliceMut<'a>] {
    // SAFETY: the caller promises that it is there.
    let (first, count) = unsafe { ((*message).msg_iov, (*message).msg_iovlen as size_t) };
    if first.is_null() {
        return &mut [];
    }
    // SAFETY: the standard library promises that an `IoSliceMut` is laid out as an `iovec`, and the caller that they are there. Bytes that
    // the kernel has not written are only written here.
    unsafe { slice::from_raw_parts_mut(first.cast(), count) }
}

/// Whether it is a socket by which the kernel's modules are spoken to: types of messages are numbers that others have as well.
fn is_generic_netlink(socket: c_int) -> bool {
    let is = |option, wanted: c_int| {
        let mut value: c_int = -1;
        let mut length: libc::socklen_t = 4;
        let (to, length): (*mut c_int, _) = (&raw mut value, &raw mut length);
        // SAFETY: both places are there, and the second says how long the first is.
        let outcome = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, option, to.cast(), length) };
        outcome == 0 && value == wanted
    };
    is(libc::SO_DOMAIN, libc::AF_NETLINK) && is(libc::SO_PROTOCOL, libc::NETLINK_GENERIC)
}

/// Looks at a datagram, adds to it, and returns how long it is then. Apart, since it takes much of the stack.
#[inline(never)]
fn look(socket: c_int, buffers: &mut [IoSliceMut<'_>], length: usize, families: Families) -> usize {
    let mut space = [const { MaybeUninit::<u8>::uninit() }; LONGEST];
    let Some(datagram) = gather(buffers, length, &mut space) else { return length };
    let kind = kind(datagram).unwrap_or(0);
    if kind == CONTROLLER {
        Families::learn(datagram);
        return length;
    }
    let is_of_meters = kind == families.meters;
    if is_of_meters && let Some(agreed) = agreed(datagram, kind) {
        METERS.take(socket, agreed);
    }
    let now = now();
    tend(now);
    let changed = with_memory(|memory| {
        METERS.publish(memory);
        if is_of_meters {
            change_meters(datagram, buffers, kind, memory);
            return length;
        }
        change(datagram, buffers, kind, memory, now)
    });
    changed.unwrap_or(length)
}

/// The time of `CLOCK_MONOTONIC` in ms, as of the kernel's last tick. Asked of libc, which does not fail.
fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.wrapping_mul(1000).wrapping_add(u64::try_from(now.tv_nsec / 1_000_000).unwrap_or(0))
}

/// Copies what was received to one place. `None` if it does not fit, or is more than the buffers hold.
fn gather<'a>(
    buffers: &[IoSliceMut<'_>],
    length: usize,
    space: &'a mut [MaybeUninit<u8>; LONGEST],
) -> Option<&'a mut [u8]> {
    let space = space.get_mut(..length)?;
    let mut rest = &mut *space;
    for buffer in buffers {
        let count = buffer.len().min(rest.len());
        let (here, behind) = rest.split_at_mut_checked(count)?;
        here.iter_mut().zip(buffer.iter()).for_each(|(to, from)| {
            to.write(*from);
        });
        rest = behind;
    }
    if !rest.is_empty() {
        return None;
    }
    // SAFETY: each byte of it was written.
    Some(unsafe { space.assume_init_mut() })
}
