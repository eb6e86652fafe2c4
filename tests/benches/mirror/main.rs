//! The mirror against perftest, a bare reader of a packet ring, and tcpdump, on Soft-RoCE in the lab's virtual machine.
//!
//! Whatever is compared runs in turns, round by round. Ours are the sender and the collector of `sluice-mirror`, each a process of its own
//! with the runtime of the program, connected by RDMA CM; the collector reads every frame and then has no output. The processors of the
//! machine are emulated, so that ratios count, and the figures themselves do not. Writes `target/bench/mirror.json`.
//!
//! `MIRROR_BENCH_ROUNDS` in the environment asks for another number of rounds, words of the command line for some [parts](PARTS) alone, as
//! in `cargo bench -p sluice-tests --bench mirror -- payload latency`.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot go on says so and ends")]

mod ends;
mod flood;
mod generator;
mod lab;
mod latency;
mod peers;
mod ring;
mod rows;
mod sources;
mod standing;
mod throughput;

use std::process::Command;

use rows::Rows;
use serde_json::{Value, json};
use sluice_tests::bench;
use sluice_tests::daemon::repository;

const ROUNDS: usize = 5;
/// The file that the measurements of the lab come back in.
const FILE: &str = "mirror-lab.json";

/// A part, which adds its rows after so many rounds.
type Part = fn(usize, &mut Rows);

const PARTS: [(&str, Part); 6] = [
    ("payload", throughput::payload),
    ("frames", throughput::frames),
    ("ring", ring::ring),
    ("latency", latency::latency),
    ("flood", flood::flood),
    ("standing", standing::standing),
];

fn main() {
    if bench::is_only_tried() || ends::is_end() {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--bench")).collect();
    let rounds = words.iter().find_map(|word| word.strip_prefix("--rounds=")?.parse().ok());
    let is_asked = |name: &str| words.iter().any(|word| word == name);
    let is_all = !PARTS.iter().any(|(name, _)| is_asked(name));
    if let (Ok(folder), Some(rounds)) = (std::env::var("LAB_OUT"), rounds) {
        lab::prepare();
        let mut rows = Rows::default();
        PARTS.iter().filter(|(name, _)| is_all || is_asked(name)).for_each(|(_, part)| part(rounds, &mut rows));
        std::fs::write(format!("{folder}/{FILE}"), json!(rows.json()).to_string())
            .expect("the folder can be written to");
        return;
    }
    let rounds = std::env::var("MIRROR_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let rows = in_the_lab(&words, rounds);
    bench::write("mirror", &json!({ "header": "Soft-RoCE, one machine", "rounds": rounds, "rows": rows }));
}

/// Runs this program in the lab, and returns the rows that it has made.
fn in_the_lab(words: &[String], rounds: usize) -> Value {
    let folder = repository("target/bench");
    std::fs::create_dir_all(&folder).expect("target/bench is made");
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(repository("tests/lab/run"));
    command.arg("--out").arg(&folder).arg("--").arg(myself).args(words).arg(format!("--rounds={rounds}"));
    assert!(command.status().expect("tests/lab/run can be run").success(), "the lab fails");
    let file = folder.join(FILE);
    let text = std::fs::read_to_string(&file).expect("what was measured");
    std::fs::remove_file(&file).expect("a file of ours");
    serde_json::from_str(&text).expect("JSON")
}
