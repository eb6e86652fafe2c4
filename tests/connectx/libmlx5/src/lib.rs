//! Handles on the unmodified libibverbs and libmlx5.
//!
//! Each handle destroys what it stands for when it goes, and cannot outlive what that is made of. [`verbs`] is libibverbs as
//! `rdma-sys` binds it; [`dv`] is libmlx5's DevX and direct rules, which `rdma-sys` does not have.

pub mod dv;
pub mod verbs;

use std::io;

/// What a call that answers with a pointer has failed with, or the pointer.
fn made<T>(pointer: *mut T) -> io::Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// What a call that answers with an error number has failed with.
fn done(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}
