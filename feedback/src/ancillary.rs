//! Messages of a socket with a file beside them, and who is at its other end. Errors are those of `errno`.
//!
//! By calls of the kernel: libc's `recvmsg` is the library's own in ovs-vswitchd, and rustix's way to read what is beside a message can
//! panic, which nothing there may. Its way to tell who is at the other end has no place for a process without a number.

#![allow(unsafe_code)]

use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long, c_void, cmsghdr, iovec, msghdr, size_t, socklen_t, ucred};

/// A control message with one file, as it is laid out for the kernel.
#[repr(C)]
struct Rights {
    header: cmsghdr,
    file: c_int,
    padding: c_int,
}

/// `CMSG_LEN(sizeof(int))`: with this length there is no room for a second file.
const RIGHTS: size_t = size_of::<cmsghdr>() + size_of::<c_int>();

/// Sends bytes, and a file if there is one. Never waits.
pub(crate) fn send<const N: usize>(
    socket: BorrowedFd<'_>,
    mut bytes: [u8; N],
    file: Option<BorrowedFd<'_>>,
) -> Result<(), c_int> {
    let mut rights = file.map(|file| {
        // SAFETY: it is numbers, for which 0 is a value.
        let mut header: cmsghdr = unsafe { zeroed() };
        header.cmsg_len = RIGHTS as _;
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        Rights { header, file: file.as_raw_fd(), padding: 0 }
    });
    let mut buffer = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: N };
    let mut message = message(&mut buffer, rights.as_mut());
    call(libc::SYS_sendmsg, socket, &mut message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)?;
    Ok(())
}

/// Receives bytes, and the file that came with them. Returns how many there were. Never waits.
pub(crate) fn receive<const N: usize>(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8; N],
) -> Result<(usize, Option<OwnedFd>), c_int> {
    // SAFETY: it is numbers, for which 0 is a value.
    let mut rights: Rights = unsafe { zeroed() };
    let mut buffer = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: N };
    let mut message = message(&mut buffer, Some(&mut rights));
    let received = call(libc::SYS_recvmsg, socket, &mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC)?;
    let has_file = message.msg_controllen >= RIGHTS as _
        && rights.header.cmsg_len == RIGHTS as _
        && (rights.header.cmsg_level, rights.header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        && rights.file >= 0;
    // SAFETY: the kernel has just made it for this process.
    let file = has_file.then(|| unsafe { OwnedFd::from_raw_fd(rights.file) });
    Ok((received, file))
}

/// The process that has connected a socket. Its number is 0 if it is outside of this process' PID namespace.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<ucred, c_int> {
    let mut credentials = ucred { pid: 0, uid: 0, gid: 0 };
    look_up(socket, libc::SO_PEERCRED, &mut credentials)?;
    Ok(credentials)
}

/// A pidfd of that process, in whatever PID namespace it is. Linux before 6.5 knows none.
pub(crate) fn peer_process(socket: BorrowedFd<'_>) -> Result<OwnedFd, c_int> {
    let mut process: c_int = -1;
    look_up(socket, libc::SO_PEERPIDFD, &mut process)?;
    // SAFETY: the kernel has just made it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(process) })
}

/// Asks for an option of the socket that is of one or more numbers.
fn look_up<T>(socket: BorrowedFd<'_>, option: c_int, value: &mut T) -> Result<(), c_int> {
    #[expect(clippy::cast_possible_truncation, reason = "some bytes")]
    let mut length = size_of::<T>() as socklen_t;
    let to = (&raw mut *value).cast::<c_void>();
    // SAFETY: the kernel writes no more than there is room for.
    let outcome = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, to, &raw mut length) };
    if outcome == 0 { Ok(()) } else { Err(errno()) }
}

fn message(buffer: &mut iovec, rights: Option<&mut Rights>) -> msghdr {
    // SAFETY: it is numbers and pointers, for which 0 is a value.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_iov = buffer;
    message.msg_iovlen = 1;
    if let Some(rights) = rights {
        message.msg_control = (&raw mut *rights).cast::<c_void>();
        message.msg_controllen = RIGHTS as _;
    }
    message
}

fn call(number: c_long, socket: BorrowedFd<'_>, message: &mut msghdr, flags: c_int) -> Result<usize, c_int> {
    // SAFETY: all that the message points to is there as long as the caller's, who has just made it.
    let outcome = unsafe { libc::syscall(number, socket.as_raw_fd(), &raw mut *message, flags) };
    usize::try_from(outcome).map_err(|_| errno())
}

fn errno() -> c_int {
    // SAFETY: libc has a place for it in each thread.
    unsafe { *libc::__errno_location() }
}
