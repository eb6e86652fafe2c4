//! What handing a flow to its worker costs the caller, and how soon an idle agent hands a flow to the device.
//!
//! A hand-over begins with a record that is changed and ends with the flow in the queue. The peer is OVS's mpsc queue with
//! nodes made before, as `ovstest test-mpsc-queue` measures it: the mean of the callers' own times over all elements. Ours is
//! measured the same way, with the agent's real worker running or stalled by the device, and with a reader that only takes, as
//! OVS's does. The channel of crossbeam is another peer, for that is what lay here before. All run in turns, in one run.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench that cannot go on says so and ends"
)]

mod accept;
mod pass;
mod wake;

use serde_json::{Value, json};
use sluice_tests::bench;

use self::pass::Populated;

const ROUNDS: usize = 7;
/// Flows in the table.
const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
const CALLERS: [usize; 2] = [1, 4];
/// How much dearer than OVS's queue a hand-over may be.
const TO_REACH: f64 = 1.25;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let mut rows = Vec::new();
    let mut growth = Vec::new();
    for size in SIZES {
        let populated = Populated::with_flows(size);
        let is_largest = size == SIZES[SIZES.len() - 1];
        for callers in if is_largest { &CALLERS[..] } else { &CALLERS[..1] } {
            let measured = measure(&populated, *callers);
            growth.extend(
                measured.first().map(|row| json!({ "flows": size, "value": row["ours"], "unit": row["unit"] })),
            );
            if is_largest {
                rows.extend(measured);
            }
        }
        if is_largest {
            rows.extend(sampled(&populated));
        }
    }
    rows.extend(accept::rows());
    let idle = wake::rows();
    println!("\n{:<66} {:>9} {:>9} {:>6} {:>9}", "", "ours", "peer", "ratio", "to reach");
    for row in rows.iter().chain(&idle) {
        let cell = |key: &str| row.get(key).and_then(Value::as_f64).map_or("-".into(), |value| format!("{value:.2}"));
        let name = format!("{}, {}", row["name"].as_str().unwrap_or(""), row["unit"].as_str().unwrap_or(""));
        println!("{name:<66} {:>9} {:>9} {:>6} {:>9}", cell("ours"), cell("peer"), cell("ratio"), cell("to_reach"));
    }
    bench::write("hand_over", &json!({ "rounds": ROUNDS, "rows": rows, "idle": idle, "growth": growth }));
}

/// Ours and the peers in turns, so many rounds.
fn measure(populated: &Populated, callers: usize) -> Vec<Value> {
    let mut runs: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        runs[0].push(populated.with_worker_running(callers));
        runs[1].push(pass::ovs(callers));
        runs[2].push(populated.with_device_stalled(callers));
        runs[3].push(populated.with_reader_alone(callers));
        runs[4].push(pass::channel(populated, callers));
    }
    let [running, ovs, stalled, alone, channel] = &runs;
    let row = |what: &str, ours: &[f64]| {
        let ratios: Vec<_> = ours.iter().zip(ovs).map(|(ours, peer)| ours / peer).collect();
        let ratio = bench::median(&ratios);
        let is_ours = !what.starts_with('(');
        json!({
            "name": format!("hand-over, {callers} callers, {what}"),
            "unit": "ns a flow",
            "ours": bench::median(ours),
            "ours_best": bench::quantile(ours, 0.0),
            "peer": bench::median(ovs),
            "peer_best": bench::quantile(ovs, 0.0),
            "peer_name": "OVS mpsc queue",
            "ratio": ratio,
            "to_reach": is_ours.then_some(TO_REACH),
            "reached": is_ours.then_some(ratio <= TO_REACH),
        })
    };
    vec![
        row("worker running", running),
        row("device stalled", stalled),
        row("reader only takes", alone),
        row("(crossbeam channel in our place)", channel),
    ]
}

/// Single hand-overs, each timed by itself.
fn sampled(populated: &Populated) -> Vec<Value> {
    let clock = pass::samples_of_the_clock();
    let floor = bench::median(&clock);
    [
        ("worker running", populated.sampled_with_worker_running()),
        ("device stalled", populated.sampled_with_device_stalled()),
    ]
    .into_iter()
    .map(|(what, samples)| {
        json!({
            "name": format!("hand-over, p99, {what}"),
            "unit": "ns a flow, the clock's own included",
            "ours": bench::quantile(&samples, 0.99),
            "p50": bench::median(&samples),
            "clock": floor,
            "to_reach": 1000.0,
        })
    })
    .collect()
}
