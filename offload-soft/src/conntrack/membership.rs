//! What a packet is to a connection.

use super::tuple::Direction;

/// What a packet is to its connection (`enum ip_conntrack_info`, without the direction).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    New,
    Established,
    Related,
}

/// How a packet belongs to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) relation: Relation,
    pub(crate) direction: Direction,
}
