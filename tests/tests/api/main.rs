//! The gRPC interface as its clients meet it: streams of operations, owners, leases, events, counters, rights and limits.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod codecs;
mod forms;
mod limits;
mod objects;
mod operations;
mod opi;
mod owners;
mod rights;
mod stream;
mod watching;
