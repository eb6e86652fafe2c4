//! What a packet remembers of having been tracked.

use std::sync::Arc;

use super::fragmentation::Pieces;
use super::membership::Membership;
use super::table::Connection;
use super::tuple::Tuple;

/// What a packet remembers of having been tracked, besides what a lookup sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracked {
    pub(super) member: Option<(Arc<Connection>, Membership)>,
    /// What the packet was when it was tracked: with other addresses it is another connection's (`set_ip_addr` in
    /// actions.c, which clears the connection).
    pub(super) tuple: Option<Tuple>,
    pub(super) pieces: Option<Pieces>,
}

impl Tracked {
    /// Notes that the packet leaves cut anew: Linux does not keep the old pieces of a copy, nor of what it has read as one.
    pub(crate) fn is_cut_anew(&mut self) {
        if let Some(pieces) = &mut self.pieces {
            pieces.ends = Arc::default();
        }
    }
}
