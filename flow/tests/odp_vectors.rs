//! The keys of OVS's own test of its text forms are read, and written as they were.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod odp_keys;

use sluice_flow::key::MaskedKey;
use sluice_flow::text::{Style, parse_key, write_key};

#[test]
fn every_key_is_written_as_it_was_read() {
    let keys = odp_keys::keys();
    assert!(keys.len() > 700, "{}", keys.len());
    for text in keys {
        let matching = parse_key(&text, &()).unwrap_or_else(|error| panic!("{}", error.caret(&text))).matching;
        let mut written = String::new();
        write_key(&mut written, &MaskedKey::new(&matching), &Style::default()).unwrap();
        assert_eq!(written, text);
        let mut more = String::new();
        write_key(&mut more, &MaskedKey::new(&matching), &Style { more: true, names: None }).unwrap();
        assert_eq!(parse_key(&more, &()).map(|key| key.matching), Ok(matching), "{more}");
    }
}
