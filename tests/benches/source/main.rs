//! How soon a flow of Open vSwitch has its rule, and what the machine pays for all flows, against Open vSwitch's own offload to tc (`hw-offload`).
//!
//! There are two pairs. An unmodified ovs-vswitchd 3.1 keeps its flows in the kernel, with our library in it and the agent in front; against the
//! same with its own offload. And an ovs-vswitchd 4.0 hands its flows over to the agent; against the same with its own offload.
//!
//! All play in the lab's virtual machine, in turns, on the same ports, with the rules of tc in software. A flow begins with one datagram,
//! and has its rule when the kernel says so to whoever listens to tc. What the machine pays is the time of all processors, over seconds of
//! traffic by flows that stay and flows that begin. Writes `target/bench/source.json`.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot go on says so and ends")]

mod contender;
mod lab;
mod traffic;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sluice_tests::bench::{self, median, quantile};
use sluice_tests::daemon::repository;

use crate::contender::Contender;
use crate::lab::Round;

const ROUNDS: usize = 3;
/// The file that the measurements of the lab come back in.
const FILE: &str = "source-lab.json";

fn main() {
    if bench::is_only_tried() {
        return;
    }
    if let Ok(folder) = std::env::var("LAB_OUT") {
        let native = std::env::args().nth(1).expect("a folder");
        let play = |contender| lab::play(contender, Path::new(&native)).write();
        let rounds: Vec<_> = (0..ROUNDS).map(|_| Contender::PAIRS.map(|pair| pair.map(play))).collect();
        std::fs::write(format!("{folder}/{FILE}"), json!(rounds).to_string()).expect("the folder can be written to");
        return;
    }
    let rounds = in_the_lab();
    let rows: Vec<_> = ["in front of 3.1", "handed over by 4.0"]
        .iter()
        .enumerate()
        .flat_map(|(pair, place)| rows(place, &rounds.iter().map(|round| &round[pair]).collect::<Vec<_>>()))
        .collect();
    bench::write("source", &json!({ "rounds": ROUNDS, "rows": rows }));
}

/// The rows of a pair.
fn rows(place: &str, rounds: &[&[Round; 2]]) -> [Value; 3] {
    let wait = |quantile_of: f64, name: &str| {
        let name = format!("{place}: a first packet until its rule is there, {name}");
        row(rounds, &name, "ms", |round| quantile(&round.waits, quantile_of), (1.0, "ahead"))
    };
    [
        wait(0.5, "p50"),
        wait(0.99, "p99"),
        row(rounds, &format!("{place}: {}", lab::load()), "s of CPU", |round| round.busy, (2.0, "half")),
    ]
}

/// A row: ours, OVS's own, and how many times as much that is, as the medians of all rounds.
fn row(
    rounds: &[&[Round; 2]],
    name: &str,
    unit: &str,
    value: impl Fn(&Round) -> f64,
    (least, to_reach): (f64, &str),
) -> Value {
    let of = |side: usize| median(&rounds.iter().map(|round| value(&round[side])).collect::<Vec<_>>());
    let ratio = median(&rounds.iter().map(|[ours, peer]| value(peer) / value(ours)).collect::<Vec<_>>());
    let (ours, peer) = (of(0), of(1));
    println!("{name}: {ours:.2} {unit}, hw-offload {peer:.2}, ratio {ratio:.2}");
    json!({
        "name": name, "unit": unit, "ours": ours, "peer": peer, "ratio": ratio,
        "to_reach": to_reach, "reached": ratio >= least,
    })
}

/// The rounds of each pair, as the virtual machine has measured them.
fn in_the_lab() -> Vec<[[Round; 2]; 2]> {
    let folder = repository("target/bench");
    std::fs::create_dir_all(&folder).expect("target/bench is made");
    let built = Command::new(repository("tests/ovs-native/build")).stderr(Stdio::inherit()).output();
    let built = built.expect("tests/ovs-native/build can be run");
    assert!(built.status.success(), "no Open vSwitch 4.0 with our provider: scripts/setup ovs-native");
    let native = String::from_utf8(built.stdout).expect("a folder");
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(repository("tests/lab/run"));
    command.arg("--out").arg(&folder).arg("--").arg(myself).arg(native.trim());
    assert!(command.status().expect("tests/lab/run can be run").success(), "the lab fails");
    let file = folder.join(FILE);
    let measured: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("measurements")).expect("JSON");
    std::fs::remove_file(&file).expect("a file of ours");
    let pair = |pair: &Value| [Round::read(&pair[0]), Round::read(&pair[1])];
    let rounds = measured.as_array().expect("rounds").iter();
    rounds.map(|round| [pair(&round[0]), pair(&round[1])]).collect()
}
