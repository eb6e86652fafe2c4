//! A wire: a TAP device. A frame written is received by the kernel, a frame read was sent by it.

use std::io::ErrorKind;

use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// More than any frame.
pub(super) const LONGEST: usize = 1 << 16;

/// A TAP device, gone when this is.
pub struct Wire {
    device: SyncDevice,
    name: String,
}

impl Wire {
    /// Makes the device.
    pub fn new(name: &str) -> Self {
        let device = DeviceBuilder::new()
            .name(name)
            .layer(Layer::L2)
            .enable(false)
            .build_sync()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        device.set_nonblocking(true).expect("reading that does not wait");
        Self { device, name: name.into() }
    }

    /// Lets the kernel receive a frame. It has done with it all that it does at once when this returns.
    pub fn send(&self, frame: &[u8]) {
        let sent = self.device.send(frame).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        assert_eq!(sent, frame.len(), "{}: a part of a frame was sent", self.name);
    }

    /// The next frame that the kernel sent, if there is one. `buffer` is room for it.
    pub fn receive(&self, buffer: &mut [u8]) -> Option<Vec<u8>> {
        match self.device.recv(buffer) {
            Ok(length) => Some(buffer[..length].to_vec()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{}: {error}", self.name),
        }
    }
}
