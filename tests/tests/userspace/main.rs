//! OVS's userspace datapath as the judge of the software NIC, for what the kernel's datapath does not have.
//!
//! Both are given the same flows and the same packets, and what comes out must be equal byte by byte but for what a sender
//! is free to choose (`mask.rs`) and what is known to differ (`differences.rs`). Left out are `lb_output` and `userspace`,
//! of which no frame tells, `psample` and `dec_ttl` with a list, which OVS 3.1 does not have, and samples by chance.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod by_hand;
mod conntrack;
mod differences;
#[path = "../kernel/flows.rs"]
#[expect(dead_code, reason = "shared with the kernel's test")]
mod flows;
mod generated;
mod judge;
mod mask;
mod openflow;
#[path = "../kernel/packets.rs"]
#[expect(dead_code, reason = "shared with the kernel's test")]
mod packets;
mod text;
mod tunnels;
