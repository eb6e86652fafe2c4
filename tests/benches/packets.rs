//! Packets through the software NIC, beside OVS's userspace datapath with the same flows and packets; and what a rule costs
//! to install, to keep and to read.
//!
//! Ours is the processor time of 64-byte TCP packets through [`RxQueue`](sluice_offload_soft::RxQueue) to a port, one at a
//! time and in bursts, of which the fastest round counts. OVS's is what its datapath counts itself, window by window, of
//! which the fastest twentieth counts: its one thread is interrupted by others here. It is measured without and with its
//! exact-match and signature-match caches, and the faster of both is the peer. Its dummy ports hand packets over one by
//! one, so that the row that compares is the one in which ours come one by one, too: the same packets over and over.
//! Taking a packet from such a port and giving it to another is in its figure, a slice and a closure in ours; what of it
//! that may be is shown by one flow that its caches know. Ours in bursts go through all flows.
//! Writes `target/bench/packets.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_flow::backend::{Backend, Change, OpenConfig, Operation};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Flow, FlowId, Generation, Port, PortKind, PortNumber};
use sluice_offload_soft::SoftNic;
use sluice_tests::bench::{self, cpu_timed, median};
use sluice_tests::dpcls::{Counted, Dpcls};
use sluice_tests::traffic::{FRAME, IN_PORT, OUT_PORT, Traffic, Variable};

const ROUNDS: usize = 3;
const RULES: usize = 100_000;
/// Our packets in a round.
const PACKETS: usize = 400_000;
/// OVS's packets in a round: it takes them as text.
const THEIR_PACKETS: usize = 4_000;
/// Times that ours are given the same in a round.
const REPEATS: usize = 20;
/// Frames that are let in at a time.
const BURST: usize = 32;
/// Changes that are handed over at a time.
const CHANGES: usize = 64;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let mut wires = Dpcls::wires();
    let one_flow = wires.feed(&Traffic { rules: 1, masks: 1 }.packets(THEIR_PACKETS)).nanoseconds();
    drop(wires);
    println!("OVS with one flow, which its caches know: {one_flow:.0} ns a packet");
    let [single, bursts] = ["one by one".to_owned(), format!("in {BURST}s")];
    let title = "packets, nanoseconds each";
    println!("{title:<34} {single:>10} {bursts:>10} {:>10} {:>11} {:>7}", "OVS", "with caches", "ratio");
    let rows: Vec<_> = [1, 10, 100, 1000].into_iter().flat_map(|masks| compare(masks, one_flow)).collect();
    let mut growth = Vec::new();
    for rules in [10_000, 100_000, 1_000_000] {
        growth.extend(grow(rules));
    }
    bench::write("packets", &json!({ "rounds": ROUNDS, "rows": rows, "growth": growth }));
}

/// The same flows and packets in both, in turns.
fn compare(masks: usize, one_flow: f64) -> [Value; 2] {
    let traffic = Traffic { rules: RULES, masks };
    let ours = Ours::new(traffic);
    let theirs = traffic.packets(THEIR_PACKETS);
    let packets = traffic.packets(PACKETS);
    // Every flow is seen once.
    ours.run(&traffic.packets(RULES), BURST);
    let [mut single, mut bursts] = [f64::MAX; 2];
    // One of the peer's after the other: each polls all the time.
    let [bare, cached] = [false, true].map(|caches| {
        let mut side = Dpcls::new(traffic, caches);
        let mut counted = Counted::default();
        for _ in 0..ROUNDS {
            single = (0..REPEATS).map(|_| ours.run(&theirs, 1)).fold(single, f64::min);
            bursts = bursts.min(ours.run(&packets, BURST));
            counted.add(side.feed(&theirs));
        }
        assert!(caches || counted.megaflow_hits == (ROUNDS * THEIR_PACKETS) as u64, "no cache takes any");
        assert_eq!((side.flows(), ours.rules()), (RULES, RULES), "the flows are still there");
        counted.nanoseconds()
    });
    let peer = bare.min(cached);
    let name = format!("{RULES} flows, {masks} masks, 64 bytes, output");
    println!("{name:<34} {single:>10.0} {bursts:>10.0} {bare:>10.0} {cached:>11.0} {:>7.2}", peer / single);
    let row = |how: &str, mine: f64| {
        json!({
            "name": format!("{name}, {how}"), "unit": "packets/s", "ours": 1e9 / mine, "peer": 1e9 / peer,
            "ratio": peer / mine, "peer_without_caches": 1e9 / bare, "peer_with_caches": 1e9 / cached,
            "peer_with_one_cached_flow": 1e9 / one_flow,
        })
    };
    let mut compared = row("the same packets one by one", single);
    compared["to_reach"] = json!(1.0);
    compared["reached"] = json!(peer > single);
    // The peer cannot be given bursts, so that nothing is concluded from this one.
    [compared, row("all flows in bursts, the peer one by one", bursts)]
}

/// What so many rules cost.
fn grow(rules: usize) -> Vec<Value> {
    let traffic = Traffic { rules, masks: 10 };
    let flows: Vec<_> = traffic.flows().collect();
    let (install, ours) = cpu_timed(|| Ours::with(&flows, traffic));
    ours.run(&traffic.packets(rules), BURST);
    let packet: Vec<_> = (0..ROUNDS).map(|_| ours.run(&traffic.packets(PACKETS), BURST)).collect();
    let read: Vec<_> = (0..ROUNDS).map(|_| ours.read()).collect();
    let values = [
        ("packet", median(&packet), "ns"),
        ("install", install.as_nanos() as f64 / rules as f64, "ns a rule"),
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
        let nic = SoftNic::new(&OpenConfig::new("soft", Arc::new(MonotonicClock::new())));
        for number in [IN_PORT, OUT_PORT] {
            let port = Port {
                number: PortNumber(number),
                name: format!("p{number}").parse().expect("a name"),
                kind: PortKind::Physical,
            };
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

    /// Nanoseconds a packet, if so many come at a time.
    fn run(&self, packets: &[Variable], burst: usize) -> f64 {
        let mut rx = self.nic.rx_queue(PortNumber(IN_PORT));
        let mut frames = [FRAME; BURST];
        let mut sent = 0;
        let (spent, ()) = cpu_timed(|| {
            for packets in packets.chunks(burst) {
                frames.iter_mut().zip(packets).for_each(|(frame, packet)| packet.write(frame));
                let frames = frames.each_ref().map(|frame| frame.as_slice());
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
