//! A packet on its way through steering memory.

use crate::packet::Headers;
use crate::steering::key::Metadata;

/// A packet on its way through steering memory.
pub(in crate::steering) struct Packet {
    pub(in crate::steering) frame: Vec<u8>,
    pub(in crate::steering) headers: Headers,
    pub(in crate::steering) metadata: Metadata,
    /// The function that sent it.
    pub(in crate::steering) gvmi: u16,
    pub(in crate::steering) tag: Option<u32>,
}
