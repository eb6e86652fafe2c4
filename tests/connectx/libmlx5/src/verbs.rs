//! libibverbs: devices, and what every program allocates.

#![allow(unsafe_code)]

mod flows;
mod pairs;
mod work_queues;

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU32;

use rdma_sys as sys;

use crate::{done, made};
pub use flows::{Counters, Flow, FlowKind, Spec, Wanted};
pub use pairs::{Channel, Completion, Frame, QueuePair, State, Told};
pub use work_queues::{WorkQueue, WorkState, WorkTable};

/// Names of all devices.
///
/// # Errors
/// As `ibv_get_device_list` fails.
pub fn devices() -> io::Result<Vec<String>> {
    let list = List::new()?;
    Ok(list.devices().map(name).collect())
}

/// A list of devices, which keeps them from going.
struct List(NonNull<*mut sys::ibv_device>);

impl List {
    fn new() -> io::Result<Self> {
        // SAFETY: the number of devices is not wanted.
        made(unsafe { sys::ibv_get_device_list(null_mut()) }).map(Self)
    }

    fn devices(&self) -> impl Iterator<Item = NonNull<sys::ibv_device>> {
        // SAFETY: the list ends with a null pointer, at which this stops.
        (0..).map_while(|place| NonNull::new(unsafe { *self.0.as_ptr().add(place) }))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it was made by `ibv_get_device_list`, and nobody has a device of it any more.
        unsafe { sys::ibv_free_device_list(self.0.as_ptr()) }
    }
}

fn name(device: NonNull<sys::ibv_device>) -> String {
    // SAFETY: the device is in a list that is still there, and its name is a string in it.
    let name = unsafe { CStr::from_ptr(sys::ibv_get_device_name(device.as_ptr())) };
    name.to_string_lossy().into_owned()
}

/// An open device.
#[derive(Debug)]
pub struct Context(NonNull<sys::ibv_context>);

// SAFETY: libibverbs and libmlx5 may be called on a context from any thread.
unsafe impl Send for Context {}
// SAFETY: and from several at a time.
unsafe impl Sync for Context {}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Firmware version.
    pub firmware: String,
    /// PCI vendor.
    pub vendor: u32,
    /// PCI device.
    pub part: u32,
    /// Its ports.
    pub ports: u8,
}

impl Context {
    /// Opens the device of that name.
    ///
    /// # Errors
    /// If there is none, or it cannot be opened.
    pub fn open(wanted: &str) -> io::Result<Self> {
        let list = List::new()?;
        let device = list.devices().find(|device| name(*device) == wanted).ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: the device is in a list that is still there.
        made(unsafe { sys::ibv_open_device(device.as_ptr()) }).map(Self)
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_context {
        self.0.as_ptr()
    }

    /// Asks the device what it is.
    ///
    /// # Errors
    /// As `ibv_query_device` fails.
    pub fn attributes(&self) -> io::Result<Attributes> {
        let mut attributes = MaybeUninit::<sys::ibv_device_attr>::zeroed();
        // SAFETY: there is room for the answer.
        done(unsafe { sys::ibv_query_device(self.raw(), attributes.as_mut_ptr()) })?;
        // SAFETY: it was zeroed, for which all of it has a meaning, and then filled in.
        let attributes = unsafe { attributes.assume_init() };
        // SAFETY: the version is a string within its array.
        let firmware = unsafe { CStr::from_ptr(attributes.fw_ver.as_ptr()) };
        Ok(Attributes {
            firmware: firmware.to_string_lossy().into_owned(),
            vendor: attributes.vendor_id,
            part: attributes.vendor_part_id,
            ports: attributes.phys_port_cnt,
        })
    }

    /// Waits for an event that comes on its own, of which libmlx5 takes notice, too: its kind.
    ///
    /// # Errors
    /// As `ibv_get_async_event` fails.
    pub fn event(&self) -> io::Result<u32> {
        let mut event = MaybeUninit::<sys::ibv_async_event>::zeroed();
        // SAFETY: there is room for the event.
        done(unsafe { sys::ibv_get_async_event(self.raw(), event.as_mut_ptr()) })?;
        // SAFETY: it was zeroed, for which all of it has a meaning, and then filled in.
        let mut event = unsafe { event.assume_init() };
        // SAFETY: it is the one that came, and is acknowledged once.
        unsafe { sys::ibv_ack_async_event(&raw mut event) };
        Ok(event.event_type as u32)
    }

    /// A protection domain.
    ///
    /// # Errors
    /// As `ibv_alloc_pd` fails.
    pub fn protection_domain(&self) -> io::Result<ProtectionDomain<'_>> {
        // SAFETY: the context is open.
        made(unsafe { sys::ibv_alloc_pd(self.raw()) }).map(|raw| ProtectionDomain { raw, of: PhantomData })
    }

    /// A queue for `entries` completions at least.
    ///
    /// # Errors
    /// As `ibv_create_cq` fails.
    pub fn completion_queue(&self, entries: i32) -> io::Result<CompletionQueue<'_>> {
        // SAFETY: the context is open, and the queue is polled, for which it needs no channel.
        made(unsafe { sys::ibv_create_cq(self.raw(), entries, null_mut(), null_mut(), 0) })
            .map(|raw| CompletionQueue { raw, of: PhantomData })
    }
}

/// Calls that libibverbs has as inline functions only: they are in what is around a context. (`rdma-sys` has such functions, too, but
/// looks for 32 bits of ones in front of a context where libibverbs puts 64.)
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn calls<'a>(context: *mut sys::ibv_context) -> io::Result<&'a sys::verbs_context> {
    // SAFETY: the context is open.
    if unsafe { (*context).abi_compat } as usize != usize::MAX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let around = std::mem::offset_of!(sys::verbs_context, context);
    // SAFETY: a context that says so lies in such a structure.
    Ok(unsafe { &*context.byte_sub(around).cast::<sys::verbs_context>() })
}

/// What is missing where a library has no such call.
pub(crate) fn unsupported() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: whatever is made of it borrows it, and is gone.
        unsafe { sys::ibv_close_device(self.raw()) };
    }
}

/// A protection domain.
#[derive(Debug)]
pub struct ProtectionDomain<'a> {
    raw: NonNull<sys::ibv_pd>,
    of: PhantomData<&'a Context>,
}

impl ProtectionDomain<'_> {
    /// Registers memory, for everything.
    ///
    /// # Errors
    /// As `ibv_reg_mr` fails.
    pub fn register<'a>(&'a self, memory: &'a mut [u8]) -> io::Result<MemoryRegion<'a>> {
        let access = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
            | sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            | sys::ibv_access_flags::IBV_ACCESS_REMOTE_READ;
        // SAFETY: the memory is borrowed for as long as it is registered.
        let raw = unsafe {
            sys::ibv_reg_mr(self.raw.as_ptr(), memory.as_mut_ptr().cast(), memory.len(), access.0.cast_signed())
        };
        made(raw).map(|raw| MemoryRegion { raw, of: PhantomData })
    }

    /// Registers memory that the program goes on to read and write, for the device to write.
    ///
    /// # Errors
    /// As `ibv_reg_mr` fails.
    pub fn share<'a>(&'a self, words: &'a [AtomicU32]) -> io::Result<MemoryRegion<'a>> {
        let access = sys::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        let start = words.as_ptr().cast_mut().cast();
        // SAFETY: the memory is borrowed for as long as it is registered, and may change at any time.
        let raw = unsafe { sys::ibv_reg_mr(self.raw.as_ptr(), start, size_of_val(words), access.0.cast_signed()) };
        made(raw).map(|raw| MemoryRegion { raw, of: PhantomData })
    }
}

impl Drop for ProtectionDomain<'_> {
    fn drop(&mut self) {
        // SAFETY: whatever is made of it borrows it, and is gone.
        unsafe { sys::ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// Registered memory.
#[derive(Debug)]
pub struct MemoryRegion<'a> {
    raw: NonNull<sys::ibv_mr>,
    of: PhantomData<&'a mut [u8]>,
}

impl MemoryRegion<'_> {
    /// Its keys, local and remote.
    #[must_use]
    pub fn keys(&self) -> (u32, u32) {
        // SAFETY: it is registered.
        let region = unsafe { self.raw.as_ref() };
        (region.lkey, region.rkey)
    }
}

impl Drop for MemoryRegion<'_> {
    fn drop(&mut self) {
        // SAFETY: it is registered, and nothing uses it.
        unsafe { sys::ibv_dereg_mr(self.raw.as_ptr()) };
    }
}

/// A queue of completions.
#[derive(Debug)]
pub struct CompletionQueue<'a> {
    raw: NonNull<sys::ibv_cq>,
    of: PhantomData<&'a Context>,
}

impl CompletionQueue<'_> {
    /// How many completions it has room for.
    #[must_use]
    pub fn room(&self) -> i32 {
        // SAFETY: the queue exists.
        unsafe { self.raw.as_ref() }.cqe
    }
}

impl Drop for CompletionQueue<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more.
        unsafe { sys::ibv_destroy_cq(self.raw.as_ptr()) };
    }
}
