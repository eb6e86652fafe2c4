//! Packets through the software NIC, beside OVS's userspace datapath with the same flows and packets; and what a rule costs
//! to install, to keep and to read.
//!
//! Ours is the processor time of bursts of 64-byte TCP packets through [`RxQueue`](sluice_offload_soft::RxQueue) to a
//! port, of which the fastest round counts; OVS's is what its datapath counts itself, window by window, of which the
//! fastest twentieth counts: its one thread is interrupted by others here. Its dummy ports hand packets over one by one,
//! which costs it the use of its bursts; and all its packets hit the same few flows, which spares it memory.
//! Writes `target/bench/packets.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_flow::backend::{Backend, Change, OpenConfig, Operation};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Flow, FlowId, Generation, Port, PortKind, PortNumber};
use sluice_offload_soft::SoftNic;
use sluice_tests::bench::{self, cpu_timed, median, quantile};
use sluice_tests::dpcls::Dpcls;
use sluice_tests::traffic::{FRAME, IN_PORT, OUT_PORT, Traffic, Variable};

const ROUNDS: usize = 5;
const RULES: usize = 100_000;
/// Our packets in a round.
const PACKETS: usize = 400_000;
/// OVS's packets in a round: it takes them as text.
const THEIR_PACKETS: usize = 4_000;
/// Frames that are let in at a time.
const BURST: usize = 32;
/// Changes that are handed over at a time.
const CHANGES: usize = 64;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    println!("{:<34} {:>10} {:>10} {:>10} {:>7}", "packets, nanoseconds each", "ours", "OVS", "with SMC", "ratio");
    let rows: Vec<_> = [1, 10, 100, 1000].into_iter().map(compare).collect();
    let mut growth = Vec::new();
    for rules in [10_000, 100_000, 1_000_000] {
        growth.extend(grow(rules));
    }
    bench::write("packets", &json!({ "rounds": ROUNDS, "rows": rows, "growth": growth }));
}

/// The same flows and packets in both, in turns.
fn compare(masks: usize) -> Value {
    let traffic = Traffic { rules: RULES, masks };
    let ours = Ours::new(traffic);
    let packets = traffic.packets(THEIR_PACKETS);
    // Every flow is seen once.
    ours.run(&traffic.packets(RULES));
    let mut mine = f64::MAX;
    // One after the other: each polls all the time.
    let [theirs, smc] = [false, true].map(|caches| {
        let mut side = Dpcls::new(traffic, caches);
        let (mut cycles, mut hits) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            mine = mine.min(ours.run(&traffic.packets(PACKETS)));
            let counted = side.feed(&packets);
            cycles.extend(counted.cycles);
            hits += counted.megaflow_hits;
        }
        assert!(caches || hits == (ROUNDS * THEIR_PACKETS) as u64, "OVS's flows take every packet");
        assert_eq!((side.flows(), ours.rules()), (RULES, RULES), "the flows are still there");
        quantile(&cycles, 0.05) * 1e9 / bench::tsc_hertz()
    });
    let name = format!("{RULES} flows, {masks} masks, 64 bytes, output");
    println!("{name:<34} {mine:>10.0} {theirs:>10.0} {smc:>10.0} {:>7.2}", theirs / mine);
    json!({
        "name": name, "unit": "packets a second", "ours": 1e9 / mine, "peer": 1e9 / theirs, "ratio": theirs / mine,
        "to_reach": 1.0, "peer_with_caches": 1e9 / smc,
    })
}

/// What so many rules cost.
fn grow(rules: usize) -> Vec<Value> {
    let traffic = Traffic { rules, masks: 10 };
    let flows: Vec<_> = traffic.flows().collect();
    let before = bench::resident();
    let (install, ours) = cpu_timed(|| Ours::with(&flows, traffic));
    let memory = (bench::resident().saturating_sub(before)) as f64 / rules as f64;
    ours.run(&traffic.packets(rules));
    let packet: Vec<_> = (0..ROUNDS).map(|_| ours.run(&traffic.packets(PACKETS))).collect();
    let read: Vec<_> = (0..ROUNDS).map(|_| ours.read()).collect();
    let values = [
        ("packet", median(&packet), "ns"),
        ("install", install.as_nanos() as f64 / rules as f64, "ns a rule"),
        ("memory", memory, "bytes a rule, without the flow itself"),
        ("counter read", median(&read), "ns a rule"),
    ];
    let row = |(name, value, unit)| {
        println!("{rules} rules, {name}: {value:.1} {unit}");
        json!({ "name": name, "flows": rules, "value": value, "unit": unit })
    };
    values.into_iter().map(row).collect()
}

struct Ours {
    nic: SoftNic,
    traffic: Traffic,
}

impl Ours {
    fn new(traffic: Traffic) -> Self {
        Self::with(&traffic.flows().collect::<Vec<_>>(), traffic)
    }

    fn with(flows: &[Flow], traffic: Traffic) -> Self {
        let nic = SoftNic::new(&OpenConfig { device: "soft".into(), clock: Arc::new(MonotonicClock::new()) });
        for number in [IN_PORT, OUT_PORT] {
            let port = Port { number: PortNumber(number), name: format!("p{number}"), kind: PortKind::Physical };
            nic.attach_port(&port).expect("a port");
        }
        let mut queue = nic.install_queue().expect("a queue");
        let (mut changes, mut done) = (Vec::new(), Vec::new());
        for (slot, flow) in (0..).zip(flows) {
            let operation = Operation::Install(flow.clone());
            let flow = FlowId { slot, incarnation: 1 };
            changes.push(Change { flow, generation: Generation(1), operation });
            if changes.len() == CHANGES || slot as usize + 1 == flows.len() {
                queue.submit(&mut changes, &mut done);
                assert!(done.drain(..).all(|completion| completion.result.is_ok()), "every rule is installed");
            }
        }
        Self { nic, traffic }
    }

    /// Nanoseconds a packet.
    fn run(&self, packets: &[Variable]) -> f64 {
        let mut rx = self.nic.rx_queue(PortNumber(IN_PORT));
        let mut frames = [FRAME; BURST];
        let mut sent = 0;
        let (spent, ()) = cpu_timed(|| {
            for packets in packets.chunks(BURST) {
                frames.iter_mut().zip(packets).for_each(|(frame, packet)| packet.write(frame));
                let frames: [&[u8]; BURST] = std::array::from_fn(|index| frames[index].as_slice());
                let send =
                    |port: PortNumber, frame: &[u8]| sent += usize::from(port.0 == OUT_PORT && frame.len() == 60);
                rx.receive(&frames[..packets.len()], send).expect("they are taken");
            }
        });
        assert_eq!(sent, packets.len(), "every packet leaves");
        spent.as_nanos() as f64 / packets.len() as f64
    }

    /// Nanoseconds a rule to read all counters.
    fn read(&self) -> f64 {
        let mut reader = self.nic.counter_reader().expect("a reader");
        let mut read = 0;
        let (spent, result) = cpu_timed(|| reader.read(&mut |readings, _| read += readings.len()));
        result.expect("they are read");
        assert_eq!(read, self.traffic.rules);
        spent.as_nanos() as f64 / read as f64
    }

    fn rules(&self) -> usize {
        let mut rules = 0;
        self.nic.installed(&mut |_| rules += 1).expect("they are listed");
        rules
    }
}
