//! What numbers are read from.

use std::sync::Arc;

use sluice_flow::table::Census;
use sluice_host::logging::LogReport;
use sluice_journal::JournalReport;
use sluice_offload::WorkerReport;

use super::number::Number;
use crate::agent::Agent;
use crate::observe::event_counts::EventCounts;
use crate::upkeep::device_counters::DeviceCounters;
use crate::upkeep::revalidation::Published;

/// All that numbers are read from, taken at one moment.
pub(crate) struct Reading<'a> {
    pub(super) agent: &'a Agent,
    pub(super) census: &'a Census,
    pub(super) counts: &'a EventCounts,
    pub(super) published: Published,
    pub(super) workers: Vec<WorkerReport>,
    pub(super) journal: Option<JournalReport>,
    pub(super) device: Arc<DeviceCounters>,
    /// What became of log messages, of a daemon that writes a log.
    pub(super) log: Option<LogReport>,
}

impl<'a> Reading<'a> {
    /// Takes it. No question goes to the device.
    pub(crate) fn take(agent: &'a Agent, log: Option<LogReport>) -> Self {
        Self {
            agent,
            census: agent.table.census(),
            counts: agent.events.counts(),
            published: agent.revalidation.published(),
            workers: agent.queue.reports(),
            journal: agent.journal.as_ref().map(|journal| journal.report()),
            device: agent.device_counters(),
            log,
        }
    }

    /// A total of events.
    pub(crate) fn total(&self, read: fn(&EventCounts) -> u64) -> Number {
        read(self.counts).into()
    }
}
