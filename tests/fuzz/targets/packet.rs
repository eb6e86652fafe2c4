//! Frames: whatever comes in at a port, the device parses it, runs its rules on it and goes on.
#![no_main]

mod device;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

use device::{Device, frames};

/// Bytes that actions and tunnels put on a frame at most.
const MOST_PUSHED: usize = 512;

fuzz_target!(|input: &[u8]| {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    let device = DEVICE.get_or_init(Device::new);
    device.forget();
    // What waits for its other fragments, or is a piece of something that waited, may leave with all of them.
    let longest = input.len() + MOST_PUSHED;
    for frame in frames(input) {
        for verdict in device.play(&frame) {
            assert!(verdict.sent.iter().all(|(_, sent)| sent.len() <= longest));
        }
    }
});
