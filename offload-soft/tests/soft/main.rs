//! The NIC in software from outside: frames in, frames out, and every call of the `Backend` trait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may say what it expects")]

mod actions;
mod classify;
mod concurrency;
mod device;
mod frames;
mod harness;
mod parse;
mod refusals;
mod tunnels;
