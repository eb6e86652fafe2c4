//! How long a scrape of `/metrics` takes over HTTP, at rest and while flows are added.
//!
//! The daemon has 10,000, 100,000 and 1,000,000 flows on the NIC in software. While flows are added, a client hands over
//! requests of 500 without waiting for the device, as fast as they are taken. Each size has a daemon
//! of its own. Both states are scraped in turns. Each scrape is a connection of its own, as the longest way that Prometheus may
//! take. Between two of them `/healthz` is asked for in the same way, which says next to nothing: what that takes is the
//! floor, and on a machine with less processors than busy threads it is most of the time. Writes `target/bench/scrape.json`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench that cannot go on says so and ends"
)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_control::Client;
use sluice_tests::bench::{self, five_tuple_lines, quantile, timed};
use sluice_tests::daemon::Daemon;
use sluice_tests::world::{SEED, eventually};

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
/// Turns, and scrapes in each of the two states of a turn.
const TURNS: usize = 6;
const SCRAPES: usize = 40;
/// Between two scrapes.
const PAUSE: Duration = Duration::from_millis(10);
/// Flows of one request.
const REQUEST: usize = 500;
/// Flows that may be added in one turn.
const MORE: usize = 700_000;
/// What is to be reached, in milliseconds.
const TO_REACH: f64 = 10.0;

const CONFIG: &str = r#"
idle_timeout = "none"
flow_limit = 8000000
dirty_limit = 8000000
persist = false
[[port]]
number = 1
name = "p1"
[[port]]
number = 2
name = "p2"
[[port]]
number = 3
name = "p3"
[[port]]
number = 4
name = "p4"
[[port]]
number = 5
name = "p5"
"#;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let (mut rows, mut growth) = (Vec::new(), Vec::new());
    let title = "/metrics and /healthz, ms";
    println!("{title:<28} {:>9} {:>9} {:>9} {:>11} {:>11}", "flows", "p50", "p99", "floor p50", "floor p99");
    for flows in SIZES {
        for row in measure(flows) {
            let name = format!("/metrics {}, median", row["state"].as_str().unwrap_or_default());
            growth.push(json!({ "name": name, "flows": flows, "value": row["p50"], "unit": "ms" }));
            rows.push(row);
        }
    }
    bench::write("scrape", &json!({ "rows": rows, "growth": growth }));
}

fn measure(flows: usize) -> [Value; 2] {
    let daemon = Daemon::start(CONFIG);
    let lines = five_tuple_lines(flows + TURNS * MORE, &SEED);
    let all: Vec<&str> = lines.lines().collect();
    let (first, more) = all.split_at(flows);
    let mut client = Client::connect(&daemon.socket()).expect("it listens");
    for request in first.chunks(REQUEST * 20) {
        add(&mut client, request);
    }
    settle(&daemon, flows);
    let (mut rest, mut busy) = (Vec::new(), Vec::new());
    let mut added = 0;
    for more in more.chunks(MORE) {
        rest.extend((0..SCRAPES).map(|_| scrape(&daemon)));
        let (spans, count) = while_adding(&daemon, &mut client, more);
        busy.extend(spans);
        added += count;
        settle(&daemon, flows + added);
    }
    assert!(added > 0, "flows were added meanwhile");
    [("at rest", rest), ("while flows are added", busy)].map(|(state, spans)| {
        let [metrics, floor] = [0, 1].map(|page| spans.iter().map(|span: &[f64; 2]| span[page]).collect::<Vec<_>>());
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|part| quantile(&metrics, part));
        let [floor_p50, floor_p99] = [0.5, 0.99].map(|part| quantile(&floor, part));
        let name = format!("/metrics with {flows} flows, {state}, p99; beside it /healthz");
        println!("{state:<28} {flows:>9} {p50:>9.2} {p99:>9.2} {floor_p50:>11.2} {floor_p99:>11.2}");
        json!({
            "name": name, "state": state, "flows": flows, "unit": "ms", "ours": p99, "p50": p50, "p99": p99,
            "longest": longest, "peer": floor_p99, "floor_p50": floor_p50, "scrapes": spans.len(), "added_meanwhile": added,
            "to_reach": format!("{TO_REACH} ms"), "reached": p99 < TO_REACH,
        })
    })
}

fn add(client: &mut Client, lines: &[&str]) {
    client.call_text("sluice/add-flows", &["--no-wait", &lines.join("\n")]).expect("taken on");
}

/// Waits until the device has all, and counts them.
fn settle(daemon: &Daemon, flows: usize) {
    eventually("all flows are in the device", || daemon.metric("sluice_flows_unsettled") == Some(0.0));
    let installed = daemon.metric("sluice_flows{state=\"offloaded\"}");
    assert_eq!(installed, Some(flows as f64), "flows in the device");
}

/// Milliseconds of scrapes and of their floor while flows are added, and how many were.
fn while_adding(daemon: &Daemon, client: &mut Client, more: &[&str]) -> (Vec<[f64; 2]>, usize) {
    let is_over = AtomicBool::new(false);
    let added = AtomicUsize::new(0);
    let spans = std::thread::scope(|scope| {
        scope.spawn(|| {
            for lines in more.chunks(REQUEST).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                add(client, lines);
                added.fetch_add(lines.len(), Ordering::Relaxed);
            }
        });
        let spans = (0..SCRAPES).map(|_| scrape(daemon)).collect();
        assert!(added.load(Ordering::Relaxed) < more.len(), "there were flows to add all the time");
        is_over.store(true, Ordering::Relaxed);
        spans
    });
    (spans, added.into_inner())
}

/// Milliseconds of one, and of its floor.
fn scrape(daemon: &Daemon) -> [f64; 2] {
    [("/metrics", "sluice_flows{"), ("/healthz", "")].map(|(path, part)| {
        std::thread::sleep(PAUSE);
        let (span, (code, text)) = timed(|| daemon.http(path));
        assert!(code == 200 && text.contains(part), "{code}: {text}");
        span.as_secs_f64() * 1e3
    })
}
