//! What a round goes by, and what it did.

use std::time::Duration;

use sluice_flow::{Refusal, Timestamp};

/// What is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The idle timeout of flows that have none of their own; `None` for never.
    pub idle_timeout: Option<Duration>,
    /// The hard timeout of flows that have none of their own; `None` for never.
    pub hard_timeout: Option<Duration>,
    /// How often counters are polled, if polling is fast enough.
    pub poll_interval: Duration,
}

/// What a round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// When it began.
    pub began: Timestamp,
    /// How long the poll took.
    pub poll: Duration,
    /// How long all of it took.
    pub duration: Duration,
    /// How long to wait, from the beginning of this round, before the next one, if no flow may go before.
    pub period: Duration,
    /// When a poll would find the next flow idle, or a flow's hard timeout ends, if nothing happens until then.
    pub deadline: Option<Timestamp>,
    /// How old the oldest reading was for certain when the poll began.
    pub lag: Duration,
    /// Flows that were looked at.
    pub flows: usize,
    /// The limit that was kept to.
    pub flow_limit: usize,
    /// Readings taken.
    pub readings: usize,
    /// Readings that showed growth.
    pub grown: usize,
    /// Readings that went backwards: the device lost count.
    pub backwards: usize,
    /// Flows sent away for their idle timeout.
    pub idle: usize,
    /// Flows sent away for their hard timeout.
    pub hard: usize,
    /// Flows sent away because there were too many.
    pub evicted: usize,
    /// A gap ended with it: nobody had polled for longer than was meant, or the poll hung.
    pub after_gap: bool,
    /// Why the poll was not complete.
    pub failure: Option<Refusal>,
}
