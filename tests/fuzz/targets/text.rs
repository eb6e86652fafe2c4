//! Flow text: whatever is read is written as text that is read as the same, and every error has a place in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_flow::MaskedKey;
use sluice_flow::text::{Style, parse_actions, parse_key, parse_line, write_actions, write_key};

fuzz_target!(|text: &str| {
    if let Ok(line) = parse_line(text, &()) {
        check_key(&MaskedKey::new(&line.matching));
    }
    match parse_key(text, &()) {
        Ok(key) => check_key(&MaskedKey::new(&key.matching)),
        Err(error) => assert!(text.is_char_boundary(error.offset), "{error}"),
    }
    match parse_actions(text, &()) {
        Ok(actions) => {
            let mut written = String::new();
            write_actions(&mut written, &actions, &Style::default()).expect("a string takes all");
            let again = parse_actions(&written, &()).unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(actions, again, "{written}");
        }
        Err(error) => assert!(text.is_char_boundary(error.offset), "{error}"),
    }
});

fn check_key(key: &MaskedKey) {
    for more in [false, true] {
        let mut written = String::new();
        write_key(&mut written, key, &Style { more, names: None }).expect("a string takes all");
        let again = parse_key(&written, &()).unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(*key, MaskedKey::new(&again.matching), "{written}");
    }
}
