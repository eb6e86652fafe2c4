//! The connections of a source as operators see and change them.

use sluice_flow::connection::{Connection, Selection};

use super::source::SourceError;

/// All connections that a source tracks, whether the device has them or not. Several threads call it at a time, beside the one that has
/// the source.
pub trait ConnectionTable: Send + Sync {
    /// Shows all connections. One that comes or goes meanwhile may be shown or not.
    fn visit(&self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError>;

    /// Adds a connection, or changes the one with this zone and original direction. Fails if the source finds connections by itself.
    fn add(&self, connection: Connection) -> Result<(), SourceError>;

    /// Removes the connections that are selected, shows some at a time as soon as they are removed, and returns how many there were. Of the
    /// same addresses and ports there may be others then that have begun since.
    fn flush(&self, of: &Selection, show: &mut dyn FnMut(&[Connection])) -> Result<usize, SourceError>;

    /// Returns how many connections there are.
    fn count(&self) -> Result<usize, SourceError>;

    /// Returns how many connections there may be.
    fn limit(&self) -> Result<u32, SourceError>;

    /// Limits how many connections there may be. What there is stays.
    fn set_limit(&self, limit: u32) -> Result<(), SourceError>;
}
