//! An open device.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;

use super::error::{CallError, Unavailable};
use super::events::{Events, Source};
use super::library::{ContextAttributes, Functions, Library, RawContext, RawDevice};

/// An mlx5 device, opened with DevX. Closed when the last handle on it, and on anything made of it, is dropped.
#[derive(Clone)]
pub struct Context(Rc<Open>);

struct Open {
    raw: NonNull<RawContext>,
    events: Source,
    library: Rc<Library>,
}

impl Context {
    /// Opens the device that libibverbs calls `name`, such as `mlx5_0`.
    pub fn open(library: &Rc<Library>, name: &str) -> Result<Self, Unavailable> {
        let devices = Devices::list(library)?;
        let Some(device) = devices.find(name) else {
            let present = devices.names();
            return Err(match present.is_empty() {
                true => Unavailable::NoDevices,
                false => Unavailable::NoSuchDevice { name: name.to_owned(), present },
            });
        };
        // SAFETY: the device is in a list that is not freed yet.
        if !unsafe { (library.functions.mlx5dv_is_supported)(device) } {
            return Err(Unavailable::NotMlx5 { name: name.to_owned() });
        }
        let mut attributes = ContextAttributes { flags: ContextAttributes::DEVX, comp_mask: 0 };
        // SAFETY: the same, and the attributes are copied.
        let raw = unsafe { (library.functions.mlx5dv_open_device)(device, &raw mut attributes) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| Unavailable::NotOpened { name: name.to_owned(), source: io::Error::last_os_error() })?;
        let events = Source::new(raw, &library.functions);
        Ok(Self(Rc::new(Open { raw, events, library: library.clone() })))
    }

    /// Opens what another thread takes events by. Fails if there are too many files.
    pub fn events(&self) -> io::Result<Events> {
        self.0.events.events()
    }

    /// Carries out a command on no object. `output` is filled with what the device answers.
    pub fn command(&self, input: &[u8], output: &mut [u8]) -> Result<(), CallError> {
        // SAFETY: input and output are as long as is said, and the device is open.
        let code = unsafe {
            (self.functions().mlx5dv_devx_general_cmd)(
                self.raw(),
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        CallError::check("mlx5dv_devx_general_cmd", code).map_err(|error| error.with_answer(output))
    }

    /// Returns the number of an event queue of the kernel's, which queues need that completions go to.
    pub fn event_queue(&self) -> Result<u32, CallError> {
        let mut number = 0;
        // SAFETY: the device is open, and there is room for the number.
        let code = unsafe { (self.functions().mlx5dv_devx_query_eqn)(self.raw(), 0, &raw mut number) };
        CallError::check("mlx5dv_devx_query_eqn", code).map(|()| number)
    }

    pub(super) fn raw(&self) -> *mut RawContext {
        self.0.raw.as_ptr()
    }

    pub(super) fn functions(&self) -> &Functions {
        &self.0.library.functions
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.events.close();
        // SAFETY: all that was made of it kept it, and is gone.
        let code = unsafe { (self.library.functions.ibv_close_device)(self.raw.as_ptr()) };
        if let Err(error) = CallError::check("ibv_close_device", code) {
            tracing::error!("{error}");
        }
    }
}

/// The devices of libibverbs. Freed when it is dropped; devices that were opened stay.
struct Devices<'a> {
    list: NonNull<*mut RawDevice>,
    number: usize,
    functions: &'a Functions,
}

impl<'a> Devices<'a> {
    fn list(library: &'a Library) -> Result<Self, Unavailable> {
        let functions = &library.functions;
        let mut number = 0;
        // SAFETY: there is room for the number.
        let list = unsafe { (functions.ibv_get_device_list)(&raw mut number) };
        let list = NonNull::new(list).ok_or_else(|| Unavailable::NoList(io::Error::last_os_error()))?;
        Ok(Self { list, number: usize::try_from(number).unwrap_or(0), functions })
    }

    fn devices(&self) -> &[*mut RawDevice] {
        // SAFETY: the list has so many entries until it is freed.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.number) }
    }

    fn name(&self, device: *mut RawDevice) -> String {
        // SAFETY: the device is in the list, and has a name that lives as long.
        let name = unsafe { CStr::from_ptr((self.functions.ibv_get_device_name)(device)) };
        name.to_string_lossy().into_owned()
    }

    fn names(&self) -> Vec<String> {
        self.devices().iter().map(|device| self.name(*device)).collect()
    }

    fn find(&self, name: &str) -> Option<*mut RawDevice> {
        self.devices().iter().copied().find(|device| self.name(*device) == name)
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        // SAFETY: it is the list that libibverbs gave, and nobody uses it any more.
        unsafe { (self.functions.ibv_free_device_list)(self.list.as_ptr()) };
    }
}
