//! The wire layer against the bytes of the real `tc` and of a real kernel (`golden/`).

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod decoder;
mod golden;
