//! A source of connections: the kernel, or whoever else tracks them in software.

use std::time::Duration;

use sluice_ctnetlink::SocketError;
use sluice_flow::connection::Connection;

use super::table::ConnectionTable;
use crate::switch::ConnectionChange;

/// Who tracks connections, sees the packets that begin and end them, and tells of them. One thread has it.
pub trait ConnectionSource: Send {
    /// Shows all connections that there are. What happens from then on comes by [`wait`](Self::wait).
    fn list(&mut self, visit: &mut dyn FnMut(Connection)) -> Result<(), SourceError>;

    /// Adds what has happened since it was asked last, in order, and waits at most `patience` for something.
    fn wait(&mut self, patience: Duration, changes: &mut Vec<ConnectionChange>) -> Result<(), SourceError>;

    /// Keeps connections that packets went by without its seeing them: each is to live for its [timeout](Connection::timeout) from now.
    /// One that is gone by now stays so.
    fn keep(&mut self, connections: &[Connection]) -> Result<(), SourceError>;

    /// Returns how operators list and flush the connections; `None` if they cannot.
    fn table(&self) -> Option<Box<dyn ConnectionTable>> {
        None
    }
}

/// Why a source cannot tell.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It told more than was taken, and some of it is lost: all connections are to be listed again.
    #[error("changes of connections were lost")]
    Lost,
    /// Something else, in words.
    #[error("{0}")]
    Failed(String),
}

impl From<SocketError> for SourceError {
    fn from(error: SocketError) -> Self {
        Self::Failed(error.to_string())
    }
}
