//! What a packet remembers of having been tracked.

use std::sync::Arc;

use super::membership::Membership;
use super::reassembly::Pieces;
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
