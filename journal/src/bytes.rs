//! A log without its folder: the bytes of its files, read and written.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sluice_flow::Flow;
use sluice_flow::ufid::Seed;

use super::error::JournalError;
use super::frame::{Contents, Header};
use super::load::Log;
use super::record::{ActionTexts, Encoder, NotWritable};

/// The flows that are wanted after some files with these numbers, each with the time of its acceptance, in the order of their
/// acceptance. What is damaged is left out.
pub fn read(
    files: impl IntoIterator<Item = (u64, Vec<u8>)>,
    seed: &Seed,
) -> Result<Vec<(Flow, SystemTime)>, JournalError> {
    let mut log = Log::default();
    let named = |(number, bytes)| (number, PathBuf::from(format!("{number}.log")), bytes);
    log.read_files(files.into_iter().map(named).collect())?;
    let mut flows = Vec::new();
    log.visit(0..log.len(), &mut ActionTexts::default(), seed, &mut |flow, accepted| {
        flows.push((flow, SystemTime::UNIX_EPOCH + Duration::from_nanos(accepted.0)));
    })?;
    Ok(flows)
}

/// A file with this number that says that these flows are wanted, and no others.
pub fn write<'a>(number: u64, flows: impl IntoIterator<Item = &'a (Flow, SystemTime)>) -> Result<Vec<u8>, NotWritable> {
    let header = Header { contents: Contents::Everything, number, first: 0 };
    let mut bytes = header.to_bytes().to_vec();
    let mut encoder = Encoder::of(header, None);
    for (flow, accepted) in flows {
        encoder.wanted(&mut bytes, flow, (*accepted).into(), &[])?;
    }
    encoder.end(&mut bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_flow::{Expiry, MaskedKey, Priority, text};

    use super::*;

    const SEED: Seed = Seed([3; 16]);

    fn flow(port: u16, actions: &str) -> (Flow, SystemTime) {
        let key = text::parse_key(&format!("in_port({port})"), &()).unwrap();
        let actions = text::parse_actions(actions, &()).unwrap();
        let matching = MaskedKey::new(&key.matching);
        let flow = Flow::new(None, matching, actions, Priority::default(), Expiry::default(), &SEED);
        (flow, SystemTime::UNIX_EPOCH + Duration::from_secs(port.into()))
    }

    #[test]
    fn a_file_that_holds_everything_makes_those_before_it_say_nothing() {
        let (old, new) = (vec![flow(1, "2")], vec![flow(2, "3"), flow(3, "drop")]);
        let (first, second) = (write(1, &old).unwrap(), write(2, &new).unwrap());
        assert_eq!(read([(1, first.clone())], &SEED).unwrap(), old);
        assert_eq!(read([(1, first.clone()), (2, second.clone())], &SEED).unwrap(), new);
        assert_eq!(read([(2, first), (1, second)], &SEED).unwrap(), new, "a file is the one that it says it is");
    }
}
