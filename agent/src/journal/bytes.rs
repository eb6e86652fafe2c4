//! A log without its folder: the bytes of its files, read and written.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sluice_flow::Flow;
use sluice_flow::ufid::Seed;

use super::load::Log;
use super::record::{Contents, Encoder, header};
use super::{JournalError, NotWritable};

/// The flows that are wanted after some files, each with the time of its acceptance, in the order of their acceptance.
/// The names are for errors; a torn end of a file is left out.
pub fn read(
    files: impl IntoIterator<Item = (PathBuf, Vec<u8>)>,
    seed: &Seed,
) -> Result<Vec<(Flow, SystemTime)>, JournalError> {
    let mut log = Log::default();
    for (name, bytes) in files {
        log.read_file(name, bytes)?;
    }
    let mut flows = Vec::new();
    log.visit(seed, &mut |flow, accepted| {
        flows.push((flow, SystemTime::UNIX_EPOCH + Duration::from_nanos(accepted.0)));
    })?;
    Ok(flows)
}

/// A file that says that these flows are wanted, and no others.
pub fn write<'a>(flows: impl IntoIterator<Item = &'a (Flow, SystemTime)>) -> Result<Vec<u8>, NotWritable> {
    let mut bytes = header(Contents::Everything).to_vec();
    let mut encoder = Encoder::default();
    for (flow, accepted) in flows {
        encoder.wanted(&mut bytes, flow, (*accepted).into())?;
    }
    Ok(bytes)
}
