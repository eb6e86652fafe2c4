//! Queries whose answers come later, out of a file.

use std::ffi::{c_int, c_void};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use rdma_sys::ibv_context;

use super::{Object, RawObject};
use crate::verbs::Context;
use crate::{done, made};

/// `mlx5dv_devx_cmd_comp`
#[repr(C)]
struct RawAnswers {
    file: c_int,
}

/// Bytes of `mlx5dv_devx_async_cmd_hdr`: the number that the query was given.
const HEADER: usize = 8;

#[link(name = "mlx5")]
unsafe extern "C" {
    fn mlx5dv_devx_create_cmd_comp(context: *mut ibv_context) -> *mut RawAnswers;
    fn mlx5dv_devx_destroy_cmd_comp(answers: *mut RawAnswers);
    fn mlx5dv_devx_obj_query_async(
        object: *mut RawObject,
        input: *const c_void,
        input_bytes: usize,
        output_bytes: usize,
        number: u64,
        answers: *mut RawAnswers,
    ) -> c_int;
    fn mlx5dv_devx_get_async_cmd_comp(answers: *mut RawAnswers, answer: *mut c_void, bytes: usize) -> c_int;
}

handle!(
    /// Where the answers of queries come out.
    Answers RawAnswers mlx5dv_devx_destroy_cmd_comp
);

impl<'a> Answers<'a> {
    /// A new one.
    ///
    /// # Errors
    /// As `mlx5dv_devx_create_cmd_comp` fails.
    pub fn open(context: &'a Context) -> io::Result<Self> {
        // SAFETY: the context is open for as long as this lives.
        Self::new(unsafe { mlx5dv_devx_create_cmd_comp(context.raw()) })
    }

    /// Waits for the next answer: the number that its query was given, and the output.
    ///
    /// # Errors
    /// As `mlx5dv_devx_get_async_cmd_comp` fails, such as for want of room.
    pub fn next(&self, room: usize) -> io::Result<(u64, Vec<u8>)> {
        let mut answer = vec![0; HEADER + room];
        // SAFETY: there is so much room for the answer, and the file is open.
        done(unsafe { mlx5dv_devx_get_async_cmd_comp(self.raw.as_ptr(), answer.as_mut_ptr().cast(), answer.len()) })?;
        let output = answer.split_off(HEADER);
        Ok((answer.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)), output))
    }
}

impl Object<'_> {
    /// A command that asks for it, whose output comes later, with this number.
    ///
    /// # Errors
    /// As `mlx5dv_devx_obj_query_async` fails.
    pub fn query_later(&self, answers: &Answers<'_>, input: &[u8], room: usize, number: u64) -> io::Result<()> {
        // SAFETY: the input is as long as is said, object and file exist, and the output is kept by the kernel.
        done(unsafe {
            mlx5dv_devx_obj_query_async(
                self.raw.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                room,
                number,
                answers.raw.as_ptr(),
            )
        })
    }
}
