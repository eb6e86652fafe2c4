//! What queues by DevX need: memory that a program and the device share.

use std::io;
use std::sync::atomic::AtomicU32;

use super::{Umem, mlx5dv_devx_umem_reg};
use crate::verbs::Context;

impl<'a> Umem<'a> {
    /// Lets the device read and write memory that the program goes on to read and write.
    ///
    /// # Errors
    /// As `mlx5dv_devx_umem_reg` fails.
    pub fn share(context: &'a Context, words: &'a [AtomicU32]) -> io::Result<Self> {
        const LOCAL_WRITE: u32 = 1;
        let start = words.as_ptr().cast_mut().cast();
        // SAFETY: the memory is borrowed, and the context is open, as long as the registration lives; it may change at any time.
        Self::new(unsafe { mlx5dv_devx_umem_reg(context.raw(), start, size_of_val(words), LOCAL_WRITE) })
    }
}
