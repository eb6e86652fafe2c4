//! What completions say.

use super::failure::Failure;
use super::memory::Buffer;

/// That something which was posted is done, or has failed.
#[derive(Debug)]
pub struct Completion {
    /// Number of the queue pair.
    pub queue_pair: u32,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Requests to send that were carried out, in their order: the one that was signalled, behind those before it that were not.
    Sent(Vec<Sent>),
    /// A request to send failed. Those before it that were not signalled were carried out.
    SendFailed {
        /// Those before it.
        before: Vec<Sent>,
        /// The one that failed.
        failed: Sent,
        /// Why.
        failure: Failure,
    },
    /// A message came.
    Received(Received),
    /// A receive request came back without a message.
    ReceiveFailed {
        /// The number that it was given.
        tag: u64,
        /// Its buffers, of which any byte may have been written.
        buffers: Vec<Buffer>,
        /// Why.
        failure: Failure,
    },
}

/// A request to send that is over.
#[derive(Debug)]
pub struct Sent {
    /// The number that it was given.
    pub tag: u64,
    /// Its buffers.
    pub buffers: Vec<Buffer>,
}

/// A message that came, or a write with immediate data.
#[derive(Debug)]
pub struct Received {
    /// The number that the receive request was given.
    pub tag: u64,
    /// Its buffers, filled in their order with `length` bytes; with none of them if it was a write.
    pub buffers: Vec<Buffer>,
    /// Bytes of the message, or of the write.
    pub length: usize,
    /// Immediate data, if there was some.
    pub immediate: Option<u32>,
    /// Whether it was a write into memory that the other side knows.
    pub is_write: bool,
}
