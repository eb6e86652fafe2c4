//! What stands in for `recvmsg`.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicU16, Ordering};

use libc::{msghdr, size_t, ssize_t};
use sluice_feedback::answer::{CONTROLLER, change, flow_family, kind};

use crate::link::{set_path, tend, with_memory};

/// Longer than all that the kernel puts into a datagram of a dump (32 KiB), and as long as ovs-vswitchd says that messages are.
const LONGEST: usize = 1 << 16;
/// Bytes of the shortest message that is looked at: the end of a dump, which is a header and a number.
const SHORTEST: usize = 20;
/// `NLMSG_DONE`. It comes with each look of ovs-vswitchd at its flows, even if there are none.
const DONE: u16 = 3;

/// libc's function; null until it is found.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The number of the family `ovs_flow`; 0 until ovs-vswitchd has asked for it.
static FAMILY: AtomicU16 = AtomicU16::new(0);

#[used]
// SAFETY: the section is an array of such functions, which the loader calls before the program begins.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    // SAFETY: the name is a string. The loader has loaded libc before it calls this.
    REAL.store(unsafe { libc::dlsym(libc::RTLD_NEXT, c"recvmsg".as_ptr()) }, Ordering::Relaxed);
    // SAFETY: the name is a string, and nobody changes the environment before the program begins.
    let path: *const c_char = unsafe { libc::getenv(c"SLUICE_OVS_FEEDBACK".as_ptr()) };
    if path.is_null() {
        set_path(&[]);
    } else {
        // SAFETY: what is in the environment is a string.
        set_path(unsafe { CStr::from_ptr(path) }.to_bytes());
    }
}

/// Receives as libc does, and adds to what the kernel answers about flows.
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
    let family = FAMILY.load(Ordering::Relaxed);
    let is_wanted = if family == 0 { kind == CONTROLLER } else { kind == family || kind == DONE };
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
        true => add(buffers, length, family),
        false => length,
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    ssize_t::try_from(length).unwrap_or(received)
}

/// libc's own function, or the kernel's call if this comes before the former is found.
///
/// # Safety
/// As of libc's `recvmsg`.
unsafe fn receive(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    type Receive = unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> ssize_t;
    let real = REAL.load(Ordering::Relaxed);
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

/// Adds to a datagram, and returns how long it is then. Apart, since it takes much of the stack.
#[inline(never)]
fn add(buffers: &mut [IoSliceMut<'_>], length: usize, family: u16) -> usize {
    let mut space = [const { MaybeUninit::<u8>::uninit() }; LONGEST];
    let Some(datagram) = gather(buffers, length, &mut space) else { return length };
    if family == 0 {
        if let Some(family) = flow_family(datagram) {
            FAMILY.store(family, Ordering::Relaxed);
        }
        return length;
    }
    let now = now();
    tend(now);
    with_memory(|memory| change(datagram, buffers, family, memory, now)).unwrap_or(length)
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
