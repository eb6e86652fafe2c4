//! Flow tables, groups and entries, and what becomes of a packet in them.
//!
//! [`Steering::command`] takes the PRM commands that build the tables, checked as firmware checks them; [`Steering::receive`]
//! walks a packet through what they built, and says at every step what it did and why.
//!
//! Statuses are those of the PRM. Which of them firmware gives for which mistake is known from drivers' logs for some, and our
//! choice for the rest; syndromes are ours throughout. What the device can do and this engine cannot (ASO other than first
//! hits, meters and connection tracking, crypto, match definers for its own tables, tables of RDMA and sniffers) is refused,
//! never ignored.
//!
//! Actions come in the order that the kernel keeps for software steering: decap, VLAN pop, modify header, VLAN push, encap. These
//! readings are ours: of several matches the lowest index wins; a counter counts the frame as it came to the entry, without FCS;
//! a table without an entry that matches drops in the FDB and in NIC RX, and lets pass in ACLs and in NIC TX; an action that the
//! packet gives no ground for, such as a VLAN pop without a tag, ends the packet with that as the reason.

pub mod address;
pub(crate) mod arguments;
mod bits;
mod commands;
mod counters;
mod deed;
pub(crate) mod definers;
mod domain;
mod failure;
mod fields;
mod format;
pub(crate) mod hits;
pub mod icm;
mod key;
mod layout;
mod mailbox;
pub(crate) mod meter;
mod objects;
mod port;
mod reformat;
mod rewrite;
pub(crate) mod sampler;
mod state;
pub(crate) mod ste;
mod step;
mod table;
pub(crate) mod tracking;
mod walk;

#[cfg(test)]
mod tests;

pub(crate) use counters::Dump;
pub use counters::{Count, Telling};
pub use deed::Deed;
pub use domain::{TableKind, Target};
pub(crate) use failure::NO_ROOM;
pub use failure::{Failure, status};
pub use format::{ENTRY, Format, SteeringMemory};
pub use meter::Color;
pub use objects::SHARED_UID;
pub use port::{Origin, Port, VPORT_ECPF, VPORT_UPLINK, vhca_id};
pub use rewrite::Rewritten;
pub use state::{Profile, Steering};
pub use ste::SteStep;
pub use step::{Step, TableName};
pub use tracking::{Direction, Outcome};
pub use walk::{Received, SteWalk, Walk};
