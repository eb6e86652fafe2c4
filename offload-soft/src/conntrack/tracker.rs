//! What the trackers of protocols with a handshake have in common.

use std::time::Duration;

/// What becomes of a packet and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does not belong to the connection, which may now live shorter.
    Invalid(Option<Duration>),
    /// It belongs to it, and does not prolong its life.
    Accept,
    /// It belongs to it, and prolongs its life.
    Refresh {
        timeout: Duration,
        /// The connection is in use by both ends.
        assures: bool,
    },
    /// It belongs to it, and ends it at once.
    End,
    /// It begins another connection in the place of this one.
    Reopen,
}
