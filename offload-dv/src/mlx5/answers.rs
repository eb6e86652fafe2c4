//! Queries that the device carries out while their caller goes on: their answers come out of a file.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::context::Context;
use super::devx::Object;
use super::error::CallError;
use super::library::RawAnswers;

/// Bytes of `mlx5dv_devx_async_cmd_hdr` (the number of the query), and of an output that says no more than whether it was done.
const NUMBER: usize = 8;
const OUTPUT: usize = 16;

/// Where the answers of queries come out.
pub struct Answers {
    raw: NonNull<RawAnswers>,
    context: Context,
}

/// The same for another thread, which may wait there.
pub struct Listener(File);

/// That a query is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number that the query was given.
    pub number: u64,
    /// The status that the device gave it; 0 if it was carried out.
    pub status: u8,
}

impl Answers {
    /// Opens a file for answers.
    pub fn open(context: &Context) -> Result<Self, CallError> {
        // SAFETY: the device is open, and stays so for as long as this.
        let raw = unsafe { (context.functions().mlx5dv_devx_create_cmd_comp)(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last("mlx5dv_devx_create_cmd_comp"))?;
        Ok(Self { raw, context: context.clone() })
    }

    /// Returns a handle that answers can be waited for with.
    pub fn listener(&self) -> io::Result<Listener> {
        // SAFETY: the file is open until this is dropped, and libmlx5 does not change which it is.
        let file = unsafe { BorrowedFd::borrow_raw((*self.raw.as_ptr()).file) };
        Ok(Listener(file.try_clone_to_owned()?.into()))
    }
}

impl Listener {
    /// Waits for the next answer.
    pub fn wait(&mut self) -> io::Result<Answer> {
        read(&mut self.0)
    }
}

/// Reads the next answer, whatever signals come meanwhile.
fn read(file: &mut impl Read) -> io::Result<Answer> {
    let mut answer = [0; NUMBER + OUTPUT];
    let length = loop {
        match file.read(&mut answer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    match (answer.first_chunk(), answer.get(NUMBER)) {
        (Some(number), Some(status)) if length > NUMBER => {
            Ok(Answer { number: u64::from_ne_bytes(*number), status: *status })
        }
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Object {
    /// Asks for it by a command whose output has no more than a status. The answer has this number.
    pub fn query_later(&self, input: &[u8], number: u64, answers: &Answers) -> Result<(), CallError> {
        let query = self.functions().mlx5dv_devx_obj_query_async;
        // SAFETY: the input is as long as is said, and object and file exist; the kernel keeps what it needs.
        let code =
            unsafe { query(self.raw(), input.as_ptr().cast(), input.len(), OUTPUT, number, answers.raw.as_ptr()) };
        CallError::check("mlx5dv_devx_obj_query_async", code)
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        // SAFETY: it exists; answers that are still to come are dropped by the kernel.
        unsafe { (self.context.functions().mlx5dv_devx_destroy_cmd_comp)(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose reader gets a signal twice before the answer comes.
    struct Interrupted {
        signals: usize,
        answer: Vec<u8>,
    }

    impl Read for Interrupted {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.signals > 0 {
                self.signals -= 1;
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.answer.as_slice().read(into)
        }
    }

    #[test]
    fn an_answer_is_waited_for_whatever_signals_come_meanwhile() {
        let answer = [&7_u64.to_ne_bytes()[..], &[3; OUTPUT]].concat();
        let mut file = Interrupted { signals: 2, answer };
        assert_eq!(read(&mut file).unwrap(), Answer { number: 7, status: 3 });
        file.answer.truncate(NUMBER);
        assert_eq!(read(&mut file).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
