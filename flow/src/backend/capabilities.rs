//! What a backend can do.

use std::num::NonZeroUsize;
use std::time::Duration;

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The name, as in `--backend` and in the `dp:` part of a dumped flow.
    pub name: &'static str,
    /// What becomes of a packet that misses in chain 0.
    pub miss: MissPolicy,
    /// What becomes of a packet that misses in a later chain, after its headers may have changed.
    pub chain_miss: MissPolicy,
    /// How old a reading may be.
    pub max_lag: Duration,
    /// How good the counters of a removed rule are.
    pub last_counters: LastCounters,
    /// Whether a modification leaves no gap in which no rule matches.
    pub modifies_in_place: bool,
    /// How many chains a packet may pass one after the other.
    pub max_chain_depth: usize,
    /// How many changes are best handed over at once.
    pub batch: usize,
    /// How many workers help at most: more would only wait for each other. `None` if that is up to the machine.
    pub workers: Option<NonZeroUsize>,
    /// Where [`Backend::installed`](super::Backend::installed) takes its listing from.
    pub listing: Listing,
}

/// Where a listing of rules comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The device is asked: what others have done to it shows.
    Device,
    /// The backend lists what it believes to have put in, because the device does not list its rules.
    Ledger,
}

impl Listing {
    /// Returns the word for it in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Ledger => "ledger",
        }
    }

    /// Returns who lists the rules, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Device => "listed by the device",
            Self::Ledger => "from the backend's own ledger, for the device lists none",
        }
    }
}

/// What becomes of a packet that no rule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissPolicy {
    /// It is counted and dropped.
    Drop,
    /// It goes to the representor of the port that it came from.
    Representor,
    /// It goes the kernel's own way.
    Kernel,
}

impl MissPolicy {
    /// What it means, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Drop => "counted and dropped",
            Self::Representor => "to the representor of the port it came from",
            Self::Kernel => "the kernel's own way",
        }
    }
}

/// How good the counters of a removed rule are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastCounters {
    /// They hold every packet that the rule took.
    Exact,
    /// Packets in flight while the rule was unlinked may be missing.
    Bounded,
}
