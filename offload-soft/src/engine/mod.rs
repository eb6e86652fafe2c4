//! Packets on their way through the device: looked up, counted, rewritten, sent.

mod burst;
mod drops;
mod hash;
mod merge;
mod mpls;
mod neighbour;
pub(crate) mod nsh;
mod packet;
pub(crate) mod random;
pub(crate) mod record;
pub(crate) mod rewrite;
mod run;
mod traversal;
pub(crate) mod tunnel;

pub(crate) use burst::Burst;
pub use drops::Drops;
pub(crate) use packet::Packet;
pub(crate) use traversal::{LookupCounts, Observer, Traversal};
