//! Outputs of a collector that tests hand batches over to.

use std::path::Path;

use prometheus::Registry;
use sluice_control::mirror::Class;

use super::files::Files;
use super::metrics::CollectorMetrics;
use super::output::{Output, Outputs};
use super::senders::Batch;
use crate::wire::frames::Frame;
use crate::wire::{Drops, Layout};

/// Who has sent the batches.
pub(super) const SENDER: u64 = 7;

/// How many frames a batch has.
pub(super) const FRAMES: u32 = 5;

pub(super) fn output(outputs: Outputs) -> Output {
    Output::new(outputs, CollectorMetrics::new(&Registry::new()).unwrap()).unwrap()
}

/// The files of a folder, which go on to their end.
pub(super) fn files(folder: &Path) -> Outputs {
    let files = Files { path: folder.join("a.pcapng"), size: None, age: None, keep: None };
    Outputs { files: Some(files), ..Outputs::default() }
}

/// The header of a batch whose first frame has this number.
pub(super) fn batch(sequence: u64) -> Batch {
    let (class, layout, drops) = (Class::Lldp, Layout::Frames, Drops::default());
    Batch { sender: SENDER, class, layout, frames: FRAMES, sequence, given_up: 0, drops }
}

/// Its frames, each with its number behind the Ethernet header, of the ports with these numbers.
pub(super) fn payload(sequence: u64, port: impl Fn(u64) -> u32) -> Vec<u8> {
    let mut payload = Vec::new();
    for number in sequence..sequence + u64::from(FRAMES) {
        let bytes = [&[0xff; 14][..], &number.to_be_bytes(), &[0; 38]].concat();
        let frame = Frame { in_port: Some(port(number)), ufid: Some(3), captured: 1, length: 60, bytes: &bytes };
        let mut room = vec![0; frame.room()];
        frame.write(&mut room).unwrap();
        payload.extend(room);
    }
    payload
}
