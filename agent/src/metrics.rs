//! The metrics, each named once, taken from the agent at the moment of a scrape.
//!
//! The `prometheus` crate gives the types, the text form and the process collector. Its own counters are not used on
//! the flow path, for the table and the queue count already, without a shared atomic per event and label look-up; a
//! collector turns those counts into metric families. Units are seconds and bytes, label sets are closed, and no series
//! is kept per flow.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, Registry, TextEncoder};
use sluice_flow::backend::{MirrorCounters, Placement};
use sluice_flow::{EndReason, FlowState, Refusal};

use crate::agent::Agent;
use crate::device_counters::DeviceCounters;
use crate::log_writer::LogWriter;
use crate::offload::{LATENCY_BUCKETS, WorkerReport};
use crate::rebalancing::State;

/// A revalidator that has not finished a round for so long is not ready.
const STALE_ROUND: Duration = Duration::from_secs(60);

/// Everything that is scraped.
pub struct Metrics {
    registry: Registry,
    agent: Arc<Agent>,
}

impl Metrics {
    /// The metrics of an agent and of this process.
    pub fn new(agent: Arc<Agent>) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(AgentCollector { agent: agent.clone() }))?;
        Ok(Self { registry, agent })
    }

    /// The same with what is known of the log on standard error.
    pub fn with_log(self, log: LogWriter) -> Result<Self, prometheus::Error> {
        self.registry.register(Box::new(LogCollector::new(log)?))?;
        Ok(self)
    }

    /// The text of a scrape, in exposition format 0.0.4.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }

    /// Whether flows are taken and revalidated, or why not.
    pub fn readiness(&self) -> Result<(), String> {
        let published = self.agent.revalidation.published();
        let since = self.agent.clock.now().since(published.last.began);
        if published.paused {
            return Err("the revalidator is paused".into());
        }
        if published.rounds == 0 {
            return Err("the revalidator has not finished its first round".into());
        }
        if since > STALE_ROUND.max(published.last.period * 4) {
            return Err(format!("the last revalidation began {} s ago", since.as_secs()));
        }
        if let Some(report) = self.agent.journal.as_ref().map(|journal| journal.report()) {
            if let Some(failure) = report.failure {
                return Err(format!("flows are taken on, but do not survive a restart: {failure}"));
            }
            if let Some(damage) = report.damage {
                return Err(damage.to_string());
            }
        }
        self.agent.damage_of_objects().map_or(Ok(()), Err)
    }
}

struct LogCollector {
    log: LogWriter,
    dropped: Desc,
}

impl LogCollector {
    fn new(log: LogWriter) -> Result<Self, prometheus::Error> {
        let (name, help) = ("sluice_log_lines_dropped_total", "Log lines that nobody read in time.");
        Ok(Self { log, dropped: Desc::new(name.into(), help.into(), Vec::new(), HashMap::new())? })
    }
}

impl Collector for LogCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.dropped]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Families::default();
        let Desc { fq_name, help, .. } = &self.dropped;
        families.counter(fq_name, help, &[(&[], precise(self.log.dropped()))]);
        families.0
    }
}

struct AgentCollector {
    agent: Arc<Agent>,
}

impl Collector for AgentCollector {
    /// None: the collector is unchecked, for its families depend on what the device counts.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Families::default();
        self.agent_itself(&mut families);
        self.flows(&mut families);
        self.queue(&mut families);
        self.revalidator(&mut families);
        self.rebalancing(&mut families);
        self.adoption(&mut families);
        self.journal(&mut families);
        self.device(&mut families);
        families.0
    }
}

impl AgentCollector {
    fn agent_itself(&self, families: &mut Families) {
        let config = self.agent.config();
        let backend = self.agent.backend.capabilities().name;
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("backend", backend), ("device", &config.device)];
        families.gauge("sluice_build_info", "What runs, always 1.", &[(&labels, 1.0)]);
    }

    fn flows(&self, families: &mut Families) {
        let census = self.agent.table.census();
        let counts = self.agent.events.counts();
        let states: Vec<_> =
            FlowState::ALL.iter().map(|state| ([("state", state.name())], amount(census.in_state(*state)))).collect();
        families.gauge("sluice_flows", "Flows in the table.", &borrowed(&states));
        let placed: Vec<_> = Placement::ALL
            .iter()
            .map(|(placement, name)| ([("placement", *name)], amount(census.placed(*placement))))
            .collect();
        let help = "Flows whose rule is there as wanted, by what carries it.";
        families.gauge("sluice_flows_placed", help, &borrowed(&placed));
        families.gauge("sluice_flow_limit", "How many flows there may be.", &[(&[], amount(census.flow_limit()))]);
        let unsettled = amount(census.unsettled());
        families.gauge("sluice_flows_unsettled", "Flows with a change that has no outcome.", &[(&[], unsettled)]);
        let (masks, action_lists) = self.agent.table.shared_parts();
        families.gauge("sluice_flow_masks", "Different masks in use.", &[(&[], amount(masks))]);
        families.gauge("sluice_flow_action_lists", "Different action lists in use.", &[(&[], amount(action_lists))]);

        let operations = [
            ([("op", "accept")], count(&counts.accepted)),
            ([("op", "install")], count(&counts.installed)),
            ([("op", "adopt")], count(&counts.adopted)),
            ([("op", "modify")], count(&counts.modified)),
        ];
        families.counter("sluice_flow_operations_total", "What was done to flows.", &borrowed(&operations));
        let refused: Vec<_> =
            Refusal::LABELS.iter().zip(&counts.refused).map(|(label, n)| ([("reason", *label)], count(n))).collect();
        families.counter(
            "sluice_flow_refusals_total",
            "Refusals, by the device or at acceptance.",
            &borrowed(&refused),
        );
        let ended: Vec<_> =
            EndReason::ALL.iter().zip(&counts.ended).map(|(end, n)| ([("reason", end.name())], count(n))).collect();
        families.counter("sluice_flows_ended_total", "Flows that are gone, by reason.", &borrowed(&ended));
        let packets = count(&counts.ended_packets);
        families.counter("sluice_ended_flow_packets_total", "Packets of flows that are gone.", &[(&[], packets)]);
        let bytes = count(&counts.ended_bytes);
        families.counter("sluice_ended_flow_bytes_total", "Bytes of flows that are gone.", &[(&[], bytes)]);
        let lost = count(&counts.unwatched);
        families.counter("sluice_watch_events_lost_total", "Events that slow watchers missed.", &[(&[], lost)]);
    }

    fn queue(&self, families: &mut Families) {
        let reports = self.agent.queue.reports();
        let names: Vec<_> = (0..reports.len()).map(|index| index.to_string()).collect();
        let each = |value: fn(&WorkerReport) -> f64| {
            names
                .iter()
                .zip(&reports)
                .map(|(name, report)| ([("worker", name.as_str())], value(report)))
                .collect::<Vec<_>>()
        };
        let queued = each(|report| amount(report.queued));
        families.gauge("sluice_queue_depth", "Flows that a worker has yet to look at.", &borrowed(&queued));
        let in_flight = each(|report| amount(report.in_flight));
        families.gauge("sluice_changes_in_flight", "Changes that the device has not completed.", &borrowed(&in_flight));
        let strays = each(|report| precise(report.strays));
        let help = "Completions that answered nothing that was asked.";
        families.counter("sluice_stray_completions_total", help, &borrowed(&strays));
        families.latency(&reports);
    }

    fn revalidator(&self, families: &mut Families) {
        let published = self.agent.revalidation.published();
        let seconds = |span: Duration| span.as_secs_f64();
        for (name, help, value) in [
            ("sluice_revalidator_poll_seconds", "Duration of the last poll.", seconds(published.last.poll)),
            ("sluice_revalidator_round_seconds", "Duration of the last round.", seconds(published.last.duration)),
            ("sluice_revalidator_period_seconds", "Time between polls now.", seconds(published.last.period)),
            ("sluice_revalidator_paused", "Whether it is paused.", f64::from(u8::from(published.paused))),
        ] {
            families.gauge(name, help, &[(&[], value)]);
        }
        for (name, help, value) in [
            ("sluice_revalidator_rounds_total", "Rounds.", published.rounds),
            ("sluice_revalidator_failed_polls_total", "Polls that were not complete.", published.failures),
            ("sluice_revalidator_backward_counters_total", "Counters that ran backwards.", published.backwards),
        ] {
            families.counter(name, help, &[(&[], precise(value))]);
        }
    }

    fn rebalancing(&self, families: &mut Families) {
        let report = self.agent.revalidation.published().rebalancing;
        let is_off = |label: &str| f64::from(u8::from(report.state.off().is_some_and(|(reason, _)| reason == label)));
        let off = ["backend", "config"].map(|label| ([("reason", label)], is_off(label)));
        let help = "Whether rebalancing is off, for the backend cannot or by configuration.";
        families.gauge("sluice_rebalance_off", help, &borrowed(&off));
        // What cannot be is absent, not zero.
        let State::On(room) = report.state else { return };
        let counts = self.agent.events.counts();
        let moves =
            [([("direction", "up")], count(&counts.moved_up)), ([("direction", "down")], count(&counts.moved_down))];
        families.counter("sluice_rebalance_moves_total", "Rules moved to hardware and to software.", &borrowed(&moves));
        let passes = precise(report.passes);
        families.counter("sluice_rebalance_passes_total", "Times that flows were weighed.", &[(&[], passes)]);
        let waiting = amount(room.waiting);
        families.gauge("sluice_rebalance_waiting_rules", "Rules in software for want of room.", &[(&[], waiting)]);
        let seconds = report.last.duration.as_secs_f64();
        families.gauge("sluice_rebalance_pass_seconds", "Duration of the last pass.", &[(&[], seconds)]);
        if let Some(share) = report.last.hardware_share() {
            let help = "What part of the packets hardware carried, as of the last pass.";
            families.gauge("sluice_rebalance_hardware_packet_ratio", help, &[(&[], share)]);
        }
    }

    fn adoption(&self, families: &mut Families) {
        let Some(adopted) = self.agent.adopted() else { return };
        let rules = [
            ([("fate", "adopted")], amount(adopted.adopted)),
            ([("fate", "removed")], amount(adopted.orphans)),
            ([("fate", "to_install")], amount(adopted.outstanding)),
        ];
        let help =
            "Rules in the device at the start that were taken over or taken out, and flows that had none as wanted.";
        families.gauge("sluice_start_rules", help, &borrowed(&rules));
        let seconds = adopted.duration.as_secs_f64();
        families.gauge("sluice_start_adoption_seconds", "Time to take them over.", &[(&[], seconds)]);
    }

    fn journal(&self, families: &mut Families) {
        let Some(journal) = &self.agent.journal else { return };
        let report = journal.report();
        let restored = &report.restored;
        let failing = f64::from(u8::from(report.failure.is_some()));
        let damage = &restored.damage;
        for (name, help, value) in [
            ("sluice_journal_failing", "Whether flows would not survive a restart: the log has why.", failing),
            ("sluice_journal_records", "Records in the log of flows, dead ones included.", precise(report.records)),
            ("sluice_journal_restored_flows", "Flows of earlier runs taken on at the start.", precise(restored.flows)),
            (
                "sluice_journal_lost_flows",
                "Flows of earlier runs that were lost at the start, by damage or because they were not taken on.",
                precise(restored.turned_away + damage.lost_flows),
            ),
            (
                "sluice_journal_lost_changes",
                "Changes lost by damage of which nothing is known.",
                precise(damage.lost_changes),
            ),
            (
                "sluice_journal_doubtful_flows",
                "Flows taken on at the start that lost changes may have deleted or changed.",
                precise(damage.doubtful_flows),
            ),
            (
                "sluice_journal_write_lag_seconds",
                "How long the oldest change that is not written has waited at most.",
                report.lag.write.as_secs_f64(),
            ),
            (
                "sluice_journal_sync_lag_seconds",
                "How long ago the oldest record that is not on the disk was written at most.",
                report.lag.sync.as_secs_f64(),
            ),
            (
                "sluice_journal_kept_slots",
                "Slots of the table that are kept for ends of flows that are not written.",
                amount(report.lag.kept_slots),
            ),
            ("sluice_journal_reserved_bytes", "Room reserved to write the log anew.", precise(report.reserved)),
            ("sluice_journal_load_seconds", "Time to read them at the start.", restored.load.as_secs_f64()),
        ] {
            families.gauge(name, help, &[(&[], value)]);
        }
        if let Some(away) = restored.away {
            let help = "Time without an agent before the start at most, by the wall clock.";
            families.gauge("sluice_journal_away_seconds", help, &[(&[], away.as_secs_f64())]);
        }
        for (name, help, value) in [
            ("sluice_journal_written_records_total", "Records written.", report.written),
            ("sluice_journal_written_bytes_total", "Bytes written.", report.octets),
            ("sluice_journal_syncs_total", "Times that the disk was synced.", report.syncs),
            ("sluice_journal_compactions_total", "Compactions.", report.compactions),
            ("sluice_journal_unkept_records_total", "Records that could not be written at once.", report.unkept),
        ] {
            families.counter(name, help, &[(&[], precise(value))]);
        }
    }

    fn device(&self, families: &mut Families) {
        let device = self.agent.device_counters();
        if let Some(lookups) = device.lookups {
            let results =
                [([("result", "hit")], precise(lookups.hits)), ([("result", "miss")], precise(lookups.misses))];
            families.counter("sluice_lookups_total", "Lookups in chain 0.", &borrowed(&results));
            let help = "Packets that missed in a later chain.";
            families.counter("sluice_chain_misses_total", help, &[(&[], precise(lookups.chain_misses))]);
            let help = "Packets that a rule took and that were then lost.";
            families.counter("sluice_packets_lost_total", help, &[(&[], precise(lookups.lost))]);
        }
        self.mirrors(&device, families);
        // What the device does not count is absent, not zero.
        let ports = self.agent.ports();
        let counted: Vec<_> = ports.iter().filter_map(|port| Some((&*port.name, device.port(port.number)?))).collect();
        let (mut packets, mut bytes) = (Vec::new(), Vec::new());
        for (name, port) in &counted {
            packets.push(([("port", *name), ("direction", "rx")], precise(port.rx_packets)));
            packets.push(([("port", *name), ("direction", "tx")], precise(port.tx_packets)));
            bytes.push(([("port", *name), ("direction", "rx")], precise(port.rx_bytes)));
            bytes.push(([("port", *name), ("direction", "tx")], precise(port.tx_bytes)));
        }
        families.counter("sluice_port_packets_total", "Packets at a port.", &borrowed(&packets));
        families.counter("sluice_port_bytes_total", "Bytes at a port.", &borrowed(&bytes));
    }
}

impl AgentCollector {
    fn mirrors(&self, device: &DeviceCounters, families: &mut Families) {
        let objects = self.agent.objects();
        let counted: Vec<_> =
            objects.mirrors().filter_map(|mirror| Some((mirror.name.as_str(), device.mirror(&mirror.name)?))).collect();
        let each = |value: fn(&MirrorCounters) -> u64| {
            counted.iter().map(|(name, found)| ([("mirror", *name)], precise(value(found)))).collect::<Vec<_>>()
        };
        let packets = each(|found| found.packets);
        families.counter("sluice_mirror_packets_total", "Packets that a mirror copied.", &borrowed(&packets));
        let bytes = each(|found| found.bytes);
        families.counter("sluice_mirror_bytes_total", "Bytes of packets that a mirror copied.", &borrowed(&bytes));
    }
}

type Labels<'a> = &'a [(&'a str, &'a str)];

/// Metric families as they come.
#[derive(Default)]
struct Families(Vec<MetricFamily>);

impl Families {
    fn gauge(&mut self, name: &str, help: &str, values: &[(Labels<'_>, f64)]) {
        self.family(name, help, MetricType::GAUGE, values, |metric, value| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        });
    }

    fn counter(&mut self, name: &str, help: &str, values: &[(Labels<'_>, f64)]) {
        self.family(name, help, MetricType::COUNTER, values, |metric, value| {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        });
    }

    /// The time from a wish to its outcome, over all workers.
    fn latency(&mut self, reports: &[WorkerReport]) {
        let mut histogram = Histogram::default();
        histogram.set_sample_count(reports.iter().map(|report| report.installed).sum());
        histogram.set_sample_sum(reports.iter().map(|report| report.latency_sum).sum());
        let bucket = |(index, bound): (usize, &f64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(reports.iter().map(|report| report.latency_buckets[index]).sum());
            bucket
        };
        histogram.set_bucket(LATENCY_BUCKETS.iter().enumerate().map(bucket).collect());
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        let help = "Time from the acceptance of a change to its rule being in place.";
        self.push("sluice_install_duration_seconds", help, MetricType::HISTOGRAM, vec![metric]);
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: &[(Labels<'_>, f64)],
        set: impl Fn(&mut Metric, f64),
    ) {
        let metric = |(labels, value): &(Labels<'_>, f64)| {
            let mut metric = Metric::default();
            metric.set_label(labels.iter().map(|(name, value)| label(name, value)).collect());
            set(&mut metric, *value);
            metric
        };
        if !values.is_empty() {
            self.push(name, help, kind, values.iter().map(metric).collect());
        }
    }

    fn push(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}

fn borrowed<'a, const N: usize>(values: &'a [([(&'a str, &'a str); N], f64)]) -> Vec<(Labels<'a>, f64)> {
    values.iter().map(|(labels, value)| (labels.as_slice(), *value)).collect()
}

fn count(counter: &AtomicU64) -> f64 {
    precise(counter.load(Ordering::Relaxed))
}

fn amount(count: usize) -> f64 {
    precise(count as u64)
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn precise(count: u64) -> f64 {
    count as f64
}
