//! What the tests of the whole share: devices with faults, an agent in this process, the daemon seen from outside, a
//! real kernel's datapath.
//!
//! Everything here uses the public interfaces only. A device with faults is a [`Backend`](sluice_flow::Backend) like any
//! other, so what it takes to write one is what it takes to write a backend.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on says so and ends")]

pub mod bench;
pub mod conformance;
pub mod control_frames;
pub mod daemon;
pub mod documented;
pub mod dpcls;
pub mod fault;
pub mod firewall;
pub mod frames;
pub mod generate;
pub mod http;
pub mod instant;
pub mod lab;
pub mod language;
pub mod lasting;
pub mod mirror_client;
pub mod mlx5;
pub mod openvswitch;
pub mod revalidating;
pub mod scenario;
pub mod simulation;
pub mod soft;
pub mod traffic;
pub mod vswitchd;
pub mod world;
