//! A log without its folder: the bytes of its files, read and written.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sluice_flow::Flow;
use sluice_flow::ufid::Seed;

use super::load::Log;
use super::record::{ActionTexts, Contents, Encoder, header};
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
    log.visit(0..log.len(), &mut ActionTexts::default(), seed, &mut |flow, accepted| {
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
        let [first, second] = [&old, &new].map(|flows| write(flows).unwrap());
        let name = |number: u8| PathBuf::from(format!("{number}.log"));
        assert_eq!(read([(name(1), first.clone())], &SEED).unwrap(), old);
        assert_eq!(read([(name(1), first.clone()), (name(2), second.clone())], &SEED).unwrap(), new);
        let torn = second[..second.len() - 1].to_vec();
        assert_eq!(read([(name(1), first), (name(2), torn)], &SEED).unwrap(), new[..1]);
    }
}
