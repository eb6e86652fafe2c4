//! The mlx5 backend on an emulated BlueField, by the unmodified libibverbs and libmlx5: "accepted by the real library, and packet-true on the
//! emulated device". It says nothing of hardware.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod agent;
mod agent_connections;
mod chains;
mod conforming;
mod connections;
mod connections_again;
mod copies;
mod corpus;
mod counters;
mod deferred;
mod fields;
mod fragments;
mod frames;
mod generated;
mod generated_tunnels;
mod geneve;
mod handed_over;
mod ipsec;
mod kernel;
mod largest;
mod layout;
mod leftovers;
mod meters;
mod mirrors;
mod misbehaving;
mod nic;
mod reference;
mod refusals;
mod refused_start;
mod rig;
mod rules;
mod same;
mod samples;
mod told_connections;
mod tracked_after_changes;
mod tracked_in_tunnels;
mod traffic;
mod tunnels;
mod unavailable;
mod unsettled;
mod ways;
mod wrapped;
