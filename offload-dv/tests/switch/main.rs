//! Flows in the switch of an emulated BlueField, by the unmodified libmlx5: what becomes of packets is what the NIC in software makes of
//! them. It says nothing of hardware.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod chains;
mod counters;
#[path = "../mlx5/device.rs"]
mod device;
mod frames;
mod rig;
mod same;
