//! The page that tells what each backend takes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use sluice_tests::daemon::repository;
use sluice_tests::language::document;

#[test]
fn the_page_on_the_flow_language_says_what_the_code_does() {
    let written = std::fs::read_to_string(repository("docs/language.md")).unwrap();
    let said = document();
    let differing = written.lines().zip(said.lines()).find(|(written, said)| written != said);
    assert_eq!(differing, None, "`cargo run -p sluice-tests --bin language > docs/language.md` writes it");
    assert_eq!(written.len(), said.len());
}
