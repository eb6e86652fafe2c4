//! Where connections come from, and how they come to the switch.

mod begun;
mod kernel;
mod kernel_table;
mod source;
mod table;
mod told;
mod tracker;

pub use self::kernel::KernelConnections;
pub use self::source::{ConnectionSource, SourceError};
pub use self::table::ConnectionTable;
pub use self::told::ToldConnections;

pub(crate) use self::tracker::Tracker;
