//! The walk of a packet: through flow tables, and through entries in steering memory.

mod act;
mod memory;
mod report;
mod tables;

pub use memory::SteWalk;
pub use report::{Received, Walk};
