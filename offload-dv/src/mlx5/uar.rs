//! Doorbells (user access regions of the PRM).

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use super::context::Context;
use super::error::CallError;
use super::library::RawUar;

/// `MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC`: what is written goes to the device at once.
const NOT_CACHED: u32 = 1;

/// A page of doorbells.
pub struct Uar {
    raw: NonNull<RawUar>,
    context: Context,
}

impl Uar {
    /// Allocates one.
    pub fn allocate(context: &Context) -> Result<Self, CallError> {
        // SAFETY: the device is open, and the page keeps it so.
        let raw = unsafe { (context.functions().mlx5dv_devx_alloc_uar)(context.raw(), NOT_CACHED) };
        let raw = NonNull::new(raw).ok_or_else(|| CallError::last("mlx5dv_devx_alloc_uar"))?;
        Ok(Self { raw, context: context.clone() })
    }

    /// Returns the number by which queues name it.
    pub fn number(&self) -> u32 {
        // SAFETY: it exists, and libmlx5 does not change this.
        unsafe { (*self.raw.as_ptr()).page_id }
    }

    /// Has the device look for requests, behind all that was written to memory before: the first 8 bytes of the last one, as they are there.
    pub fn ring(&self, first: u64) {
        fence(Ordering::SeqCst);
        // The device is no processor, to which alone a fence applies there.
        #[cfg(target_arch = "aarch64")]
        // SAFETY: it orders what is written, and does nothing else.
        unsafe {
            std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
        }
        // SAFETY: the register is mapped as long as the page exists, and is of 8 bytes.
        unsafe { (*self.raw.as_ptr()).reg_addr.cast::<u64>().write_volatile(first) };
    }
}

impl Drop for Uar {
    fn drop(&mut self) {
        // SAFETY: whoever drops it has destroyed the queues that name it.
        unsafe { (self.context.functions().mlx5dv_devx_free_uar)(self.raw.as_ptr()) };
    }
}
