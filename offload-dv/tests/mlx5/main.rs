//! The bindings, on the unmodified libibverbs and libmlx5 and the emulated ConnectX: "accepted by the real library, and packet-true on
//! the emulated device". It says nothing of hardware.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod device;
mod layout;
mod rules;
mod unavailable;
