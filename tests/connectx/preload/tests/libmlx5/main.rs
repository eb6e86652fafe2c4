//! The unmodified libibverbs and libmlx5 of Debian on the emulated device, in one process: each test plugs a device of its own in.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod actions;
mod anchors;
mod aso;
mod checks;
mod counters;
mod definers;
mod destinations;
mod faults;
mod fields;
#[allow(dead_code, reason = "of another test's frames, some are used here")]
#[path = "../../../pci/tests/mlx5_core/frames.rs"]
mod frames;
mod memory;
mod open;
#[allow(dead_code, reason = "of another test's packets, some are used here")]
#[path = "../../../pci/tests/mlx5_core/packet.rs"]
mod packet;
mod pairs;
mod receive;
mod rig;
mod rules;
mod samples;
#[cfg(target_arch = "x86_64")]
mod system_calls;
mod tracking;
mod tuning;
mod tunnels;
mod verbs_flows;
mod work_queues;
