//! What handing a parsed flow over costs the caller, with a device that works and with one that stalls.
//!
//! Side by side in one run: rounds with either device alternate. The floor is what the channel to the worker costs alone.
//! Writes `target/bench/hand_over.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::unbounded;
use serde_json::json;
use sluice_agent::config::Config;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Flow, FlowId};
use sluice_tests::bench;
use sluice_tests::fault::{FaultyDevice, Plan};
use sluice_tests::world::{World, quick_config, soft_nic};

const ROUNDS: usize = 5;
const FLOWS: u16 = 20_000;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let mut working = Samples::default();
    let mut stalled = Samples::default();
    let mut floor = Vec::new();
    for _ in 0..ROUNDS {
        round(false, &mut working);
        round(true, &mut stalled);
        floor.extend(channel_alone());
    }
    let rows = [
        ("accept a new flow, device works", summary(&mut working.add)),
        ("accept a new flow, device stalls", summary(&mut stalled.add)),
        ("change a flow, device works", summary(&mut working.modify)),
        ("change a flow, device stalls", summary(&mut stalled.modify)),
        ("floor: the channel to the worker alone", summary(&mut floor)),
    ];
    println!("{:<42} {:>8} {:>8}", "hand-over, nanoseconds a flow", "p50", "p99");
    for (name, (p50, p99)) in &rows {
        println!("{name:<42} {p50:>8} {p99:>8}");
    }
    let ratio = |index: usize| rows[index + 1].1.0 as f64 / rows[index].1.0 as f64;
    println!("stalled / working, p50: accept {:.2}, change {:.2}", ratio(0), ratio(2));
    bench::write(
        "hand_over",
        &json!({
            "unit": "nanoseconds a flow",
            "rounds": ROUNDS,
            "flows_a_round": FLOWS,
            "rows": rows.iter().map(|(name, (p50, p99))| json!({ "name": name, "p50": p50, "p99": p99 })).collect::<Vec<_>>(),
            "stalled_to_working_p50": { "accept": ratio(0), "change": ratio(2) },
        }),
    );
}

#[derive(Default)]
struct Samples {
    add: Vec<u64>,
    modify: Vec<u64>,
}

/// Hands all flows over, then a change to each.
fn round(stalls: bool, samples: &mut Samples) {
    let clock = Arc::new(MonotonicClock::new());
    let (device, faults) = FaultyDevice::new(soft_nic(clock.clone()));
    let limit = usize::from(FLOWS) * 2;
    let world = World::on(device, Config { dirty_limit: limit, flow_limit: limit, ..quick_config() }, clock);
    let flows = |actions: &str| -> Vec<Flow> { (0..FLOWS).map(|port| world.udp_flow(port, actions)).collect() };
    let (new, changed) = (flows("2"), flows("3"));
    faults.set(Plan { stalled: stalls, ..Plan::default() });
    for flow in new {
        samples.add.push(timed(|| world.agent.queue.add(flow, None).expect("accepted")));
    }
    for flow in changed {
        samples.modify.push(timed(|| world.agent.queue.modify(flow, false, None).expect("accepted")));
    }
    faults.set(Plan::default());
    world.settle();
    assert_eq!(world.installed().len(), usize::from(FLOWS), "every flow is in the device afterwards");
}

fn channel_alone() -> Vec<u64> {
    let (sender, receiver) = unbounded();
    let reader = std::thread::spawn(move || receiver.iter().count());
    let send =
        |slot: u16| timed(|| sender.send(FlowId { slot: slot.into(), incarnation: 0 }).expect("there is a reader"));
    let samples = (0..FLOWS).map(send).collect();
    drop(sender);
    assert_eq!(reader.join().expect("the reader ends"), usize::from(FLOWS));
    samples
}

fn timed<R>(work: impl FnOnce() -> R) -> u64 {
    let began = Instant::now();
    std::hint::black_box(work());
    u64::try_from(began.elapsed().as_nanos()).expect("less than centuries")
}

fn summary(samples: &mut [u64]) -> (u64, u64) {
    samples.sort_unstable();
    (samples[samples.len() / 2], samples[samples.len() * 99 / 100])
}
