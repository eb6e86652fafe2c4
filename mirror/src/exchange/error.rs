//! Why two ends do not connect.

use std::io;

use crate::connection::NoPlace;
use crate::terms::Refusal;
use crate::verbs::CallError;

/// Why two ends do not connect.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The stream failed, or ended.
    #[error("the stream to the other end: {0}")]
    Stream(#[from] io::Error),
    /// The other end said nothing for too long.
    #[error("the other end has not answered in time")]
    Silence,
    /// What the other end sent is not of this exchange.
    #[error("the other end sent what does not belong here: {0}")]
    Unexpected(&'static str),
    /// The terms of the other end are refused here. It was told.
    #[error("the other end is refused: {0}")]
    Refused(Refusal),
    /// There is no place for another connection here. The other end was told.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// The other end refuses.
    #[error("the other end refuses: {0}")]
    RefusedThere(String),
    /// The queue pair cannot be connected so.
    #[error(transparent)]
    QueuePair(#[from] CallError),
}
