//! `dpctl/show`, `dpctl/dump-dps` and `dpctl/offload-stats-show`.

use sluice_flow::Origin;
use sluice_flow::backend::LookupCounters;
use sluice_flow::port::{PortKind, Tunnel};
use sluice_flow::source::SourceReport;
use sluice_offload::WorkerReport;
use sluice_unixctl::Output;

use super::arguments::Arguments;
use super::failure::Failure;
use crate::service::AgentView;

/// `dpctl/dump-dps`
pub(super) fn list(agent: &AgentView, _: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    Ok(writeln!(out, "{}", agent.datapath())?)
}

/// `dpctl/show`. What the device does not count is shown as `?`, as OVS does.
pub(super) fn show(agent: &AgentView, arguments: &Arguments, out: &mut dyn Output) -> Result<(), Failure> {
    arguments.after_datapath(agent, 0)?;
    writeln!(out, "{}:", agent.datapath())?;
    let device = agent.device_counters();
    let LookupCounters { hits, misses, lost, chain_misses: _ } = device.lookups.unwrap_or_default();
    let [hits, misses, lost] = [hits, misses, lost].map(known);
    writeln!(out, "  lookups: hit:{hits} missed:{misses} lost:{lost}")?;
    writeln!(out, "  flows: {}", agent.census().live())?;
    for (origin, report) in agent.sources() {
        write_source(origin, &report, out)?;
    }
    for port in agent.ports().iter() {
        let mut details = Vec::new();
        if let PortKind::Tunnel(Tunnel { udp_port, underlay, .. }) = &port.kind {
            details.extend(udp_port.map(|udp_port| format!("udp_port={udp_port}")));
            details.push(format!("underlay={underlay}"));
        }
        if agent.is_absent(port.number) {
            details.push("absent".to_owned());
        }
        let colon = if details.is_empty() { "" } else { ": " };
        let (kind, details) = (port.kind.name(), details.join(", "));
        writeln!(out, "  port {}: {} ({kind}{colon}{details})", port.number, port.name)?;
        if arguments.statistics {
            let counters = device.port(port.number);
            let [rx_packets, rx_bytes, tx_packets, tx_bytes] = [
                counters.map(|c| c.rx_packets),
                counters.map(|c| c.rx_bytes),
                counters.map(|c| c.tx_packets),
                counters.map(|c| c.tx_bytes),
            ]
            .map(known);
            writeln!(out, "    RX packets:{rx_packets} errors:? dropped:? overruns:? frame:?")?;
            writeln!(out, "    TX packets:{tx_packets} errors:? dropped:? aborted:? carrier:?")?;
            writeln!(out, "    collisions:?")?;
            writeln!(out, "    RX bytes:{rx_bytes}  TX bytes:{tx_bytes}")?;
        }
    }
    Ok(())
}

/// A count, or what OVS prints for one that there is not.
fn known(count: Option<u64>) -> String {
    count.map_or("?".to_owned(), |count| count.to_string())
}

/// What a source tells of itself: in a line, and one more for each thing that a person should know.
fn write_source(origin: Origin, report: &SourceReport, out: &mut dyn Output) -> std::fmt::Result {
    let SourceReport { subject, trouble, caveat, chain_miss, ports_left_out, flows, flows_left_out, reasons, .. } =
        report;
    write!(out, "  source {}: {subject}, ", origin.name())?;
    match trouble {
        Some(trouble) => writeln!(out, "cannot be read: {trouble}")?,
        None if *flows_left_out > 0 => writeln!(out, "{flows} flows, {flows_left_out} of them left out")?,
        None => writeln!(out, "{flows} flows")?,
    }
    for (reason, count) in reasons {
        writeln!(out, "    {count} left out: {reason}")?;
    }
    for (port, reason) in ports_left_out {
        writeln!(out, "    without port {port}: {reason}")?;
    }
    if let Some(what) = chain_miss {
        writeln!(out, "    a packet that misses in a later chain {what}")?;
    }
    caveat.iter().try_for_each(|caveat| writeln!(out, "    {caveat}"))
}

/// `dpctl/offload-stats-show`
pub(super) fn offload_statistics(
    agent: &AgentView,
    arguments: &Arguments,
    out: &mut dyn Output,
) -> Result<(), Failure> {
    arguments.after_datapath(agent, 0)?;
    let (reports, rules): (Vec<_>, Vec<_>) = agent.workers().into_iter().unzip();
    writeln!(out, "HW Offload stats:")?;
    rows(out, "Total", &reports, rules.iter().sum())?;
    for (index, (report, rules)) in reports.iter().zip(rules).enumerate() {
        rows(out, &format!("[{index:3}]"), std::slice::from_ref(report), rules)?;
    }
    Ok(())
}

/// The six rows of OVS for some workers together, whose flows have so many rules now; latencies in microseconds.
fn rows(out: &mut dyn Output, who: &str, reports: &[WorkerReport], rules: usize) -> std::fmt::Result {
    let enqueued: usize = reports.iter().map(|report| report.queued + report.in_flight).sum();
    let installed: u64 = reports.iter().map(|report| report.installed).sum();
    #[expect(clippy::cast_precision_loss, reason = "averages for people to read")]
    let (count, workers) = (installed as f64, reports.len().max(1) as f64);
    let mean = |sum: f64| if installed == 0 { 0.0 } else { sum / count };
    let average: f64 = mean(reports.iter().map(|report| report.latency_sum).sum());
    let variance: f64 = mean(reports.iter().map(|report| report.latency_square_sum).sum()) - average * average;
    let exponential = reports.iter().map(|report| report.latency_average).sum::<f64>() / workers;
    let exponential_variance = reports.iter().map(|report| report.latency_variance).sum::<f64>() / workers;
    writeln!(out, "  {who:>8}  {:>32}: {enqueued:>6}", "Enqueued offloads")?;
    writeln!(out, "  {who:>8}  {:>32}: {rules:>6}", "Inserted offloads")?;
    for (name, seconds) in [
        ("Cumulative Average latency (us)", average),
        ("Cumulative Latency stddev (us)", variance.max(0.0).sqrt()),
        ("Exponential Average latency (us)", exponential),
        ("Exponential Latency stddev (us)", exponential_variance.max(0.0).sqrt()),
    ] {
        writeln!(out, "  {who:>8}  {name:>32}: {:>6.0}", seconds * 1e6)?;
    }
    Ok(())
}
