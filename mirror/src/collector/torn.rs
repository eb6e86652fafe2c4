//! Files of collectors that were killed while they wrote, or before.

use std::fs;
use std::path::Path;

use pcap_file::pcapng::{Block, PcapNgReader};
use sluice_control::mirror::Class;

use super::files::Files;
use super::output::{Output, Outputs};
use super::rig::{SENDER, batch, files, output, payload};
use crate::wire::Hello;

/// Hands a batch over whose first frame has this number, and returns up to where the class is taken over.
fn write(output: &mut Output, sequence: u64) -> u64 {
    output.batch(&batch(sequence), &payload(sequence, |_| 1)).unwrap()
}

/// Numbers of the frames in all files, each of which must be whole.
fn written(folder: &Path) -> Vec<u64> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut numbers = Vec::new();
    for file in files {
        let bytes = fs::read(file).unwrap();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                numbers.push(u64::from_be_bytes(packet.data[14..22].try_into().unwrap()));
            }
        }
    }
    numbers
}

#[test]
fn wherever_a_write_was_cut_off_the_next_collector_has_each_frame_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a_00001.pcapng");
    let mut first = output(files(folder.path()));
    first.hello(SENDER, Hello::default());
    let mut ends = Vec::new();
    for sequence in [0, 5, 10] {
        assert_eq!(write(&mut first, sequence), sequence + 5);
        ends.push(fs::metadata(&file).unwrap().len());
    }
    // As the end of a process leaves it.
    drop(first);
    let whole = fs::read(&file).unwrap();
    // The second batch is acknowledged, and the third is being written.
    for cut in ends[1]..=ends[2] {
        let folder = tempfile::tempdir().unwrap();
        let end = usize::try_from(cut).unwrap();
        fs::write(folder.path().join("a_00001.pcapng"), &whole[..end]).unwrap();
        let mut next = output(files(folder.path()));
        let acknowledged = next.hello(SENDER, Hello::default())[Class::Lldp.index()];
        assert_eq!(acknowledged, if cut == ends[2] { 15 } else { 10 });
        // The sender goes on where that is.
        for sequence in (acknowledged..20).step_by(5) {
            write(&mut next, sequence);
        }
        drop(next);
        assert_eq!(written(folder.path()), (0..20).collect::<Vec<_>>(), "cut off at {cut} of {ends:?}");
    }
}

#[test]
fn a_collector_that_starts_again_and_again_without_a_frame_deletes_none_for_it_and_leaves_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let outputs = files(folder.path());
        output(Outputs { files: outputs.files.map(|files| Files { keep: Some(2), ..files }), ..outputs })
    };
    for sequence in [0, 5] {
        let mut killed = start();
        assert_eq!(killed.hello(SENDER, Hello::default())[Class::Lldp.index()], sequence);
        write(&mut killed, sequence);
    }
    for _ in 0..5 {
        drop(start());
        // As in order.
        start().finish();
    }
    let names = || {
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["a_00001.pcapng", "a_00002.pcapng", "a_00012.pcapng"]);
    let mut next = start();
    assert_eq!(next.hello(SENDER, Hello::default())[Class::Lldp.index()], 10);
    write(&mut next, 10);
    assert_eq!(names(), ["a_00002.pcapng", "a_00013.pcapng"]);
    assert_eq!(written(folder.path()), (5..15).collect::<Vec<_>>());
}
