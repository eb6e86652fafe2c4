//! Objects that are made by commands of the PRM, and memory that the device may write.

use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use super::context::Context;
use super::error::CallError;
use super::library::{Functions, RawObject, RawUmem};

/// `IBV_ACCESS_LOCAL_WRITE`
pub(super) const LOCAL_WRITE: u32 = 1;

/// An object in the device.
#[derive(Clone)]
pub struct Object(Rc<ObjectHandle>);

struct ObjectHandle {
    raw: NonNull<RawObject>,
    context: Context,
}

/// Memory that commands may have the device write into, until it is dropped.
pub struct Umem {
    raw: NonNull<RawUmem>,
    /// Written by the device at any time.
    memory: Box<[Page]>,
    context: Context,
}

/// Words of a page.
const PAGE_WORDS: usize = 512;

/// A page of memory, as the device's keys have them.
#[repr(C, align(4096))]
struct Page([AtomicU64; PAGE_WORDS]);

impl Object {
    /// Makes an object by a command. `output` is filled with what the device answers.
    pub fn create(context: &Context, input: &[u8], output: &mut [u8]) -> Result<Self, CallError> {
        let create = context.functions().mlx5dv_devx_obj_create;
        // SAFETY: input and output are as long as is said, and the object keeps the device open.
        let raw = unsafe {
            create(context.raw(), input.as_ptr().cast(), input.len(), output.as_mut_ptr().cast(), output.len())
        };
        let failed = || CallError::last("mlx5dv_devx_obj_create");
        let raw = NonNull::new(raw).ok_or_else(|| failed().with_answer(output))?;
        Ok(Self(Rc::new(ObjectHandle { raw, context: context.clone() })))
    }

    /// Asks for it by a command. `output` is filled with what the device answers.
    pub fn query(&self, input: &[u8], output: &mut [u8]) -> Result<(), CallError> {
        let query = self.functions().mlx5dv_devx_obj_query;
        // SAFETY: input and output are as long as is said, and the object exists.
        let code =
            unsafe { query(self.raw(), input.as_ptr().cast(), input.len(), output.as_mut_ptr().cast(), output.len()) };
        CallError::check("mlx5dv_devx_obj_query", code).map_err(|error| error.with_answer(output))
    }

    /// Changes it by a command. `output` is filled with what the device answers.
    pub fn modify(&self, input: &[u8], output: &mut [u8]) -> Result<(), CallError> {
        let modify = self.functions().mlx5dv_devx_obj_modify;
        // SAFETY: input and output are as long as is said, and the object exists.
        let code =
            unsafe { modify(self.raw(), input.as_ptr().cast(), input.len(), output.as_mut_ptr().cast(), output.len()) };
        CallError::check("mlx5dv_devx_obj_modify", code).map_err(|error| error.with_answer(output))
    }

    pub(super) fn raw(&self) -> *mut RawObject {
        self.0.raw.as_ptr()
    }

    pub(super) fn functions(&self) -> &Functions {
        self.0.context.functions()
    }
}

impl Drop for ObjectHandle {
    fn drop(&mut self) {
        // SAFETY: what refers to it kept it, and is gone.
        let code = unsafe { (self.context.functions().mlx5dv_devx_obj_destroy)(self.raw.as_ptr()) };
        if let Err(error) = CallError::check("mlx5dv_devx_obj_destroy", code) {
            tracing::error!("{error}");
        }
    }
}

impl Umem {
    /// Registers pages for so many words, which are zero. What the device writes is big-endian.
    pub fn register(context: &Context, words: usize) -> Result<Self, CallError> {
        let page = |_| Page([const { AtomicU64::new(0) }; PAGE_WORDS]);
        let memory: Box<[Page]> = (0..words.div_ceil(PAGE_WORDS)).map(page).collect();
        let start = memory.as_ptr().cast_mut().cast();
        let register = context.functions().mlx5dv_devx_umem_reg;
        // SAFETY: the memory lives as long as the registration, and is only read and written as atomic words.
        let raw = unsafe { register(context.raw(), start, size_of_val(&*memory), LOCAL_WRITE) };
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last("mlx5dv_devx_umem_reg"))?;
        Ok(Self { raw, memory, context: context.clone() })
    }

    /// Returns the words.
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.memory.len() * PAGE_WORDS;
        // SAFETY: pages lie one behind the other, and have nothing but words.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), words) }
    }

    /// Returns the address of the first word, by which keys over it name it.
    pub fn address(&self) -> u64 {
        self.memory.as_ptr().addr() as u64
    }

    /// Returns the number by which commands name it.
    pub fn id(&self) -> u32 {
        // SAFETY: the registration exists, and libmlx5 does not change this.
        unsafe { (*self.raw.as_ptr()).umem_id }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: it exists, and whoever drops it has destroyed the keys over it.
        let code = unsafe { (self.context.functions().mlx5dv_devx_umem_dereg)(self.raw.as_ptr()) };
        if let Err(error) = CallError::check("mlx5dv_devx_umem_dereg", code) {
            // The device may go on writing there.
            std::mem::forget(std::mem::take(&mut self.memory));
            tracing::error!("{error}");
        }
    }
}
