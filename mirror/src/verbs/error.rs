//! Calls that fail.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;

/// A call of libibverbs or librdmacm that failed, with its name.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct CallError {
    /// The function.
    pub call: &'static str,
    /// Why.
    pub source: io::Error,
}

impl CallError {
    pub(crate) fn new(call: &'static str, source: impl Into<io::Error>) -> Self {
        Self { call, source: source.into() }
    }

    /// Whether it failed because the device was removed, or because its firmware does not answer any more: all that was made of the device
    /// is dead then, also if it comes back under its name.
    #[must_use]
    pub fn is_of_dead_device(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EIO | libc::ENODEV))
    }
}

/// What a call returned that makes something. It leaves the reason in `errno` if it fails.
pub(crate) fn made<T>(call: &'static str, raw: *mut T) -> Result<NonNull<T>, CallError> {
    NonNull::new(raw).ok_or_else(|| CallError::new(call, io::Error::last_os_error()))
}

/// What a call returned that answers with an error number, or with -1 and the reason in `errno`: libibverbs has both, at times in the same
/// function, and librdmacm the latter.
pub(crate) fn done(call: &'static str, code: c_int) -> Result<(), CallError> {
    match code {
        0 => Ok(()),
        -1 => Err(CallError::new(call, io::Error::last_os_error())),
        code => Err(CallError::new(call, io::Error::from_raw_os_error(code.abs()))),
    }
}
