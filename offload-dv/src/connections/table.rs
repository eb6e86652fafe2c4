//! The connections of a source as operators see and change them.

use sluice_flow::connection::{Connection, Selection};

use super::source::SourceError;
use crate::switch::ConnectionChange;

/// All connections that a source tracks, whether the device has them or not. Several threads call it at a time, beside the one that has
/// the source.
pub trait ConnectionTable: Send + Sync {
    /// Shows all connections. One that comes or goes meanwhile may be shown or not.
    fn visit(&self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError>;

    /// Adds a connection, or changes the one with this zone and original direction. Fails if the source finds connections by itself.
    fn add(&self, connection: Connection) -> Result<(), SourceError>;

    /// Removes the connections that are selected, and returns how many there were. Shows what the device is to forget, of some at a time, as
    /// soon as they are removed.
    fn flush(&self, of: &Selection, show: &mut dyn FnMut(Vec<ConnectionChange>)) -> Result<usize, SourceError>;

    /// Returns how many connections there are.
    fn count(&self) -> Result<usize, SourceError>;

    /// Returns how many connections there may be.
    fn limit(&self) -> Result<u32, SourceError>;

    /// Limits how many connections there may be. What there is stays.
    fn set_limit(&self, limit: u32) -> Result<(), SourceError>;
}
