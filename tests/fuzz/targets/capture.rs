//! Captures: whatever a file holds, reading it ends, and no frame is longer than the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_capture::Capture;

fuzz_target!(|file: &[u8]| {
    let Ok(mut capture) = Capture::open(file) else { return };
    let mut last = capture.position();
    while let Ok(Some(frame)) = capture.next() {
        assert!(frame.data.len() <= file.len());
        assert!(capture.position() > last, "reading goes on");
        last = capture.position();
    }
});
