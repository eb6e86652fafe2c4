//! Ten million flows on a device that takes 5 us or 5 ms for each change: what follows for rate, latency, memory, period.
//!
//! If this machine has not the memory for ten million, fewer are simulated, and the result says how many. Writes
//! `target/bench/simulation.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::time::Duration;

use serde_json::json;
use sluice_tests::bench::{self, quantile};
use sluice_tests::simulation::scaling::{Model, run};

const FLOWS: usize = 10_000_000;
/// Of this size memory must be there for each flow, and as much again for others.
const ROOM: usize = 500;
const WORKERS: usize = 2;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let flows = FLOWS.min(available() / 2 / ROOM);
    let models = [
        ("5 us a change", Duration::from_micros(5), 65_536, Duration::from_secs(2)),
        ("5 ms a change", Duration::from_millis(5), 65_536, Duration::from_secs(300)),
        ("5 ms a change, dirty_limit 1,000", Duration::from_millis(5), 1_000, Duration::from_secs(60)),
    ];
    let (mut rows, mut bytes_a_flow) = (Vec::new(), None);
    for (name, operation, unsettled, span) in models {
        let read = Duration::from_nanos(300);
        let report = run(&Model { flows, operation, workers: WORKERS, unsettled, offered: 5, read, span });
        // Later ones find memory that the first gave back.
        let bytes_a_flow = *bytes_a_flow.get_or_insert(report.bytes_a_flow);
        let latency =
            |samples: &[u64], part| if samples.is_empty() { 0.0 } else { quantile(samples, part) as f64 / 1e9 };
        let rate = |count: u64| count as f64 / span.as_secs_f64();
        let round = &report.last_round;
        println!("{name}, {flows} flows, {WORKERS} workers, 5 times as much offered, {} s", span.as_secs());
        println!(
            "  in the device: {:.0} adds/s and {:.0} deletes/s of {:.0} changes/s",
            rate(report.installed),
            rate(report.deletes.1),
            WORKERS as f64 / operation.as_secs_f64()
        );
        println!(
            "  told busy: {} of {} adds; waiting at most {}",
            report.busy,
            report.busy + report.accepted,
            report.most_unsettled
        );
        let (add, delete) = (&report.add_latency, &report.delete_latency);
        println!(
            "  add latency p50 {:.4} s, p99 {:.4} s; delete p50 {:.4} s, p99 {:.4} s",
            latency(add, 0.5),
            latency(add, 0.99),
            latency(delete, 0.5),
            latency(delete, 0.99)
        );
        println!(
            "  table {bytes_a_flow:.0} bytes and {:.0} ns of CPU a flow accepted and settled; {:.1} GB in all",
            report.accept_cpu,
            bytes_a_flow * flows as f64 / 1e9
        );
        println!(
            "  a round {:.0} ns a flow and {} ns for the device: {:.2} s, every {:.2} s; a walk over all {:.2} s; evicted {}",
            report.round_cpu,
            read.as_nanos(),
            round.duration.as_secs_f64(),
            round.wait().as_secs_f64(),
            report.dump_cpu * flows as f64 / 1e9,
            report.evicted
        );
        let allowed = round.wait() * 2 + round.duration;
        println!(
            "  a flow that falls silent goes {:.1} s after its timeout; two polls and a round are {:.1} s",
            report.expired_late.as_secs_f64(),
            allowed.as_secs_f64()
        );
        assert_eq!(report.evicted, 0, "every flow is in use and fits");
        assert!(report.expired_late <= allowed);
        rows.push(json!({
            "name": name, "flows": flows, "operation_seconds": operation.as_secs_f64(), "workers": WORKERS,
            "dirty_limit": unsettled, "span_seconds": span.as_secs_f64(), "installs_a_second": rate(report.installed),
            "deletes_a_second": rate(report.deletes.1), "accepted": report.accepted, "busy": report.busy,
            "most_unsettled": report.most_unsettled,
            "add_latency_seconds": { "p50": latency(add, 0.5), "p99": latency(add, 0.99), "max": latency(add, 1.0) },
            "delete_latency_seconds": { "p50": latency(delete, 0.5), "p99": latency(delete, 0.99), "max": latency(delete, 1.0) },
            "table_bytes_a_flow": bytes_a_flow, "table_bytes": bytes_a_flow * flows as f64,
            "expired_late_seconds": report.expired_late.as_secs_f64(), "expired_late_allowed_seconds": allowed.as_secs_f64(),
            "accept_cpu_ns_a_flow": report.accept_cpu, "round_cpu_ns_a_flow": report.round_cpu,
            "device_read_ns_a_flow": read.as_secs_f64() * 1e9, "round_seconds": round.duration.as_secs_f64(),
            "period_seconds": round.wait().as_secs_f64(), "walk_seconds": report.dump_cpu * flows as f64 / 1e9,
            "rounds": report.rounds, "evicted": report.evicted,
        }));
    }
    bench::write("simulation", &json!({ "rows": rows }));
}

/// Memory that programs can still get, in bytes.
fn available() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").expect("proc is mounted");
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("it has a size");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number") * 1024
}
