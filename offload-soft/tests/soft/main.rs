//! The NIC in software from outside: frames in, frames out, and every call of the `Backend` trait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may say what it expects")]

mod actions;
mod arbitrary;
mod bursts;
mod classify;
mod concurrency;
mod conntrack;
mod device;
mod frames;
mod gateways;
mod harness;
mod layers;
mod lists;
mod outer;
mod parse;
mod protocols;
mod push;
mod refusals;
mod trace;
mod tunnels;
