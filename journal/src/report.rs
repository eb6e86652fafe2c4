//! How the log does.

use std::time::Duration;

use super::damage::{Damage, DamageReport};
use super::lag::Lag;

/// How the log does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalReport {
    /// Records in the files, dead ones included.
    pub records: u64,
    /// Records written by this run, compactions aside.
    pub written: u64,
    /// Bytes written by this run, compactions aside.
    pub bytes: u64,
    /// Times that the disk was synced.
    pub syncs: u64,
    /// Bytes that are reserved for the next compaction.
    pub reserved: u64,
    /// Compactions.
    pub compactions: u64,
    /// Records that could not be written. A compaction makes up for them.
    pub unkept: u64,
    /// Why the log is not whole, or too far behind; `None` if it is well.
    pub failure: Option<String>,
    /// How far it is behind.
    pub lag: Lag,
    /// What damage to the files has cost, until its report is removed.
    pub damage: Option<DamageReport>,
    /// What was there at the start.
    pub restored: Restored,
}

/// What was there at the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// Flows that are wanted again.
    pub flows: u64,
    /// Flows that are not, because the agent would not take them on any more. Each is named in the log.
    pub turned_away: u64,
    /// What damage to the log has cost.
    pub damage: Damage,
    /// How long it took to read them and to take them on.
    pub load: Duration,
    /// How long no agent was there at most, by the wall clock: since something last happened to the log, which is ten seconds
    /// before the end of an agent that was at rest. `None` at the first start.
    pub away: Option<Duration>,
}
