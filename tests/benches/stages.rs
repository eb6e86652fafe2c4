//! Where the time of `add-flows` goes: the stages of a flow on its way from a line of text to a rule in the software NIC.
//!
//! Each stage by itself, in nanoseconds of processor time a flow, so that whatever else the machine does counts little:
//! on the caller's thread the text and the acceptance, on the threads behind it the record for the log and the installation
//! by a worker. What is left between their sum and `add_flows` is waiting, polling and the control socket. The worker is
//! the agent's own, which finds all flows in its queue. Writes `target/bench/stages.json`.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a bench that cannot go on says so and ends")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use sluice_flow::port::{Port, PortKind, PortNumber};
use sluice_flow::table::{FlowState, Limits};
use sluice_flow::text::{self, LineReader, Style};
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Clock, Flow, FlowTable};
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
const STAGES: [&str; 4] = ["text to flow", "acceptance", "record for the log", "installation by a worker"];

fn main() {
    if bench::is_only_tried() {
        return;
    }
    // One size and nothing else, for a profiler.
    let only: Option<usize> = std::env::var("STAGES_FLOWS").ok().and_then(|count| count.parse().ok());
    let (mut rows, mut growth) = (Vec::new(), Vec::new());
    for size in SIZES.into_iter().filter(|size| only.is_none_or(|only| only == *size)) {
        let rounds = if size > FLOWS { FEW_ROUNDS } else { ROUNDS };
        let lines = lines(size);
        let measured: Vec<_> = (0..rounds).map(|_| stages(&lines, size)).collect();
        println!("{size} flows, median of {rounds}:");
        for (stage, name) in STAGES.iter().enumerate() {
            let times: Vec<_> = measured.iter().map(|round| round[stage].as_nanos() as f64 / size as f64).collect();
            println!("  {name:<28} {:>6.0} ns a flow", median(&times));
            growth.push(json!({ "name": name, "flows": size, "value": median(&times), "unit": "ns a flow" }));
            if size == FLOWS {
                rows.push(json!({ "name": name, "unit": "ns a flow", "ours": median(&times) }));
            }
        }
    }
    if only.is_none() {
        bench::write("stages", &json!({ "rows": rows, "growth": growth }));
    }
}

/// The time of each of [`STAGES`], on a new table and a new device.
fn stages(lines: &str, count: usize) -> [Duration; STAGES.len()] {
    let (text, flows) = cpu_timed(|| {
        let mut reader = LineReader::new(&());
        let read = |line| {
            reader.read(line).expect("a flow");
            let matching = reader.masked_key();
            let line = reader.line();
            Flow::new(line.ufid, matching, line.actions.clone(), line.extra.priority, line.extra.expiry, &SEED)
        };
        lines.lines().map(read).collect::<Vec<_>>()
    });

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
    let table = Arc::new(FlowTable::new(SEED, limits, Arc::new(())));
    let (queue, mut workers) = OffloadQueue::new(table.clone(), &nic, clock, 1, 8).expect("the device has a queue");
    let batch = Arc::new(Batch::default());
    let accepted: Vec<_> = flows.iter().map(|flow| (flow.clone(), SystemTime::UNIX_EPOCH)).collect();
    let (acceptance, ()) = cpu_timed(|| {
        for flow in flows {
            batch.expect_one();
            queue.add(flow, Some(batch.clone())).expect("there is room");
        }
    });
    let (record, log) = cpu_timed(|| bytes::write(1, &accepted).expect("a log"));
    assert!(log.len() > count * 50, "every flow is in the log");

    let worker = workers.pop().expect("one worker");
    let (stop, stopped) = crossbeam_channel::bounded(0);
    let (installation, ()) = std::thread::scope(|scope| {
        let installing = scope.spawn(move || cpu_timed(|| worker.run(&stopped, &Progress::default())));
        let tally = batch.wait(Duration::from_secs(60));
        assert_eq!((tally.installed, tally.outstanding), (count, 0), "every flow is installed");
        drop(stop);
        installing.join().expect("the worker ends")
    });
    assert_eq!(table.census().in_state(FlowState::Offloaded), count);
    [text, acceptance, record, installation]
}

/// Flows as a file for `add-flows` has them: key, blank, actions.
fn lines(count: usize) -> String {
    let mut lines = String::new();
    for flow in bench::five_tuples(count, &SEED) {
        text::write_key(&mut lines, &flow.matching(), &Style::default()).unwrap();
        lines.write_char(' ').unwrap();
        text::write_actions(&mut lines, &flow.actions, &Style::default()).unwrap();
        lines.push('\n');
    }
    lines
}
