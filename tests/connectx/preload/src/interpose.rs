//! Functions that stand in for those of libc.
//!
//! Each looks whether it is called for a device, and otherwise asks the kernel itself, so that nothing of libc's is needed before it
//! is ready. Rust's own library calls other names (`open64`) for files, and comes here only for `close`, `mmap` and the like.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_long, c_ulong, c_void};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{off_t, size_t};
use nix::errno::Errno;

use crate::bus::{closing, device_at, is_device, opened, posted, request};
use crate::nldev;

/// What a program gets for the device's own file.
const NULL: &CStr = c"/dev/null";

/// `RDMA_VERBS_IOCTL`.
const VERBS: c_ulong = 0xc018_1b01;
/// The kernel's way to list devices. libibverbs finds it closed, or not as it expects, and looks into the folder that stands for `/sys`.
const NETLINK_RDMA: c_int = 20;

/// Keeps the functions in a program that has them linked in, where nobody but libraries calls them.
pub(crate) fn keep() {
    let functions = [
        open as *const c_void,
        stat as *const c_void,
        ioctl as *const c_void,
        mmap as *const c_void,
        close as *const c_void,
        socket as *const c_void,
        pthread_spin_unlock as *const c_void,
    ];
    std::hint::black_box(functions);
}

/// Has libibverbs look into this folder.
pub(crate) fn set_sysfs(root: &Path) {
    // SAFETY: this is before the first call into libibverbs, and Rust's own readers of the environment take a lock that this takes.
    unsafe { std::env::set_var("SYSFS_PATH", root) };
}

/// Opens a device, or a file.
///
/// # Safety
/// As of libc's: `path` ends with a zero byte.
// SAFETY: the name is libc's on purpose, and so are arguments and results; the mode is there only if the flags ask for it, and is
// then passed as the third argument of three, as on all targets of Linux that this is built for.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller promises a string.
    let device = unsafe { at(path) };
    let Some(device) = device else {
        // SAFETY: arguments go on as they came.
        let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) };
        return narrow(file);
    };
    // SAFETY: the path is a string, and no mode is needed.
    let file =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, NULL.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    let file = narrow(file);
    if file >= 0
        && let Err(errno) = opened(file, &device)
    {
        errno.set();
        return -1;
    }
    file
}

/// Tells of a device's file, or of any other.
///
/// # Safety
/// As of libc's: `path` ends with a zero byte, and `status` has room.
// SAFETY: the name is libc's on purpose, and so are arguments and results; on 64-bit targets the kernel's structure is libc's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stat(path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: the caller promises a string.
    let path = if unsafe { at(path) }.is_some() { NULL.as_ptr() } else { path };
    // SAFETY: the caller promises room for the answer.
    narrow(unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, status, 0) })
}

/// A request of a device, or of another file.
///
/// # Safety
/// As of libc's: what `argument` points to is as the request wants it.
// SAFETY: the name is libc's on purpose; requests have one argument at most, which is passed as the third of three.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(file: c_int, number: c_ulong, argument: *mut c_void) -> c_int {
    if number == VERBS && is_device(file) {
        // What it points to is read by the kernel, so that a wrong address is an error.
        return match keeping_errno(|| request(file, argument as u64)) {
            Ok(()) => 0,
            Err(errno) => {
                errno.set();
                -1
            }
        };
    }
    // SAFETY: arguments go on as they came.
    narrow(unsafe { libc::syscall(libc::SYS_ioctl, file, number, argument) })
}

/// Maps a page of a device, or whatever else.
///
/// # Safety
/// As of libc's.
// SAFETY: the name is libc's on purpose, and so are arguments and results.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let (protection, flags, file, offset) = if is_device(file) {
        // Doorbells: what is written there is looked for in the doorbell records instead.
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    } else {
        (protection, flags, file, offset)
    };
    // SAFETY: arguments go on as they came, but that a device's page is memory of nobody else.
    let place = unsafe { libc::syscall(libc::SYS_mmap, address, length, protection, flags, file, offset) };
    place as *mut c_void
}

/// Closes a device, or a file.
///
/// # Safety
/// As of libc's: nobody uses the file any more.
// SAFETY: the name is libc's on purpose, and so are arguments and results.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(file: c_int) -> c_int {
    if is_device(file) {
        keeping_errno(|| closing(file));
    }
    // SAFETY: the argument goes on as it came.
    narrow(unsafe { libc::syscall(libc::SYS_close, file) })
}

/// Makes a socket. Where the kernel would list its own devices, it is one that lists this one or none.
///
/// # Safety
/// As of libc's.
// SAFETY: the name is libc's on purpose, and so are arguments and results.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        return match nldev::open() {
            Some(Ok(file)) => file.into_raw_fd(),
            Some(Err(_)) | None => {
                Errno::EPROTONOSUPPORT.set();
                -1
            }
        };
    }
    // SAFETY: arguments go on as they came.
    narrow(unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) })
}

/// Gives a socket an address, which one that stands in for the kernel's does not need.
///
/// # Safety
/// As for libc's: `address` points to `length` bytes.
// SAFETY: the name is libc's on purpose, and so are arguments and results.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn bind(file: c_int, address: *const libc::sockaddr, length: libc::socklen_t) -> c_int {
    // SAFETY: the caller promises `length` bytes, of which this takes the first two.
    let family = (!address.is_null() && length >= 2).then(|| unsafe { (*address).sa_family });
    if family.map(c_int::from) == Some(libc::AF_NETLINK) && is_local(file) {
        return 0;
    }
    // SAFETY: arguments go on as they came.
    narrow(unsafe { libc::syscall(libc::SYS_bind, file, address, length) })
}

/// Whether a file is a Unix socket, as those are that stand in for the kernel's.
fn is_local(file: c_int) -> bool {
    let (mut domain, mut length) = (0_i32, 4);
    let place: *mut c_void = (&raw mut domain).cast();
    // SAFETY: there is room for a number at `place`, as `length` says.
    let result = unsafe { libc::getsockopt(file, libc::SOL_SOCKET, libc::SO_DOMAIN, place, &raw mut length) };
    result == 0 && domain == libc::AF_UNIX
}

type Open = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;

/// Opens a file; of those that tell of network devices, the one in the folder that stands for `/sys`, if it is there.
///
/// # Safety
/// As of libc's: `path` and `mode` end with a zero byte.
// SAFETY: the name is libc's on purpose, and so are arguments and results.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: the caller promises two strings, and the name is that of a function of this type.
    unsafe { open_stream(&NEXT, c"fopen", path, mode) }
}

/// As [`fopen`], which it is on 64-bit targets.
///
/// # Safety
/// As of libc's: `path` and `mode` end with a zero byte.
// SAFETY: the name is libc's on purpose, and so are arguments and results.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: the caller promises two strings, and the name is that of a function of this type.
    unsafe { open_stream(&NEXT, c"fopen64", path, mode) }
}

/// # Safety
/// `path` and `mode` end with a zero byte, and `name` is that of a function of libc's of type [`Open`].
unsafe fn open_stream(
    found: &AtomicPtr<c_void>,
    name: &CStr,
    path: *const c_char,
    mode: *const c_char,
) -> *mut libc::FILE {
    // SAFETY: the caller promises a string, if it is not null.
    let own = if path.is_null() { None } else { own_file(unsafe { CStr::from_ptr(path) }) };
    let path = own.as_ref().map_or(path, |own| own.as_ptr());
    // SAFETY: it is null, which is None, or libc's function of that name, whose type the caller promises.
    match unsafe { std::mem::transmute::<*mut c_void, Option<Open>>(next(found, name)) } {
        // SAFETY: both are strings.
        Some(function) => unsafe { function(path, mode) },
        None => {
            Errno::ENOSYS.set();
            null_mut()
        }
    }
}

/// What stands for a file that tells of a network device.
fn own_file(path: &CStr) -> Option<CString> {
    let rest = path.to_bytes().strip_prefix(b"/sys/class/net/")?;
    let root = std::env::var_os("SYSFS_PATH")?;
    let path = Path::new(&root).join("class/net").join(OsStr::from_bytes(rest));
    if !path.exists() {
        return None;
    }
    CString::new(path.into_os_string().into_vec()).ok()
}

/// libc's own function of a name.
fn next(found: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut next = found.load(Ordering::Relaxed);
    if next.is_null() {
        // SAFETY: the name is a string.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        found.store(next, Ordering::Relaxed);
    }
    next
}

/// Lets go of a spin lock, and tells devices that something may have been posted to them.
///
/// libibverbs and libmlx5 post requests under such locks, and ring for them where nobody listens: in a page of doorbells.
///
/// # Safety
/// As of libc's: the lock is taken.
// SAFETY: the name is libc's on purpose, and so are argument and result.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_unlock(lock: *mut libc::pthread_spinlock_t) -> c_int {
    type SpinUnlock = unsafe extern "C" fn(*mut libc::pthread_spinlock_t) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    // SAFETY: it is null, which is None, or libc's function of that name, whose type this is.
    let next = unsafe { std::mem::transmute::<*mut c_void, Option<SpinUnlock>>(next(&NEXT, c"pthread_spin_unlock")) };
    let Some(next) = next else { return libc::ENOSYS };
    // SAFETY: the argument goes on as it came.
    let result = unsafe { next(lock) };
    keeping_errno(posted);
    result
}

/// Does what the kernel or a device would do, which leaves errno alone: libmlx5 sets it, cleans up, and looks at it afterwards.
fn keeping_errno<R>(act: impl FnOnce() -> R) -> R {
    let before = Errno::last_raw();
    let result = act();
    Errno::set_raw(before);
    result
}

/// The device at a path.
///
/// # Safety
/// `path` ends with a zero byte, or is null.
unsafe fn at(path: *const c_char) -> Option<sluice_connectx_uverbs::Device> {
    if path.is_null() {
        return None;
    }
    // SAFETY: it is not null, and ends with a zero byte.
    device_at(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Results of these calls are descriptors or 0, and -1 with errno set.
fn narrow(result: c_long) -> c_int {
    c_int::try_from(result).unwrap_or(-1)
}
