//! A minute of adds at five times what the device takes, and of deletions meanwhile.
//!
//! The device is the NIC in software behind an install path that takes a fixed time for each change. What it takes is measured
//! first; then adds are offered at five times that, paced by the clock, and flows are deleted at a quarter of it, the oldest
//! first. It reports the memory of this process, what was taken on and what was told "busy", and how long each accepted
//! change took from the wish to its outcome. `--seconds N` makes it shorter. Writes `target/bench/overload.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts out of rates")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use serde_json::{Value, json};
use sluice_agent::config::Config;
use sluice_flow::port::PortKind;
use sluice_flow::table::{ReplyTo, Settlement, TableError, Waiter};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{EndReason, FlowId, Port, PortNumber, Refusal};
use sluice_tests::bench::{self, five_tuples, quantile, resident};
use sluice_tests::fault::{FaultyDevice, Plan};
use sluice_tests::world::{SEED, World, quick_config, soft_nic};

/// The daemon's: what an operator runs is what is measured.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What a change takes the device at least; a sleep takes some more.
const SERVICE: Duration = Duration::from_micros(200);
/// Flows that may wait for the device.
const LIMIT: usize = 4_096;
const WORKERS: usize = 2;
const OFFERED: f64 = 5.0;
/// Deletions, as part of what the device takes.
const DELETED: f64 = 0.25;
/// Flows in the device once it has warmed up; deletions keep it so.
const FLOWS: usize = 10_000;
/// By what part memory may grow in a minute and count as flat: more than looks at it differ by.
const FLAT: f64 = 0.05;
/// For how long there is overload before memory is looked at.
const WARM_UP: Duration = Duration::from_secs(30);
/// Changes of each kind of which the time is kept, in memory that is there from the beginning.
const SAMPLES: usize = 1 << 20;
/// How often memory is looked at.
const LOOK: Duration = Duration::from_secs(1);

struct Request {
    began: Instant,
    done: Sender<Done>,
}

struct Done {
    flow: FlowId,
    is_deletion: bool,
    took: Duration,
}

impl Waiter for Request {
    fn settled(&self, _: u32, flow: FlowId, outcome: &Settlement) {
        let is_deletion = match outcome {
            Settlement::Installed(_) => false,
            Settlement::Deleted(_) => true,
            other => panic!("{other:?}"),
        };
        self.done.send(Done { flow, is_deletion, took: self.began.elapsed() }).expect("the bench listens");
    }
}

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let span = seconds().unwrap_or(Duration::from_secs(60));
    let mut bench = Bench::new();
    let service_rate = bench.fill();
    println!("the device takes {service_rate:.0} changes a second; offered are {:.0} adds", service_rate * OFFERED);
    // The queue fills, and memory with it, before the minute begins.
    bench.overload(service_rate, WARM_UP);
    let report = bench.overload(service_rate, span);
    report.print_and_write(service_rate, span);
}

fn seconds() -> Option<Duration> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--seconds");
    arguments.nth(1).map(|seconds| Duration::from_secs(seconds.parse().expect("a number of seconds")))
}

struct Bench {
    world: World,
    flows: Box<dyn Iterator<Item = sluice_flow::Flow>>,
    done: (Sender<Done>, Receiver<Done>),
    in_device: std::collections::VecDeque<FlowId>,
}

#[derive(Default)]
struct Report {
    accepted: u64,
    busy: u64,
    deletes: u64,
    adds: Vec<Duration>,
    deletions: Vec<Duration>,
    most_unsettled: usize,
    memory: Vec<u64>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(MonotonicClock::new());
        let (device, faults) = FaultyDevice::new(soft_nic(clock.clone()));
        faults.set(Plan { delay: SERVICE, ..Plan::default() });
        let config = Config { dirty_limit: LIMIT, workers: WORKERS, flow_limit: 1 << 20, ..quick_config() };
        let config = Config { poll_interval: Duration::from_millis(500), ..config };
        let flows = Box::new(five_tuples(usize::MAX, &SEED));
        let world = World::on(device, config, clock);
        // Some of the flows go there.
        let port = Port { number: PortNumber(5), name: "p5".parse().expect("a name"), kind: PortKind::Physical };
        world.agent.object_store.put(port).expect("a port");
        Self { world, flows, done: unbounded(), in_device: Default::default() }
    }

    fn reply_to(&self) -> Option<ReplyTo> {
        Some(ReplyTo::new(Request { began: Instant::now(), done: self.done.0.clone() }))
    }

    /// Fills the device as fast as it takes flows. Gives how many changes it takes a second.
    fn fill(&mut self) -> f64 {
        let began = Instant::now();
        while self.in_device.len() < FLOWS {
            let waiting = self.world.agent.table.census().unsettled();
            for _ in 0..(LIMIT / 2).saturating_sub(waiting) {
                let flow = self.flows.next().expect("there is no end of flows");
                self.world.agent.queue.add(flow, self.reply_to()).expect("there is room");
            }
            std::thread::sleep(Duration::from_millis(1));
            self.in_device.extend(self.done.1.try_iter().map(|done| done.flow));
        }
        self.in_device.len() as f64 / began.elapsed().as_secs_f64()
    }

    /// Offers more than the device takes for a while.
    fn overload(&mut self, service_rate: f64, span: Duration) -> Report {
        let mut report = Report::new();
        let agent = self.world.agent.clone();
        let census = agent.table.census();
        let began = Instant::now();
        let mut next = self.flows.next().expect("there is no end of flows");
        let mut offered = 0;
        while began.elapsed() < span {
            let elapsed = began.elapsed();
            if report.memory.len() as u128 <= elapsed.as_nanos() / LOOK.as_nanos() {
                report.memory.push(resident());
            }
            let due = (elapsed.as_secs_f64() * service_rate * OFFERED) as u64;
            while offered < due {
                offered += 1;
                match self.world.agent.queue.add(next.clone(), self.reply_to()) {
                    Ok(_) => {
                        report.accepted += 1;
                        next = self.flows.next().expect("there is no end of flows");
                    }
                    Err(TableError::Refused(Refusal::Busy { .. })) => report.busy += 1,
                    Err(other) => panic!("neither taken on nor told busy: {other}"),
                }
            }
            while report.deletes < (elapsed.as_secs_f64() * service_rate * DELETED) as u64
                || self.in_device.len() > FLOWS
            {
                let Some(oldest) = self.in_device.pop_front() else { break };
                let deleted = self.world.agent.queue.delete(oldest, EndReason::Deleted, self.reply_to());
                deleted.expect("deletions are never turned away");
                report.deletes += 1;
            }
            report.most_unsettled = report.most_unsettled.max(census.unsettled());
            std::thread::sleep(Duration::from_micros(500));
            self.take(&mut report);
        }
        report.memory.push(resident());
        report
    }

    fn take(&mut self, report: &mut Report) {
        for Done { flow, is_deletion, took } in self.done.1.try_iter() {
            if is_deletion {
                report.deletions.push(took);
            } else {
                report.adds.push(took);
                self.in_device.push_back(flow);
            }
        }
    }
}

impl Report {
    /// With room that is in use already, so that what is kept does not count as memory of the agent.
    fn new() -> Self {
        let room = || {
            let mut room = vec![Duration::MAX; SAMPLES];
            room.clear();
            room
        };
        Self { adds: room(), deletions: room(), ..Self::default() }
    }

    fn print_and_write(&self, service_rate: f64, span: Duration) {
        let milliseconds = |samples: &[Duration], part| quantile(samples, part).as_secs_f64() * 1e3;
        let [add_p50, add_p99, add_max] = [0.5, 0.99, 1.0].map(|part| milliseconds(&self.adds, part));
        let [delete_p50, delete_p99, delete_max] = [0.5, 0.99, 1.0].map(|part| milliseconds(&self.deletions, part));
        let (first, last) = (self.memory[0], self.memory[self.memory.len() - 1]);
        let most = self.memory.iter().copied().max().expect("it was looked at");
        let served = (self.adds.len() + self.deletions.len()) as f64 / span.as_secs_f64();
        println!("accepted {}, busy {}, deletes {}", self.accepted, self.busy, self.deletes);
        println!("served {served:.0} a second; at most {} waited, {LIMIT} may", self.most_unsettled);
        println!("adds      p50 {add_p50:.1} ms, p99 {add_p99:.1} ms, longest {add_max:.1} ms");
        println!("deletions p50 {delete_p50:.1} ms, p99 {delete_p99:.1} ms, longest {delete_max:.1} ms");
        let slope = Slope::of(&self.memory, LOOK);
        println!("memory    {first} bytes at the start, {last} at the end, {most} at most");
        println!("          grows by {:.0} bytes a second, give or take {:.0}", slope.bytes, slope.give_or_take);
        assert!(self.adds.len().max(self.deletions.len()) < SAMPLES, "there was room for all times");
        // Nobody waits for more than all before him; twice that, for the device is not always as fast.
        let drained = 2e3 * LIMIT as f64 * span.as_secs_f64() / self.adds.len() as f64;
        let minute = ((slope.bytes + slope.give_or_take) * 60.0).max(0.0);
        bench::write(
            "overload",
            &json!({
                "seconds": span.as_secs(),
                "service_rate": service_rate,
                "offered_rate": service_rate * OFFERED,
                "served_rate": served,
                "unsettled_limit": LIMIT,
                "most_unsettled": self.most_unsettled,
                "accepted": self.accepted,
                "busy": self.busy,
                "deletes": self.deletes,
                "add_latency_ms": { "p50": add_p50, "p99": add_p99, "max": add_max },
                "delete_latency_ms": { "p50": delete_p50, "p99": delete_p99, "max": delete_max },
                "memory_bytes": {
                    "start": first, "end": last, "most": most, "each_second": self.memory,
                    "slope_a_second": slope.bytes, "slope_give_or_take": slope.give_or_take,
                },
                "rows": [
                    row("memory grown at most in a minute of overload", "part of it", minute / first as f64, FLAT),
                    row("accepted adds, from the wish to the device, p99", "ms", add_p99, drained),
                    row("deletions, p99", "ms", delete_p99, drained),
                ],
            }),
        );
    }
}

/// How memory grows: a straight line through all looks, by least squares.
struct Slope {
    /// Bytes a second.
    bytes: f64,
    /// Two standard errors of it.
    give_or_take: f64,
}

impl Slope {
    fn of(memory: &[u64], apart: Duration) -> Self {
        let count = memory.len() as f64;
        let seconds = |place: usize| place as f64 * apart.as_secs_f64();
        let mean_time = seconds(memory.len() - 1) / 2.0;
        let mean = memory.iter().sum::<u64>() as f64 / count;
        let points =
            || memory.iter().enumerate().map(|(place, bytes)| (seconds(place) - mean_time, *bytes as f64 - mean));
        let spread: f64 = points().map(|(time, _)| time * time).sum();
        let bytes = points().map(|(time, bytes)| time * bytes).sum::<f64>() / spread;
        let left: f64 = points().map(|(time, seen)| (seen - bytes * time).powi(2)).sum();
        Self { bytes, give_or_take: 2.0 * (left / (count - 2.0) / spread).sqrt() }
    }
}

fn row(name: &str, unit: &str, ours: f64, at_most: f64) -> Value {
    json!({
        "name": name, "unit": unit, "ours": ours, "to_reach": format!("{at_most:.3} {unit}"), "reached": ours <= at_most,
    })
}
