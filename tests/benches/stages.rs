//! Where the time of `add-flows` goes: the stages of a flow on its way from a line of text to a rule in the software NIC, and then to other
//! actions and to its end.
//!
//! Each stage by itself, in nanoseconds of processor time a flow, so that whatever else the machine does counts little:
//! on the caller's thread the text and the acceptance, on the threads behind it the record for the log and the installation
//! by a worker. What is left between their sum and `add_flows` is waiting, polling and the control socket. The worker is
//! the agent's own, which finds all flows in its queue. Writes `target/bench/stages.json`.
//!
//! Besides the flows of the other benches, which have ten masks, the same is done with flows of a single mask, and with as many masks as
//! there are hundreds of flows.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a bench that cannot go on says so and ends")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::table::{FlowState, Limits, ReplyTo};
use sluice_flow::text::{self, LineReader, Style, parse_actions, parse_key};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{ActionList, Backend, Clock, EndReason, Expiry, Field, Flow, FlowTable, MaskedKey, Priority};
use sluice_host::liveness::Progress;
use sluice_journal::bytes;
use sluice_offload::{Batch, OffloadQueue};
use sluice_tests::bench::{self, cpu_timed, median};
use sluice_tests::world::{SEED, soft_nic};

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
/// The size whose rows count.
const FLOWS: usize = 100_000;
const ROUNDS: usize = 7;
/// Beyond [`FLOWS`].
const FEW_ROUNDS: usize = 2;
const STAGES: [&str; 8] = [
    "text to flow",
    "acceptance",
    "record for the log",
    "installation by a worker",
    "acceptance of other actions",
    "other actions by a worker",
    "acceptance of the end",
    "removal by a worker",
];
/// Flows of each mask where there are many masks.
const OF_A_MASK: usize = 100;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    // One size and nothing else, for a profiler.
    let only: Option<usize> = std::env::var("STAGES_FLOWS").ok().and_then(|count| count.parse().ok());
    let (mut rows, mut growth) = (Vec::new(), Vec::new());
    for size in SIZES.into_iter().filter(|size| only.is_none_or(|only| only == *size)) {
        let rounds = if size > FLOWS { FEW_ROUNDS } else { ROUNDS };
        for (name, value) in measure("", &lines(bench::five_tuples(size, &SEED)), size, rounds) {
            growth.push(json!({ "name": name, "flows": size, "value": value, "unit": "ns a flow" }));
            if size == FLOWS {
                rows.push(json!({ "name": name, "unit": "ns a flow", "ours": value }));
            }
        }
        for (kind, masks) in [(" of one mask", 1), (" of many masks", size / OF_A_MASK)] {
            let lines = lines((0..size).map(|number| flow_of(number, number % masks)));
            for (name, value) in measure(kind, &lines, size, FEW_ROUNDS) {
                growth.push(
                    json!({ "name": format!("{name},{kind}"), "flows": size, "value": value, "unit": "ns a flow" }),
                );
            }
        }
    }
    if only.is_none() {
        bench::write("stages", &json!({ "rows": rows, "growth": growth }));
    }
}

/// The stages of some flows, in nanoseconds a flow.
fn measure(kind: &str, lines: &str, size: usize, rounds: usize) -> Vec<(&'static str, f64)> {
    let measured: Vec<_> = (0..rounds).map(|_| stages(lines, size)).collect();
    println!("{size} flows{kind}, median of {rounds}:");
    let of_stage = |(stage, name): (usize, &'static str)| {
        let times: Vec<_> = measured.iter().map(|round| round[stage].as_nanos() as f64 / size as f64).collect();
        println!("  {name:<28} {:>6.0} ns a flow", median(&times));
        (name, median(&times))
    };
    STAGES.into_iter().enumerate().map(of_stage).collect()
}

/// The time of each of [`STAGES`], on a new table and a new device.
fn stages(lines: &str, count: usize) -> [Duration; STAGES.len()] {
    let (text, flows) = cpu_timed(|| {
        let mut reader = LineReader::new(&());
        let read = |line| {
            reader.read(line).expect("a flow");
            reader.flow(&SEED)
        };
        lines.lines().map(read).collect::<Vec<_>>()
    });
    let logged: Vec<_> = flows.iter().map(|flow| (flow.clone(), SystemTime::UNIX_EPOCH)).collect();
    let (record, log) = cpu_timed(|| bytes::write(1, &logged).expect("a log"));
    assert!(log.len() > count * 50, "every flow is in the log");
    drop(logged);

    let path = Path::new(count);
    let mut ids = Vec::with_capacity(count);
    let installed = path.pass(count, |queue, reply_to| {
        for flow in flows {
            ids.push(queue.add(flow, Some(reply_to.clone())).expect("there is room"));
        }
    });
    assert_eq!(path.table.census().in_state(FlowState::Offloaded), count);

    let actions: [ActionList; 2] = ["3", "4"].map(|port| parse_actions(port, &()).expect("actions"));
    let wanted = |(number, id): (usize, &_)| {
        let flow = path.table.view(*id).expect("it is there").flow;
        flow.with_actions(actions[number % actions.len()].clone())
    };
    let others: Vec<_> = ids.iter().enumerate().map(wanted).collect();
    let modified = path.pass(count, |queue, reply_to| {
        for flow in others {
            queue.modify(flow, false, Some(reply_to.clone())).expect("it is there");
        }
    });
    let removed = path.pass(count, |queue, reply_to| {
        for id in ids {
            queue.delete(id, EndReason::Deleted, Some(reply_to.clone())).expect("it is there");
        }
    });
    assert_eq!(path.table.census().live(), 0);
    let [[acceptance, installation], [acceptance_of_actions, actions], [acceptance_of_end, removal]] =
        [installed, modified, removed];
    [text, acceptance, record, installation, acceptance_of_actions, actions, acceptance_of_end, removal]
}

/// A table, and the device behind it.
struct Path {
    table: Arc<FlowTable>,
    nic: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
}

impl Path {
    fn new(count: usize) -> Self {
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
        let limits = Limits { flows: count, unsettled: count };
        Self { table: Arc::new(FlowTable::new(SEED, limits, Arc::new(()))), nic, clock }
    }

    /// So many requests, and all that a worker does about them: the time of each of both.
    fn pass(&self, count: usize, request: impl FnOnce(&OffloadQueue, &ReplyTo)) -> [Duration; 2] {
        let (queue, mut workers) =
            OffloadQueue::new(self.table.clone(), &self.nic, self.clock.clone(), 1, 8).expect("the device has a queue");
        let batch = Arc::new(Batch::default());
        let reply_to = ReplyTo::from(batch.clone());
        (0..count).for_each(|_| batch.expect_one());
        let (acceptance, ()) = cpu_timed(|| request(&queue, &reply_to));
        let worker = workers.pop().expect("one worker");
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let (work, ()) = std::thread::scope(|scope| {
            let working = scope.spawn(move || cpu_timed(|| worker.run(&stopped, &Progress::default())));
            let tally = batch.wait(Duration::from_secs(60));
            let done = tally.installed + tally.deleted;
            assert_eq!((done, tally.outstanding), (count, 0), "all is done as it was asked for");
            drop(stop);
            working.join().expect("the worker ends")
        });
        [acceptance, work]
    }
}

/// A flow of the mask with this number, whose bits are those that are matched of an Ethernet address.
fn flow_of(number: usize, mask: usize) -> Flow {
    let key = "in_port(1),eth_type(0x0800),ipv4(src=0.0.0.0,dst=0.0.0.0,proto=6,frag=no),tcp(src=1)";
    let mut matching = parse_key(key, &()).expect("a key").matching;
    let number = number as u128;
    matching.set_exact(Field::Ipv4Src, 0x0a00_0000 + number);
    matching.set_exact(Field::TcpSrc, number % 60_000);
    matching.set(Field::EthDst, 0, mask as u128);
    let actions = parse_actions("2", &()).expect("actions");
    Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &SEED)
}

/// Flows as a file for `add-flows` has them: key, blank, actions.
fn lines(flows: impl Iterator<Item = Flow>) -> String {
    let mut lines = String::new();
    for flow in flows {
        text::write_key(&mut lines, &flow.matching(), &Style::default()).unwrap();
        lines.write_char(' ').unwrap();
        text::write_actions(&mut lines, &flow.actions, &Style::default()).unwrap();
        lines.push('\n');
    }
    lines
}
