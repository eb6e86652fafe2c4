//! Flows in the kernel's flower classifier, over netlink.
//!
//! [`translate`] makes a rule of a flow, or says why there is none, and reads a rule back; [`install`] puts rules into the
//! kernel, many at a time, and brings back the kernel's own words; [`dump`] lists them with their counters. What goes over
//! the socket is in [`wire`].
//!
//! Not here yet: the `Backend` trait, ports by name, meters, shared blocks, probes of the running kernel, adoption.

pub mod dump;
pub mod install;
pub mod priorities;
pub mod rule;
mod socket;
pub mod surroundings;
pub mod translate;
pub mod wire;

pub use socket::SocketError;
