//! Lines of a dump: what is read of one, written as with `dump-flows -m`, is read as the same flow, with all that the line
//! says of it.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sluice_flow::text::{DumpLine, FlowLine, Style, parse_line, write_line};
use sluice_flow::{MaskedKey, Ufid};

fuzz_target!(|text: &str| {
    let line = match parse_line(text, &()) {
        Ok(line) => line,
        Err(error) => return assert!(text.is_char_boundary(error.offset), "{error}"),
    };
    let written = write(&line, true);
    let again = read(&written);
    assert_eq!(as_written(line.clone()), again, "{written}");
    assert_eq!(write(&again, true), written);
    // Without -m the line says less, and of what it says the same.
    let short = write(&line, false);
    let less = read(&short);
    assert_eq!(
        (again.matching, again.actions, again.statistics),
        (less.matching, less.actions, less.statistics),
        "{short}"
    );
});

fn read(text: &str) -> FlowLine {
    parse_line(text, &()).unwrap_or_else(|error| panic!("{}", error.caret(text)))
}

fn write(line: &FlowLine, more: bool) -> String {
    let mut written = String::new();
    let dumped = DumpLine {
        ufid: line.ufid.unwrap_or(Ufid(1)),
        matching: &MaskedKey::new(&line.matching),
        statistics: line.statistics,
        offloaded: line.offloaded,
        layer: line.layer.as_deref().unwrap_or_default(),
        actions: &line.actions,
        extra: &line.extra.to_string(),
    };
    write_line(&mut written, &dumped, &Style { more, names: None }).expect("a string takes all");
    written
}

/// The line with what a dump adds, and without what it leaves out.
fn as_written(mut line: FlowLine) -> FlowLine {
    line.ufid = line.ufid.or(Some(Ufid(1)));
    line.layer = line.layer.filter(|layer| !layer.is_empty());
    // A dump has three decimals.
    let shown = |used: Duration| used - Duration::from_nanos((used.subsec_nanos() % 1_000_000).into());
    line.statistics.used = line.statistics.used.map(shown);
    line
}
