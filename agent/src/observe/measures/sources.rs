//! The numbers of sources of flows.

use sluice_flow::source::SourceReport;

use super::measure::Measure;
use super::measure::Read::Each;
use super::number::Number;
use super::reading::Reading;
use super::table::{counter, gauge};

/// The rows, which are there only if there is a source.
pub(super) static SOURCES: &[Measure] = &[
    gauge(
        "sluice_source_up",
        "Whether the source can be read; its flows have no rules while it cannot.",
        Each("source", |now| of_each(now, |report| report.trouble.is_none().into())),
    )
    .only_if(is_on)
    .stats("sources.up"),
    gauge(
        "sluice_source_flows",
        "Flows that the source has.",
        Each("source", |now| of_each(now, |report| report.flows.into())),
    )
    .only_if(is_on)
    .stats("sources.flows"),
    gauge(
        "sluice_source_flows_left_out",
        "Flows of the source that could not be read or taken on.",
        Each("source", |now| of_each(now, |report| report.flows_left_out.into())),
    )
    .only_if(is_on)
    .stats("sources.flows_left_out"),
    gauge(
        "sluice_source_ports_left_out",
        "Ports of the source that could not be taken on.",
        Each("source", |now| of_each(now, |report| report.ports_left_out.len().into())),
    )
    .only_if(is_on)
    .stats("sources.ports_left_out"),
    counter(
        "sluice_source_messages_total",
        "Messages of the source about flows.",
        Each("source", |now| of_each(now, |report| report.messages.into())),
    )
    .only_if(is_on)
    .stats("sources.messages"),
    counter(
        "sluice_source_losses_total",
        "How often messages of the source were lost, and all flows compared for it.",
        Each("source", |now| of_each(now, |report| report.losses.into())),
    )
    .only_if(is_on)
    .stats("sources.losses"),
    counter(
        "sluice_source_comparisons_total",
        "How often all flows of the source were compared.",
        Each("source", |now| of_each(now, |report| report.comparisons.into())),
    )
    .only_if(is_on)
    .stats("sources.comparisons"),
];

fn is_on(now: &Reading<'_>) -> bool {
    !now.agent.source_reports.all().is_empty()
}

fn of_each(now: &Reading<'_>, read: fn(&SourceReport) -> Number) -> Vec<(String, Number)> {
    now.agent.source_reports.all().iter().map(|(origin, report)| (origin.name().to_owned(), read(report))).collect()
}
