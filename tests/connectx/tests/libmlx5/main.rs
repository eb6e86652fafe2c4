//! The unmodified libibverbs and libmlx5 of Debian on the emulated device, in one process: each test plugs a device of its own in.

mod actions;
mod fields;
#[allow(dead_code, reason = "of another test's frames, some are used here")]
#[path = "../mlx5_core/frames.rs"]
mod frames;
mod open;
#[allow(dead_code, reason = "of another test's packets, some are used here")]
#[path = "../mlx5_core/packet.rs"]
mod packet;
mod rig;
mod rules;
