//! Signals of memory that is not there.

#![allow(unsafe_code)]

use std::mem::{MaybeUninit, transmute, zeroed};
use std::ptr::null_mut;
use std::sync::OnceLock;

use libc::{c_int, c_void, sigaction, siginfo_t, ucontext_t};

use super::copy::behind;

/// No memory is there, or none of this kind; and there is none behind the end of a file.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// What was there before, for each signal.
static BEFORE: OnceLock<[sigaction; 2]> = OnceLock::new();

/// Has faults of guarded instructions be taken from now on.
pub(super) fn take() {
    BEFORE.get_or_init(|| SIGNALS.map(install));
}

fn install(signal: c_int) -> sigaction {
    // SAFETY: zeroes are an action: no handler, no flags, and an empty mask.
    let mut action: sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    // Handlers that were there before may be for a stack that is full, and want another one.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    let mut before = MaybeUninit::zeroed();
    // SAFETY: the action is whole, and there is room for the one before, which zeroes are, too.
    unsafe {
        sigaction(signal, &raw const action, before.as_mut_ptr());
        before.assume_init()
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the context of what was interrupted, which goes on by it.
    let next = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs[REGISTER_RIP] };
    match behind(next.cast_unsigned()) {
        Some(end) => *next = end.cast_signed(),
        None => pass_on(signal, info, context),
    }
}

const REGISTER_RIP: usize = libc::REG_RIP as usize;

/// Has whoever took such signals before take one. What interrupted faults again when this returns, so that where nobody did, the program
/// ends as it would have.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type Plain = extern "C" fn(c_int);
    type Informed = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    let place = SIGNALS.iter().position(|own| *own == signal);
    let before = BEFORE.get().zip(place).map(|(before, place)| &before[place]);
    let handler = |before: &&sigaction| !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    match before.filter(handler) {
        // SAFETY: the flag says that the handler is of this type.
        Some(before) if before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            transmute::<usize, Informed>(before.sa_sigaction)(signal, info, context);
        },
        // SAFETY: without the flag it is of this type.
        Some(before) => unsafe { transmute::<usize, Plain>(before.sa_sigaction)(signal) },
        // SAFETY: the default for a signal is a right action.
        None => unsafe {
            let default: sigaction = zeroed();
            sigaction(signal, &raw const default, null_mut());
        },
    }
}
