//! The control socket's framing: however a stream is cut into pieces, the same requests come out of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_unixctl::{FramingError, Splitter, Value};

const LIMIT: usize = 4096;
const DEPTH: usize = 16;

fuzz_target!(|data: (Vec<u8>, Vec<u8>)| {
    let (stream, cuts) = data;
    let (mut whole, mut pieces) = (Reader::new(), Reader::new());
    whole.push(&stream);
    let mut rest = stream.as_slice();
    for cut in cuts {
        let (piece, after) = rest.split_at(rest.len().min(cut.into()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    assert_eq!((&whole.values, whole.error), (&pieces.values, pieces.error));
    for value in &whole.values {
        let at = usize::try_from(value.offset).expect("a short stream");
        assert_eq!(stream[at..at + value.bytes.len()], value.bytes);
    }
});

struct Reader {
    splitter: Splitter,
    values: Vec<Value>,
    error: Option<FramingError>,
}

impl Reader {
    fn new() -> Self {
        Self { splitter: Splitter::new(LIMIT, DEPTH), values: Vec::new(), error: None }
    }

    fn push(&mut self, piece: &[u8]) {
        if self.error.is_some() {
            return;
        }
        self.splitter.push(piece);
        loop {
            match self.splitter.next() {
                Ok(Some(value)) => self.values.push(value),
                Ok(None) => return,
                Err(error) => {
                    self.error = Some(error);
                    return;
                }
            }
        }
    }
}
