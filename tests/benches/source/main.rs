//! How soon a flow of Open vSwitch has its rule, and what the machine pays for all flows, against Open vSwitch's own offload to tc (`hw-offload`).
//!
//! There are two pairs. An unmodified ovs-vswitchd 3.1 keeps its flows in the kernel, with our library in it and the agent in front; against the
//! same with its own offload. And an ovs-vswitchd 4.0 hands its flows over to the agent; against the same with its own offload.
//!
//! All play in the lab's virtual machine, in turns, on the same ports, with the rules of tc in software. A flow begins with one datagram,
//! and has its rule when the kernel says so to whoever listens to tc. What the machine pays is the time of all processors, over seconds of
//! traffic by flows that stay and flows that begin. Then ovs-vswitchd is ended and started again under many flows, once each. Writes
//! `target/bench/source.json`.
//!
//! With the argument `rules` or `restart` it is only the former or the latter.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot go on says so and ends")]

mod contender;
mod lab;
mod restart;
mod traffic;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sluice_tests::bench::{self, median, quantile};
use sluice_tests::daemon::repository;

use crate::contender::Contender;
use crate::lab::Round;

const ROUNDS: usize = 3;
/// What the pairs are called.
const PLACES: [&str; 2] = ["in front of 3.1", "handed over by 4.0"];
/// Arguments that have a part measured, which is otherwise all.
const PARTS: [&str; 2] = [RULES, RESTART];
const RULES: &str = "rules";
const RESTART: &str = "restart";
/// The file that the measurements of the lab come back in.
const FILE: &str = "source-lab.json";

fn main() {
    if bench::is_only_tried() {
        return;
    }
    if let Ok(folder) = std::env::var("LAB_OUT") {
        let native = std::env::args().nth(1).expect("a folder");
        let native = Path::new(&native);
        let play = |contender| lab::play(contender, native).write();
        let rounds = if wants(RULES) { ROUNDS } else { 0 };
        let rounds: Vec<_> = (0..rounds).map(|_| Contender::PAIRS.map(|pair| pair.map(play))).collect();
        let restarts = wants(RESTART).then(|| Contender::PAIRS.map(|pair| pair.map(|who| restart::play(who, native))));
        let found = json!({ "rounds": rounds, "restarts": restarts });
        std::fs::write(format!("{folder}/{FILE}"), found.to_string()).expect("the folder can be written to");
        return;
    }
    let found = in_the_lab();
    let rounds = read_rounds(&found["rounds"]);
    let mut written = Vec::new();
    for (pair, place) in PLACES.iter().enumerate() {
        if wants(RULES) {
            written.extend(rows(place, &rounds.iter().map(|round| &round[pair]).collect::<Vec<_>>()));
        }
        if wants(RESTART) {
            written.push(restart_row(place, &found["restarts"][pair]));
        }
    }
    bench::write("source", &json!({ "rounds": ROUNDS, "rows": written }));
}

/// Whether a part is measured.
fn wants(part: &str) -> bool {
    let named: Vec<_> = std::env::args().filter(|argument| PARTS.contains(&argument.as_str())).collect();
    named.is_empty() || named.iter().any(|name| name == part)
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
    write_row((name, unit), (of(0), of(1), ratio), (least, to_reach))
}

/// The row of a pair that has restarted ovs-vswitchd.
fn restart_row(place: &str, pair: &Value) -> Value {
    let [ours, peer] = [0, 1].map(|side| pair[side].as_f64().expect("a number"));
    let name = format!("{place}: {}", restart::what());
    write_row((&name, "s"), (ours, peer, peer / ours), (1.0, "ahead"))
}

fn write_row(
    (name, unit): (&str, &str),
    (ours, peer, ratio): (f64, f64, f64),
    (least, to_reach): (f64, &str),
) -> Value {
    println!("{name}: {ours:.2} {unit}, hw-offload {peer:.2}, ratio {ratio:.2}");
    json!({
        "name": name, "unit": unit, "ours": ours, "peer": peer, "ratio": ratio,
        "to_reach": to_reach, "reached": ratio >= least,
    })
}

/// What the virtual machine has measured.
fn in_the_lab() -> Value {
    let folder = repository("target/bench");
    std::fs::create_dir_all(&folder).expect("target/bench is made");
    let built = Command::new(repository("tests/ovs-native/build")).stderr(Stdio::inherit()).output();
    let built = built.expect("tests/ovs-native/build can be run");
    assert!(built.status.success(), "no Open vSwitch 4.0 with our provider: scripts/setup ovs-native");
    let native = String::from_utf8(built.stdout).expect("a folder");
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(repository("tests/lab/run"));
    command.arg("--out").arg(&folder).arg("--").arg(myself).arg(native.trim());
    command.args(PARTS.iter().filter(|part| wants(part)));
    assert!(command.status().expect("tests/lab/run can be run").success(), "the lab fails");
    let file = folder.join(FILE);
    let measured = std::fs::read_to_string(&file).expect("measurements");
    std::fs::remove_file(&file).expect("a file of ours");
    serde_json::from_str(&measured).expect("JSON")
}

/// The rounds of each pair.
fn read_rounds(found: &Value) -> Vec<[[Round; 2]; 2]> {
    let pair = |pair: &Value| [Round::read(&pair[0]), Round::read(&pair[1])];
    let rounds = found.as_array().expect("rounds").iter();
    rounds.map(|round| [pair(&round[0]), pair(&round[1])]).collect()
}
