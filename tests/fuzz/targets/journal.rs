//! The log of flows: whatever its files hold, reading them ends, and what is read of them is written as a file that says
//! the same. Files are read as they are, torn anywhere, and with right checksums, behind which a fuzzer alone would not come.
#![no_main]

use std::time::SystemTime;

use libfuzzer_sys::fuzz_target;
use sluice_flow::Flow;
use sluice_flow::ufid::Seed;
use sluice_journal::{JournalError, bytes};

const HEADER: usize = 36;
const FRAME_HEADER: usize = 12;

fuzz_target!(|file: &[u8]| {
    let _ = read(&[file]);
    let whole = with_checksums(file);
    let Ok(flows) = read(&[&whole]) else { return };
    let written = bytes::write(2, &flows).expect("what was read can be written");
    assert_eq!(flows, read(&[&[], &written]).expect("what was written can be read"));
    assert_eq!(flows, read(&[&whole, &written]).expect("both can be read one by one"));
    // A log that ends anywhere says less, but it is read.
    for end in [whole.len() / 3, whole.len() / 2, whole.len().saturating_sub(1)] {
        read(&[&whole[..end], &written]).expect("a torn end is left out");
    }
});

fn read(files: &[&[u8]]) -> Result<Vec<(Flow, SystemTime)>, JournalError> {
    bytes::read((1..).zip(files.iter().map(|file| file.to_vec())), &Seed([0; 16]))
}

/// The file with the header of this version and, of every frame that is whole, the right number and checksum.
fn with_checksums(file: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    let header = bytes::write(1, []).expect("no flow is not writable");
    let kept = file.len().min(HEADER);
    file[..kept].copy_from_slice(&header[..kept]);
    // Of the number and the contents that the header has.
    let seed = crc32c::crc32c_append(crc32c::crc32c(&1_u64.to_le_bytes()), &1_u16.to_le_bytes());
    let (mut at, mut number) = (HEADER, 0_u32);
    while let Some((head, rest)) = file.get_mut(at..).and_then(|rest| rest.split_first_chunk_mut::<FRAME_HEADER>()) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let Some(body) = rest.get(..length) else { break };
        head[8..].copy_from_slice(&number.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c_append(seed, &head[4..]), body);
        head[..4].copy_from_slice(&checksum.to_le_bytes());
        at += FRAME_HEADER + length;
        number += 1;
    }
    file
}
