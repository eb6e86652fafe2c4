//! Devices: which there are, an open one, and its ports.

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_sys as sys;

use super::error::{CallError, done, made};
use super::mtu::Mtu;

/// Returns the names of all RDMA devices.
///
/// # Errors
/// Fails if the list cannot be read.
pub fn devices() -> Result<Vec<String>, CallError> {
    Ok(List::new()?.devices().map(name).collect())
}

/// The list of devices, which keeps them from being freed.
struct List(NonNull<*mut sys::ibv_device>);

impl List {
    fn new() -> Result<Self, CallError> {
        // SAFETY: a null pointer says that the number of devices is not wanted.
        made("ibv_get_device_list", unsafe { sys::ibv_get_device_list(null_mut()) }).map(Self)
    }

    fn devices(&self) -> impl Iterator<Item = NonNull<sys::ibv_device>> {
        // SAFETY: the list ends with a null pointer, at which this stops.
        (0..).map_while(|place| NonNull::new(unsafe { *self.0.as_ptr().add(place) }))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: `ibv_get_device_list` made it, and it is freed once.
        unsafe { sys::ibv_free_device_list(self.0.as_ptr()) }
    }
}

fn name(device: NonNull<sys::ibv_device>) -> String {
    // SAFETY: the device is in a list that still exists, or open, and its name is a string in it.
    unsafe { CStr::from_ptr(sys::ibv_get_device_name(device.as_ptr())) }.to_string_lossy().into_owned()
}

/// An open device. Copies are of the same one.
#[derive(Debug, Clone)]
pub struct Context(Arc<Open>);

#[derive(Debug)]
struct Open(NonNull<sys::ibv_context>);

// SAFETY: libibverbs allows calls on a context from any thread.
unsafe impl Send for Open {}
// SAFETY: and from several at a time.
unsafe impl Sync for Open {}

/// A port, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Packets can be sent and received.
    pub is_active: bool,
    /// Largest packet of the path as it is configured.
    pub mtu: Mtu,
    /// Address in the subnet; 0 on Ethernet.
    pub lid: u16,
    /// Entries of the table of addresses, used or not.
    pub gids: u32,
    /// What the port is connected to.
    pub link_layer: LinkLayer,
}

/// What a port is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand, where a path needs a LID.
    InfiniBand,
    /// Ethernet, where a path needs a GID (RoCE).
    Ethernet,
}

impl Context {
    /// Opens the device of that name.
    ///
    /// # Errors
    /// Fails if there is none (`NotFound`), or if it cannot be opened.
    pub fn open(wanted: &str) -> Result<Self, CallError> {
        const CALL: &str = "ibv_open_device";
        let list = List::new()?;
        let missing = || {
            CallError::new(CALL, io::Error::new(io::ErrorKind::NotFound, format!("there is no RDMA device {wanted}")))
        };
        let device = list.devices().find(|device| name(*device) == wanted).ok_or_else(missing)?;
        // SAFETY: the device is in a list that still exists.
        made(CALL, unsafe { sys::ibv_open_device(device.as_ptr()) }).map(|raw| Self(Arc::new(Open(raw))))
    }

    /// Returns the name of the device.
    #[must_use]
    pub fn name(&self) -> String {
        // SAFETY: the context is open, and keeps its device.
        NonNull::new(unsafe { (*self.raw()).device }).map(name).unwrap_or_default()
    }

    /// Asks for the state of a port; the first is 1.
    ///
    /// # Errors
    /// Fails if there is no such port, or if the device does not answer.
    pub fn port(&self, number: u8) -> Result<Port, CallError> {
        const CALL: &str = "ibv_query_port";
        const ETHERNET: u8 = 2;
        let unsupported = || CallError::new(CALL, io::ErrorKind::Unsupported);
        let query = self.extended().and_then(|calls| calls.query_port).ok_or_else(unsupported)?;
        let mut attributes = MaybeUninit::<sys::ibv_port_attr>::zeroed();
        // SAFETY: the context is open, and there is room for an answer of the length that is given.
        done(CALL, unsafe { query(self.raw(), number, attributes.as_mut_ptr(), size_of::<sys::ibv_port_attr>()) })?;
        // SAFETY: zeroes are a value of every field, and then the call filled it in.
        let attributes = unsafe { attributes.assume_init() };
        Ok(Port {
            is_active: attributes.state == sys::ibv_port_state::IBV_PORT_ACTIVE,
            mtu: Mtu::of_raw(attributes.active_mtu),
            lid: attributes.lid,
            gids: u32::try_from(attributes.gid_tbl_len).unwrap_or_default(),
            link_layer: match attributes.link_layer {
                ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::InfiniBand,
            },
        })
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_context {
        self.0.0.as_ptr()
    }

    /// Calls that libibverbs has as inline functions only: they are in a structure around the context. (`rdma-sys` 0.3.0 has them, too, but
    /// takes the mark of such a context for 32 bits of ones where libibverbs writes 64, so that on 64-bit machines it finds none.)
    fn extended(&self) -> Option<&sys::verbs_context> {
        // SAFETY: the context is open.
        if unsafe { (*self.raw()).abi_compat }.addr() != usize::MAX {
            return None;
        }
        let around = offset_of!(sys::verbs_context, context);
        // SAFETY: a context with that mark is the last field of such a structure, which is freed with it.
        Some(unsafe { &*self.raw().byte_sub(around).cast::<sys::verbs_context>() })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: whatever was made of it keeps it, and is gone.
        unsafe { sys::ibv_close_device(self.0.as_ptr()) };
    }
}
