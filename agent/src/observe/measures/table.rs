//! The rows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sluice_flow::backend::{Capacity, MirrorCounters, Placement, PortCounters};
use sluice_flow::{EndReason, FlowState, Refusal};

use super::measure::Read::{Durations, Each, One, Words};
use super::measure::{self, Kind, Measure, Metric, Read};
use super::mirroring::MIRRORING;
use super::number::Number;
use super::reading::Reading;
use super::sessions::SESSIONS;
use super::sources::SOURCES;
use crate::observe::event_counts::{EVENT_COUNTS, EventCount, EventMetric};
use crate::observe::readiness::readiness;
use crate::upkeep::difference;
use crate::upkeep::rebalancing::State;
use sluice_journal::JournalReport;
use sluice_offload::{Installation, LATENCY_BUCKETS, WorkerReport};

/// Every number.
pub(crate) static MEASURES: [&[Measure]; 6] = [FLOWS, &EVENTS, OTHERS, MIRRORING, SOURCES, SESSIONS];

/// The totals of events: a row for each of [`EVENT_COUNTS`].
static EVENTS: [Measure; EVENT_COUNTS.len()] = {
    let mut rows = [of_events(&EVENT_COUNTS[0]); EVENT_COUNTS.len()];
    let mut row = 1;
    while row < rows.len() {
        rows[row] = of_events(&EVENT_COUNTS[row]);
        row += 1;
    }
    rows
};

/// What runs, and the flows that there are.
static FLOWS: &[Measure] = &[
    gauge("sluice_build_info", "What runs, always 1.", Words(build)),
    gauge(
        "sluice_ready",
        "Whether flows are taken and revalidated, as /readyz says.",
        One(|now| readiness(now.agent).is_ok().into()),
    ),
    gauge(
        "sluice_config_last_reload_successful",
        "Whether the configuration file, as last read, was taken over.",
        One(|now| now.agent.recent.reload().map(|last| last.is_in_force).into()),
    ),
    gauge(
        "sluice_config_last_reload_success_timestamp_seconds",
        "When a configuration was last taken over, by the wall clock.",
        One(|now| now.agent.recent.reload().and_then(|last| since_epoch(last.in_force_since)).into()),
    ),
    // Flows.
    only_shown("flows.live", One(|now| now.census.live().into())),
    gauge("sluice_flows", "Flows in the table.", Each("state", flow_states)).stats("flows.states"),
    gauge(
        "sluice_flows_placed",
        "Flows whose rule is there as wanted, by what carries it.",
        Each("placement", placements),
    )
    .stats("flows.placements"),
    gauge("sluice_flow_limit", "How many flows there may be.", One(|now| now.census.flow_limit().into()))
        .stats("flows.limit"),
    gauge(
        "sluice_flows_unsettled",
        "Flows with a change that has no outcome.",
        One(|now| now.census.unsettled().into()),
    )
    .stats("flows.unsettled"),
    gauge(
        "sluice_flows_unsettled_limit",
        "How many flows may have a change that has no outcome; further changes are refused as busy.",
        One(|now| now.agent.config().dirty_limit.into()),
    )
    .stats("flows.unsettled_limit"),
    gauge("sluice_hardware_rules", "Flows whose rule is in hardware.", One(in_hardware)),
    gauge(
        "sluice_hardware_rules_limit",
        "How many rules hardware takes, where the device says so.",
        One(|now| now.agent.backend.capacity().and_then(Capacity::limit).into()),
    ),
    gauge("sluice_flow_masks", "Different masks in use.", One(|now| now.agent.table.parts().masks().into()))
        .stats("flows.masks"),
    gauge(
        "sluice_flow_action_lists",
        "Different action lists in use.",
        One(|now| now.agent.table.parts().action_lists().into()),
    )
    .stats("flows.action_lists"),
];

/// All other numbers.
static OTHERS: &[Measure] = &[
    counter("sluice_flow_refusals_total", "Refusals, by the device or at acceptance.", Each("reason", refusals))
        .stats("events.refused")
        .coverage("flow_refused"),
    counter("sluice_flows_ended_total", "Flows that are gone, by reason.", Each("reason", ends))
        .stats("events.ended")
        .coverage("flow_ended"),
    counter(
        "sluice_ended_flow_packets_total",
        "Packets of flows that are gone.",
        One(|now| total(&now.counts.ended_packets)),
    )
    .stats("events.ended_packets"),
    counter(
        "sluice_ended_flow_bytes_total",
        "Bytes of flows that are gone.",
        One(|now| total(&now.counts.ended_bytes)),
    )
    .stats("events.ended_bytes"),
    counter(
        "sluice_watch_events_lost_total",
        "Events that slow watchers missed.",
        One(|now| total(&now.counts.unwatched)),
    )
    .stats("events.unwatched")
    .coverage("event_unwatched"),
    // The queue.
    gauge(
        "sluice_queue_depth",
        "Flows that a worker has yet to look at.",
        Each("worker", |now| workers(now, |worker| worker.queued.into())),
    )
    .stats("workers[].queued"),
    gauge(
        "sluice_changes_in_flight",
        "Changes that the device has not completed.",
        Each("worker", |now| workers(now, |worker| worker.in_flight.into())),
    )
    .stats("workers[].in_flight"),
    counter(
        "sluice_stray_completions_total",
        "Completions that answered nothing that was asked.",
        Each("worker", |now| workers(now, |worker| worker.strays.into())),
    )
    .stats("workers[].stray_completions"),
    only_shown("workers[].installed", Each("worker", |now| workers(now, |worker| worker.installed.into()))),
    only_shown(
        "workers[].latency_average_seconds",
        Each("worker", |now| workers(now, |worker| worker.latency_average.into())),
    ),
    histogram(
        INSTALL_DURATION,
        "Time from the acceptance of a change to its rule being in place.",
        latency,
    ),
    // The revalidator.
    gauge("sluice_revalidator_poll_seconds", "Duration of the last poll.", One(|now| now.published.last.poll.into()))
        .stats("revalidator.poll_seconds"),
    gauge(
        "sluice_revalidator_round_seconds",
        "Duration of the last round.",
        One(|now| now.published.last.duration.into()),
    )
    .stats("revalidator.round_seconds"),
    gauge("sluice_revalidator_period_seconds", "Time between polls now.", One(|now| now.published.last.period.into()))
        .stats("revalidator.period_seconds"),
    gauge(
        "sluice_revalidator_last_poll_age_seconds",
        "How long ago the last poll of the counters began.",
        One(last_poll_age),
    ),
    gauge("sluice_revalidator_paused", "Whether it is paused.", One(|now| now.published.paused.into()))
        .stats("revalidator.paused"),
    counter("sluice_revalidator_rounds_total", "Rounds.", One(|now| now.published.rounds.into()))
        .stats("revalidator.rounds")
        .coverage("revalidation_round"),
    counter(
        "sluice_revalidator_failed_polls_total",
        "Polls that were not complete.",
        One(|now| now.published.failures.into()),
    )
    .stats("revalidator.failures")
    .coverage("revalidation_failed"),
    counter(
        "sluice_revalidator_backward_counters_total",
        "Counters that ran backwards.",
        One(|now| now.published.backwards.into()),
    )
    .stats("revalidator.backwards")
    .coverage("counter_backwards"),
    // The device against the table.
    counter(
        "sluice_rules_changed_by_others_total",
        "Rules that were found to be changed by others, and made anew.",
        One(|now| now.published.changed_by_others.into()),
    ),
    gauge("sluice_audit_differences", "What the last audit found not to be as wanted.", Each("kind", audit_differences)),
    gauge(
        "sluice_audit_age_seconds",
        "How long ago the last audit was.",
        One(|now| now.agent.recent.audit().map(|audit| now.agent.clock.now().since(audit.at)).into()),
    ),
    only_shown("revalidator.readings", One(|now| now.published.last.readings.into())),
    only_shown(
        "revalidator.idle_timeout_seconds",
        One(|now| now.published.config.and_then(|config| config.idle_timeout).into()),
    ),
    only_shown(
        "revalidator.hard_timeout_seconds",
        One(|now| now.published.config.and_then(|config| config.hard_timeout).into()),
    ),
    // Rebalancing.
    gauge(
        "sluice_rebalance_off",
        "Whether rebalancing is off, for the backend cannot or by configuration.",
        Each("reason", rebalancing_off),
    ),
    counter(
        "sluice_rebalance_passes_total",
        "Times that flows were weighed.",
        One(|now| now.published.rebalancing.passes.into()),
    )
    .only_if(rebalances)
    .stats("rebalancing.passes"),
    gauge("sluice_rebalance_waiting_rules", "Rules in software for want of room.", One(waiting_rules))
        .stats("rebalancing.waiting"),
    gauge(
        "sluice_rebalance_pass_seconds",
        "Duration of the last pass.",
        One(|now| now.published.rebalancing.last.duration.into()),
    )
    .only_if(rebalances)
    .stats("rebalancing.last_pass_seconds"),
    gauge(
        "sluice_rebalance_hardware_packet_ratio",
        "What part of the packets hardware carried, as of the last pass.",
        One(|now| now.published.rebalancing.last.hardware_share().into()),
    )
    .only_if(rebalances)
    .stats("rebalancing.hardware_share"),
    only_shown("rebalancing.last_candidates", One(|now| now.published.rebalancing.last.candidates.into())),
    only_shown("rebalancing.last_up", One(|now| now.published.rebalancing.last.up.into())),
    only_shown("rebalancing.last_down", One(|now| now.published.rebalancing.last.down.into())),
    // The start.
    gauge(
        "sluice_start_rules",
        "Rules in the device at the start that were taken over or taken out, and flows that had none as wanted.",
        Each("fate", rules_at_start),
    ),
    gauge(
        "sluice_start_adoption_seconds",
        "Time to take them over.",
        One(|now| now.agent.adopted().map(|adopted| adopted.duration).into()),
    ),
    // The log of flows.
    gauge(
        "sluice_journal_failing",
        "Whether flows would not survive a restart: the log has why.",
        One(|now| journal(now, |report| report.failure.is_some().into())),
    ),
    gauge(
        "sluice_journal_records",
        "Records in the log of flows, dead ones included.",
        One(|now| journal(now, |report| report.records.into())),
    )
    .stats("journal.records"),
    gauge(
        "sluice_journal_restored_flows",
        "Flows of earlier runs taken on at the start.",
        One(|now| journal(now, |report| report.restored.flows.into())),
    )
    .stats("journal.restored_flows"),
    gauge(
        "sluice_journal_lost_flows",
        "Flows of earlier runs that were lost at the start, by damage or because they were not taken on.",
        One(|now| journal(now, |report| (report.restored.turned_away + report.restored.damage.lost_flows).into())),
    )
    .stats("journal.lost_flows"),
    gauge(
        "sluice_journal_lost_changes",
        "Changes lost by damage of which nothing is known.",
        One(|now| journal(now, |report| report.restored.damage.lost_changes.into())),
    )
    .stats("journal.lost_changes"),
    gauge(
        "sluice_journal_doubtful_flows",
        "Flows taken on at the start that lost changes may have deleted or changed.",
        One(|now| journal(now, |report| report.restored.damage.doubtful_flows.into())),
    )
    .stats("journal.doubtful_flows"),
    gauge(
        "sluice_journal_write_lag_seconds",
        "How long the oldest change that is not written has waited at most.",
        One(|now| journal(now, |report| report.lag.write.into())),
    )
    .stats("journal.write_lag_seconds"),
    gauge(
        "sluice_journal_sync_lag_seconds",
        "How long ago the oldest record that is not on the disk was written at most.",
        One(|now| journal(now, |report| report.lag.sync.into())),
    )
    .stats("journal.sync_lag_seconds"),
    gauge(
        "sluice_journal_kept_slots",
        "Slots of the table that are kept for ends of flows that are not written.",
        One(|now| journal(now, |report| report.lag.kept_slots.into())),
    ),
    gauge(
        "sluice_journal_reserved_bytes",
        "Room reserved to write the log anew.",
        One(|now| journal(now, |report| report.reserved.into())),
    ),
    gauge(
        "sluice_journal_load_seconds",
        "Time to read them at the start.",
        One(|now| journal(now, |report| report.restored.load.into())),
    ),
    gauge(
        "sluice_journal_away_seconds",
        "Time without an agent before the start at most, by the wall clock.",
        One(|now| journal(now, |report| report.restored.away.into())),
    ),
    gauge(
        "sluice_reinstatement_seconds",
        "Time that flows of earlier runs were without rules at most, where rules go with the agent; absent until all have their answer.",
        One(|now| now.agent.reinstatement.gap().into()),
    )
    .stats("reinstatement_seconds"),
    counter(
        "sluice_journal_written_records_total",
        "Records written.",
        One(|now| journal(now, |report| report.written.into())),
    )
    .stats("journal.written"),
    counter(
        "sluice_journal_written_bytes_total",
        "Bytes written.",
        One(|now| journal(now, |report| report.bytes.into())),
    ),
    counter(
        "sluice_journal_syncs_total",
        "Times that the disk was synced.",
        One(|now| journal(now, |report| report.syncs.into())),
    ),
    counter(
        "sluice_journal_compactions_total",
        "Compactions.",
        One(|now| journal(now, |report| report.compactions.into())),
    ),
    counter(
        "sluice_journal_unkept_records_total",
        "Records that could not be written at once.",
        One(|now| journal(now, |report| report.unkept.into())),
    ),
    // The device.
    lookup("hit", |now| now.device.lookups.and_then(|lookups| lookups.hits).into()),
    lookup("miss", |now| now.device.lookups.and_then(|lookups| lookups.misses).into()),
    counter(
        "sluice_chain_misses_total",
        "Packets that missed in a later chain.",
        One(|now| now.device.lookups.and_then(|lookups| lookups.chain_misses).into()),
    ),
    counter(
        "sluice_packets_lost_total",
        "Packets that a rule took and that were then lost.",
        One(|now| now.device.lookups.and_then(|lookups| lookups.lost).into()),
    ),
    counter(
        "sluice_mirror_packets_total",
        "Packets that a mirror copied.",
        Each("mirror", |now| mirrors(now, |found| found.packets)),
    ),
    counter(
        "sluice_mirror_bytes_total",
        "Bytes of packets that a mirror copied.",
        Each("mirror", |now| mirrors(now, |found| found.bytes)),
    ),
    at_ports(PORT_PACKETS, "rx", |now| ports(now, |port| port.rx_packets)),
    at_ports(PORT_PACKETS, "tx", |now| ports(now, |port| port.tx_packets)),
    at_ports(PORT_BYTES, "rx", |now| ports(now, |port| port.rx_bytes)),
    at_ports(PORT_BYTES, "tx", |now| ports(now, |port| port.tx_bytes)),
    counter(
        "sluice_log_lines_dropped_total",
        "Log lines that nobody read in time, or that could not be written.",
        One(|now| now.log.map(|log| log.dropped_lines).into()),
    ),
    log_messages("error", |now| now.log.map(|log| log.errors).into()),
    log_messages("warn", |now| now.log.map(|log| log.warnings).into()),
];

const PORT_PACKETS: (&str, &str) = ("sluice_port_packets_total", "Packets at a port.");
const PORT_BYTES: (&str, &str) = ("sluice_port_bytes_total", "Bytes at a port.");

pub(super) const fn gauge(name: &'static str, help: &'static str, read: Read) -> Measure {
    metric(Kind::Gauge, name, help, read)
}

pub(super) const fn counter(name: &'static str, help: &'static str, read: Read) -> Measure {
    metric(Kind::Counter, name, help, read)
}

const fn histogram(name: &'static str, help: &'static str, read: fn(&Reading<'_>) -> measure::Durations) -> Measure {
    metric(Kind::Histogram, name, help, Durations(read))
}

const fn metric(kind: Kind, name: &'static str, help: &'static str, read: Read) -> Measure {
    let metric = Metric { name, help, kind, label: None, is_there: |_| true };
    Measure { metric: Some(metric), stats: None, coverage: None, read }
}

/// A number that is no metric.
const fn only_shown(path: &'static str, read: Read) -> Measure {
    Measure { metric: None, stats: Some(path), coverage: None, read }
}

const fn of_events(count: &EventCount) -> Measure {
    let read = Read::Events(count.read);
    let row = match count.metric {
        EventMetric::Operation(name) => {
            counter("sluice_flow_operations_total", "What was done to flows.", read).label("op", name)
        }
        EventMetric::Rebalancing(direction) => {
            counter("sluice_rebalance_moves_total", "Rules moved to hardware and to software.", read)
                .label("direction", direction)
                .only_if(rebalances)
        }
    };
    row.stats(count.stats).coverage(count.coverage)
}

const fn lookup(result: &'static str, read: fn(&Reading<'_>) -> Number) -> Measure {
    counter("sluice_lookups_total", "Lookups in chain 0.", One(read)).label("result", result)
}

const fn log_messages(level: &'static str, read: fn(&Reading<'_>) -> Number) -> Measure {
    counter("sluice_log_messages_total", "Messages logged, those included that log_rate kept back.", One(read))
        .label("level", level)
}

const fn at_ports(
    (name, help): (&'static str, &'static str),
    direction: &'static str,
    read: fn(&Reading<'_>) -> Vec<(String, Number)>,
) -> Measure {
    counter(name, help, Each("port", read)).label("direction", direction)
}

impl Measure {
    pub(super) const fn stats(self, path: &'static str) -> Self {
        Self { stats: Some(path), ..self }
    }

    const fn coverage(self, name: &'static str) -> Self {
        Self { coverage: Some(name), ..self }
    }

    pub(super) const fn label(mut self, name: &'static str, value: &'static str) -> Self {
        if let Some(metric) = &mut self.metric {
            metric.label = Some((name, value));
        }
        self
    }

    pub(super) const fn only_if(mut self, is_there: fn(&Reading<'_>) -> bool) -> Self {
        if let Some(metric) = &mut self.metric {
            metric.is_there = is_there;
        }
        self
    }
}

fn build(now: &Reading<'_>) -> Vec<(&'static str, String)> {
    let backend = now.agent.backend.capabilities().name;
    let device = now.agent.config().device.clone();
    vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("backend", backend.to_owned()), ("device", device)]
}

fn flow_states(now: &Reading<'_>) -> Vec<(String, Number)> {
    FlowState::ALL.iter().map(|state| (state.name().to_owned(), now.census.in_state(*state).into())).collect()
}

fn placements(now: &Reading<'_>) -> Vec<(String, Number)> {
    let placed = |(placement, name): &(Placement, &str)| ((*name).to_owned(), now.census.placed(*placement).into());
    Placement::ALL.iter().map(placed).collect()
}

fn in_hardware(now: &Reading<'_>) -> Number {
    (now.census.placed(Placement::Hardware) + now.census.placed(Placement::Both)).into()
}

/// Absent before the first poll.
fn last_poll_age(now: &Reading<'_>) -> Number {
    (now.published.rounds > 0).then(|| now.agent.clock.now().since(now.published.last.began)).into()
}

/// Absent before the first audit.
fn audit_differences(now: &Reading<'_>) -> Vec<(String, Number)> {
    let Some(audit) = now.agent.recent.audit() else { return Vec::new() };
    difference::Kind::ALL
        .iter()
        .zip(audit.differences)
        .map(|(kind, count)| (kind.name().to_owned(), count.into()))
        .collect()
}

fn since_epoch(time: SystemTime) -> Option<f64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}

fn refusals(now: &Reading<'_>) -> Vec<(String, Number)> {
    Refusal::LABELS.iter().zip(&now.counts.refused).map(|(label, count)| ((*label).to_owned(), total(count))).collect()
}

fn ends(now: &Reading<'_>) -> Vec<(String, Number)> {
    EndReason::ALL.iter().zip(&now.counts.ended).map(|(end, count)| (end.name().to_owned(), total(count))).collect()
}

fn workers(now: &Reading<'_>, read: fn(&WorkerReport) -> Number) -> Vec<(String, Number)> {
    now.workers.iter().enumerate().map(|(index, worker)| (index.to_string(), read(worker))).collect()
}

/// How long installations took.
pub(crate) const INSTALL_DURATION: &str = "sluice_install_duration_seconds";

/// For each bucket of [`INSTALL_DURATION`], the one of the workers' last that took longest.
pub(crate) fn latency_examples(workers: &[WorkerReport]) -> Vec<Option<Installation>> {
    let longest = |bucket: usize| {
        let last = workers.iter().filter_map(|worker| worker.latency_examples[bucket]);
        last.max_by(|one, other| one.latency.total_cmp(&other.latency))
    };
    (0..=LATENCY_BUCKETS.len()).map(longest).collect()
}

/// Over all workers.
fn latency(now: &Reading<'_>) -> measure::Durations {
    let bucket = |(index, bound): (usize, &f64)| {
        (*bound, now.workers.iter().map(|worker| worker.latency_buckets[index]).sum::<u64>())
    };
    measure::Durations {
        count: now.workers.iter().map(|worker| worker.installed).sum(),
        sum: now.workers.iter().map(|worker| worker.latency_sum).sum(),
        buckets: LATENCY_BUCKETS.iter().enumerate().map(bucket).collect(),
    }
}

fn rebalances(now: &Reading<'_>) -> bool {
    matches!(now.published.rebalancing.state, State::On(_))
}

fn rebalancing_off(now: &Reading<'_>) -> Vec<(String, Number)> {
    let off = now.published.rebalancing.state.off();
    let is_off = |label: &str| f64::from(u8::from(off.is_some_and(|(reason, _)| reason == label)));
    ["backend", "config"].map(|label| (label.to_owned(), is_off(label).into())).into()
}

fn waiting_rules(now: &Reading<'_>) -> Number {
    match now.published.rebalancing.state {
        State::On(room) => room.waiting.into(),
        _ => Number::Absent,
    }
}

fn rules_at_start(now: &Reading<'_>) -> Vec<(String, Number)> {
    let Some(found) = now.agent.adopted() else { return Vec::new() };
    let fates = [("adopted", found.adopted), ("removed", found.orphans), ("to_install", found.outstanding)];
    fates.map(|(fate, rules)| (fate.to_owned(), rules.into())).into()
}

fn journal(now: &Reading<'_>, read: fn(&JournalReport) -> Number) -> Number {
    now.journal.as_ref().map(read).into()
}

fn mirrors(now: &Reading<'_>, read: fn(&MirrorCounters) -> u64) -> Vec<(String, Number)> {
    let objects = now.agent.objects();
    let counted = |name: &String| Some((name.clone(), read(&now.device.mirror(name)?).into()));
    objects.mirrors().filter_map(|mirror| counted(&mirror.name)).collect()
}

/// Of ports at which the device counts.
fn ports(now: &Reading<'_>, read: fn(&PortCounters) -> u64) -> Vec<(String, Number)> {
    let counted = |name: &str, number| Some((name.to_owned(), read(&now.device.port(number)?).into()));
    now.agent.ports().iter().filter_map(|port| counted(&port.name, port.number)).collect()
}

fn total(counter: &AtomicU64) -> Number {
    counter.load(Ordering::Relaxed).into()
}
