//! What numbers are read from.

use std::sync::Arc;

use sluice_flow::table::Census;
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
    /// Log lines that nobody read in time, of a daemon that writes a log.
    pub(super) dropped_log_lines: Option<u64>,
}

impl<'a> Reading<'a> {
    /// Takes it. No question goes to the device.
    pub(crate) fn take(agent: &'a Agent, dropped_log_lines: Option<u64>) -> Self {
        Self {
            agent,
            census: agent.table.census(),
            counts: agent.events.counts(),
            published: agent.revalidation.published(),
            workers: agent.queue.reports(),
            journal: agent.journal.as_ref().map(|journal| journal.report()),
            device: agent.device_counters(),
            dropped_log_lines,
        }
    }

    /// A total of events.
    pub(crate) fn total(&self, read: fn(&EventCounts) -> u64) -> Number {
        read(self.counts).into()
    }
}
