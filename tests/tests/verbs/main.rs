//! The verbs core of the mirror, on an emulated ConnectX under the unmodified libibverbs and libmlx5.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod rig;

mod connections;
mod devices;
mod events;
mod exchange;
mod failures;
mod messages;
mod shared;

/// The device of all stories.
const DEVICE: &str = "mlx5_0";
