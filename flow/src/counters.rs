//! Counters of flows as devices report them.

use crate::id::{FlowId, Generation};
use crate::time::Timestamp;

/// Packets and bytes of a rule since it was installed, and when it was last hit if the device knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes, Ethernet header included, FCS not.
    pub bytes: u64,
    /// The time of the last packet, where the device tells it.
    pub used: Option<Timestamp>,
    /// All TCP flags seen, where the device tells them; zero otherwise.
    pub tcp_flags: u16,
}

/// One reading of a rule's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The flow, as the change that installed the rule named it.
    pub flow: FlowId,
    /// The generation with which the rule was first installed: a reading of an earlier rule of the same flow is
    /// told apart by it.
    pub installed_as: Generation,
    /// Since that installation, over all modifications.
    pub counters: Counters,
}

/// When a device counted what it shows: not before `earliest` and not after `latest`.
///
/// A backend that knows the moment gives it twice. One whose counters come from a cache of unknown age spans what its
/// [`max_lag`](crate::backend::Capabilities::max_lag) allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The counters hold every packet up to here.
    pub earliest: Timestamp,
    /// They hold no packet from after here.
    pub latest: Timestamp,
}
