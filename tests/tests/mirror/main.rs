//! Sender and collector of the mirror, on an emulated ConnectX under the unmodified libibverbs and libmlx5.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod agent;
mod captures;
mod rig;

mod delivery;
mod hostile;
mod injection;
mod pressure;
mod program;
mod restarts;
mod rings;
mod sluiced;
