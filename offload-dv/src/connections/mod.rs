//! Where connections come from, and how they come to the switch.

mod kernel;
mod message;
mod socket;
mod source;
mod tracker;

pub use self::kernel::KernelConnections;
pub use self::source::{ConnectionSource, SourceError};

pub(crate) use self::tracker::Tracker;
