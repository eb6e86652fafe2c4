//! What the device knows of a queue pair.

use super::ring::Ring;

/// A queue pair's send side.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(super) service: Service,
    pub(super) ring: Ring,
    pub(super) cq: u32,
    /// Where software keeps its producer counter.
    pub(super) doorbell_record: u64,
    pub(super) consumer: u16,
    pub(super) state: PairState,
}

/// What a queue pair is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Connected, with itself here.
    ReliableConnection,
    /// Unconnected. The driver tries by such a one how it may write into a page of doorbells, and sends nothing.
    Datagram,
    /// Changes memory keys (`REG_UMR`).
    KeyRegistration,
}

/// Of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairState {
    Reset,
    Initialized,
    ReadyToReceive,
    ReadyToSend,
    /// A request has failed.
    Error,
    /// Its memory is gone.
    Lost,
}
