//! What one round of the revalidator costs, beside ovs-vswitchd's and beside a walk over the same bytes.
//!
//! Ours: a software NIC in this process whose rules lie in another order than the table's slots, as they do after a while.
//! The peer: ovs-vswitchd on its dummy datapath, with 100,000 megaflows (it is made for 200,000, its flow limit), each from
//! a packet of its own, so that its revalidator keeps them. None of them is hit while it is measured, which is the least
//! that a round can cost it. Both are measured in processor time of the thread that revalidates; the peer is stopped while
//! ours is measured. Writes `target/bench/revalidation.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_flow::backend::{Backend, CounterReader, InstallQueue};
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::port::PortKind;
use sluice_flow::table::{Limits, Look};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Clock, EndReason, FlowId, FlowState, FlowTable, Port, PortNumber, Refusal, Timestamp};
use sluice_revalidator::{Config, Revalidator, Round};
use sluice_tests::bench::{self, cpu_timed, five_tuples, median};
use sluice_tests::revalidating::Revalidating;
use sluice_tests::simulation::random::Random;
use sluice_tests::world::{SEED, soft_nic};

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
const PEER_FLOWS: usize = 100_000;
const ROUNDS: usize = 9;
/// Of the peer's rounds, half a second apart, so many are measured at a time.
const PEER_ROUNDS: u32 = 2;
/// What is to be reached at a million flows, in microseconds a flow.
const TO_REACH: f64 = 0.3;
/// A rule's slot in the software NIC.
const DEVICE_BYTES: usize = 64;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let mut peer = Revalidating::start(PEER_FLOWS);
    let (mut growth, mut rows) = (Vec::new(), Vec::new());
    println!("{:<24} {:>9} {:>9} {:>9} {:>9} {:>9}", "us of CPU a flow", "flows", "p50", "least", "floor", "OVS");
    for flows in SIZES {
        let mut ours = Ours::new(flows);
        let walk = Walk::new(flows * (DEVICE_BYTES + FlowTable::CELL_BYTES));
        for (name, moves) in [("nothing was hit", false), ("every flow was hit", true)] {
            let mut samples = Samples::default();
            for _ in 0..ROUNDS {
                samples.ours.push(per(cpu_timed(|| ours.round(moves)).0, flows));
                ours.verify(flows, moves);
                samples.floor.push(per(cpu_timed(|| walk.sum()).0, flows));
                if flows >= PEER_FLOWS {
                    samples.peer.push(per(peer.rounds_cpu(PEER_ROUNDS), PEER_FLOWS));
                }
            }
            let row = samples.row(name, flows);
            growth.push(json!({ "name": name, "flows": flows, "value": row["ours"], "unit": "us of CPU a flow" }));
            rows.extend((flows >= PEER_FLOWS).then_some(row));
        }
    }
    peer.verify(PEER_FLOWS);
    bench::write(
        "revalidation",
        &json!({ "rounds": ROUNDS, "peer_flows": PEER_FLOWS, "rows": rows, "growth": growth }),
    );
}

#[derive(Default)]
struct Samples {
    ours: Vec<f64>,
    floor: Vec<f64>,
    peer: Vec<f64>,
}

impl Samples {
    fn row(&self, name: &str, flows: usize) -> Value {
        let [ours, floor] = [&self.ours, &self.floor].map(|samples| median(samples));
        let peer = (!self.peer.is_empty()).then(|| median(&self.peer));
        let least = self.ours.iter().copied().fold(f64::INFINITY, f64::min);
        let shown = peer.map_or(String::new(), |peer| format!("{peer:.3}"));
        println!("{name:<24} {flows:>9} {ours:>9.3} {least:>9.3} {floor:>9.3} {shown:>9}");
        json!({
            "name": format!("a round of {flows} flows, {name}"), "unit": "us of CPU a flow", "flows": flows,
            "ours": ours, "least": least, "floor": floor, "peer": peer, "ratio": peer.map(|peer| peer / ours),
            "to_reach": format!("{TO_REACH} us"), "reached": ours < TO_REACH,
        })
    }
}

fn per(span: Duration, flows: usize) -> f64 {
    span.as_secs_f64() * 1e6 / flows as f64
}

/// Table, revalidator and software NIC.
struct Ours {
    table: FlowTable,
    clock: Arc<dyn Clock>,
    still: Revalidator,
    moving: Revalidator,
    last: Round,
    _nic: Arc<dyn Backend>,
}

impl Ours {
    fn new(flows: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock::new());
        let nic = soft_nic(clock.clone());
        for number in 1..=5 {
            let port = Port {
                number: PortNumber(number),
                name: format!("p{number}").parse().expect("a name"),
                kind: PortKind::Physical,
            };
            nic.attach_port(&port).expect("a port");
        }
        let table = FlowTable::new(SEED, Limits { flows, unsettled: flows }, Arc::new(()));
        let add = |flow| table.add(flow, clock.now(), None).expect("there is room").flow;
        let mut ids: Vec<_> = five_tuples(flows, &SEED).map(add).collect();
        let mut random = Random::new(7);
        for end in (1..ids.len()).rev() {
            ids.swap(end, usize::try_from(random.below(end as u64 + 1)).expect("a place"));
        }
        let mut queue = nic.install_queue().expect("a queue");
        ids.iter().for_each(|id| install(&table, &mut *queue, *id, clock.now()));
        let config = Config {
            idle_timeout: Some(Duration::from_secs(3600)),
            hard_timeout: None,
            poll_interval: Duration::from_millis(500),
        };
        let reader = || nic.counter_reader().expect("a reader");
        let still = Revalidator::new(config, reader());
        let moving = Revalidator::new(config, Box::new(Moving { inner: reader(), polls: 0, batch: Vec::new() }));
        Self { table, clock, still, moving, last: Round::default(), _nic: nic }
    }

    fn round(&mut self, moves: bool) {
        let revalidator = if moves { &mut self.moving } else { &mut self.still };
        let mut end = |id: FlowId, reason: EndReason| panic!("{id:?} fits, and went: {reason:?}");
        self.last = revalidator.round(&self.table, &*self.clock, &mut end);
    }

    fn verify(&self, flows: usize, moves: bool) {
        let grown = if moves { flows } else { 0 };
        assert_eq!((self.last.flows, self.last.readings, self.last.grown), (flows, flows, grown));
        assert_eq!((self.last.evicted, self.last.backwards), (0, 0));
        assert_eq!(self.table.census().in_state(FlowState::Offloaded), flows);
        assert_eq!(self.last.failure, None);
    }
}

fn install(table: &FlowTable, queue: &mut dyn InstallQueue, id: FlowId, now: Timestamp) {
    let Look::Change(change) = table.look(id) else { panic!("nothing to install") };
    let mut done = Vec::new();
    queue.submit(&mut vec![change.clone()], &mut done);
    let completion = done.pop().expect("the software NIC is done at once");
    table.complete(&change, completion.result, now);
    table.look(id);
}

/// Shows more packets of every flow each time, as if all had been hit.
struct Moving {
    inner: Box<dyn CounterReader>,
    polls: u64,
    batch: Vec<Reading>,
}

impl CounterReader for Moving {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        self.polls += 1;
        self.inner.read(&mut |readings, sampled| {
            self.batch.clear();
            self.batch.extend_from_slice(readings);
            for reading in &mut self.batch {
                reading.counters.packets += self.polls;
                reading.counters.bytes += self.polls * 64;
                reading.counters.used = Some(sampled.latest);
            }
            visit(&self.batch, sampled);
        })
    }
}

/// The floor: the bytes that a round reads, each once and in order.
struct Walk(Vec<u64>);

impl Walk {
    fn new(bytes: usize) -> Self {
        Self((0..bytes as u64 / 8).collect())
    }

    fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, word| sum ^ word)
    }
}
