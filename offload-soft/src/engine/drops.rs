//! Packets that go no further, though no rule says so.

use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that went nowhere, though no rule said so, by reason. Most were taken by a rule before.
#[derive(Debug, Default)]
pub struct Drops {
    /// A header that an action is about was not there, cut off, malformed, or could not be put where it was to go.
    pub missing_header: AtomicU64,
    /// An output port was detached, a frame became too long for an outer header, or a packet with or without an Ethernet
    /// header was to go where only the other can.
    pub output: AtomicU64,
    /// `tnl_pop` found no tunnel packet, or one that was malformed or had a wrong checksum.
    pub decapsulation: AtomicU64,
    /// There were too many lookups.
    pub lookups: AtomicU64,
    /// A packet was to leave without an Ethernet header.
    pub without_ethernet: AtomicU64,
    /// Too many lists and jumps waited for the end of the list around them.
    pub deferred: AtomicU64,
    /// Connection tracking stopped it; [`losses`](crate::conntrack::Conntrack::losses) has the reasons.
    pub conntrack: AtomicU64,
    /// No rule had it yet: a tunnel packet came in that was malformed, had a wrong checksum, or a congestion mark that what is inside
    /// cannot have.
    pub entrance: AtomicU64,
    /// No rule had it yet: no key could be made of a packet that came in, for its NSH header was malformed.
    pub malformed: AtomicU64,
    /// It was only the copy of a mirror: its port was detached, or the packet had no Ethernet header.
    pub copies: AtomicU64,
}

/// Why a packet goes no further, see [`Drops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Conntrack,
    Copy,
    Decapsulation,
    Deferred,
    Entrance,
    Lookups,
    Malformed,
    MissingHeader,
    Output,
    WithoutEthernet,
}

impl Loss {
    /// The reason in words.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Conntrack => "connection tracking stops it",
            Self::Copy => "the copy cannot leave: its port is detached, or the packet has no Ethernet header",
            Self::Decapsulation => "no outer header that can be taken off",
            Self::Deferred => "too many lists and jumps wait for the end of the list around them",
            Self::Entrance => "it came in with an outer header that cannot be taken off",
            Self::Lookups => "too many lookups",
            Self::Malformed => "it cannot be looked up: its first header is cut off or malformed",
            Self::MissingHeader => "the header that the action changes is not there, cut off or malformed",
            Self::Output => "it cannot leave there: the port is detached, or cannot carry it",
            Self::WithoutEthernet => "it has no Ethernet header to leave with",
        }
    }
}

impl Drops {
    /// The counter of one reason.
    pub(crate) const fn of(&self, loss: Loss) -> &AtomicU64 {
        match loss {
            Loss::Conntrack => &self.conntrack,
            Loss::Copy => &self.copies,
            Loss::Decapsulation => &self.decapsulation,
            Loss::Deferred => &self.deferred,
            Loss::Entrance => &self.entrance,
            Loss::Lookups => &self.lookups,
            Loss::Malformed => &self.malformed,
            Loss::MissingHeader => &self.missing_header,
            Loss::Output => &self.output,
            Loss::WithoutEthernet => &self.without_ethernet,
        }
    }

    /// How many for which reason; for those of connection tracking there is
    /// [`Losses::reasons`](crate::conntrack::Losses::reasons).
    pub(crate) fn reasons(&self) -> [(&'static str, u64); 9] {
        [
            Loss::Copy,
            Loss::Decapsulation,
            Loss::Deferred,
            Loss::Entrance,
            Loss::Lookups,
            Loss::Malformed,
            Loss::MissingHeader,
            Loss::Output,
            Loss::WithoutEthernet,
        ]
        .map(|loss| (loss.reason(), self.of(loss).load(Ordering::Relaxed)))
    }

    /// Those that a rule took before, as [`LookupCounters::lost`](sluice_flow::backend::LookupCounters::lost) counts them.
    pub(crate) fn of_rules(&self) -> u64 {
        let Self { missing_header, output, decapsulation, lookups, without_ethernet, deferred, conntrack, .. } = self;
        [missing_header, output, decapsulation, lookups, without_ethernet, deferred, conntrack]
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }
}
