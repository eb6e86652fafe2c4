//! A wire: a TAP device. A frame written is received by the kernel, a frame read was sent by it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use sluice_flow::port::PortNumber;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::{OWN_IP, Sent};

/// More than any frame.
const LONGEST: usize = 1 << 16;

/// How long the kernel may take to send a frame that is expected: a busy machine may have put it off.
const PATIENCE: Duration = Duration::from_secs(1);

/// The wires of a datapath's ports.
pub(super) struct Wires {
    wires: BTreeMap<PortNumber, Wire>,
    /// Room for a frame.
    buffer: Vec<u8>,
}

impl Wires {
    /// Makes a device of each name.
    pub(super) fn new(names: impl Iterator<Item = (PortNumber, String)>) -> Self {
        Self { wires: names.map(|(port, name)| (port, Wire::new(&name))).collect(), buffer: vec![0; LONGEST] }
    }

    /// Lets a frame in, and waits for as many to come out as are expected, but not for long.
    pub(super) fn inject(&mut self, port: PortNumber, frame: &[u8], expected: usize) -> Sent {
        self.wires[&port].send(frame);
        let mut sent = self.collect();
        let start = Instant::now();
        while sent.values().map(Vec::len).sum::<usize>() < expected && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(500));
            for (port, frames) in self.collect() {
                sent.entry(port).or_default().extend(frames);
            }
        }
        sent
    }

    /// What has come out of all wires.
    pub(super) fn collect(&mut self) -> Sent {
        let mut sent = Sent::new();
        for (port, wire) in &self.wires {
            while let Some(frame) = wire.receive(&mut self.buffer) {
                if !is_of_the_host(&frame) {
                    sent.entry(*port).or_default().push(frame);
                }
            }
        }
        sent
    }
}

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

/// Whether the host says something by itself on the underlay: to a group of IPv6, or that it does not know what to do
/// with a packet.
fn is_of_the_host(frame: &[u8]) -> bool {
    const UNREACHABLE: [u8; 2] = [1, 3];
    let is_icmp_error = frame.get(12..14) == Some(&[0x08, 0x00])
        && frame.get(26..30) == Some(&OWN_IP)
        && [frame.get(23), frame.get(34)] == UNREACHABLE.each_ref().map(Some);
    frame.starts_with(&[0x33, 0x33]) || is_icmp_error
}
