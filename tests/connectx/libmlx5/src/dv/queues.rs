//! What queues by DevX need: memory that a program and the device share, and commands that change objects.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::AtomicU32;

use super::{Object, RawObject, Umem, mlx5dv_devx_umem_reg};
use crate::done;
use crate::verbs::Context;

#[link(name = "mlx5")]
unsafe extern "C" {
    fn mlx5dv_devx_obj_modify(
        object: *mut RawObject,
        input: *const c_void,
        input_bytes: usize,
        output: *mut c_void,
        output_bytes: usize,
    ) -> c_int;
}

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

impl Object<'_> {
    /// A command that changes it.
    ///
    /// # Errors
    /// As `mlx5dv_devx_obj_modify` fails.
    pub fn modify(&self, input: &[u8], room: usize) -> io::Result<Vec<u8>> {
        let mut output = vec![0; room];
        // SAFETY: input and output are as long as is said, and the object exists.
        done(unsafe {
            mlx5dv_devx_obj_modify(
                self.raw.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        })?;
        Ok(output)
    }
}
