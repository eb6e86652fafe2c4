//! What the library in ovs-vswitchd costs it: processor time of its revalidator on flows of the kernel's datapath, with the library and a
//! record of each flow, and without.
//!
//! Both daemons run in the lab's virtual machine, each in a namespace of its own, and are measured in turns, round by round. The kernel has
//! counted nothing for any flow, so that the library adds all there is to each message. Afterwards its own counters say that it has. As the
//! processors of that machine are emulated, and memory is not, what the library does with one answer is measured natively as well.
//! Writes `target/bench/feedback.json`. `FEEDBACK_BENCH_FLOWS` in the environment asks for another number of flows in the lab.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot go on says so and ends")]

mod lab;
mod native;

use std::process::Command;

use serde_json::{Value, json};
use sluice_tests::bench::{self, median};
use sluice_tests::daemon::repository;

/// In the lab, whose memory has room for two daemons with so many.
const FLOWS: usize = 20_000;
const NATIVE_FLOWS: usize = 100_000;
const ROUNDS: usize = 9;
/// What is to be reached, with the library against without.
const TO_REACH: f64 = 1.01;
/// The file that the measurements of the lab come back in.
const FILE: &str = "feedback-lab.json";

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let asked = std::env::args().find_map(|word| word.strip_prefix("--flows=")?.parse().ok());
    if let (Ok(folder), Some(flows)) = (std::env::var("LAB_OUT"), asked) {
        let measured = lab::measure(flows, ROUNDS);
        std::fs::write(format!("{folder}/{FILE}"), json!(measured).to_string()).expect("the folder can be written to");
        return;
    }
    let flows = std::env::var("FEEDBACK_BENCH_FLOWS").ok().and_then(|text| text.parse().ok()).unwrap_or(FLOWS);
    let native: Vec<_> = (0..ROUNDS).map(|_| native::nanoseconds_a_flow(NATIVE_FLOWS)).collect();
    println!("what the library does with an answer about a flow, natively: {:.1} ns", median(&native));
    let pairs = in_the_lab(flows);
    let side = |side: usize| median(&pairs.iter().map(|pair| pair[side]).collect::<Vec<_>>());
    let (with, without) = (side(0), side(1));
    let ratio = median(&pairs.iter().map(|[with, without]| with / without).collect::<Vec<_>>());
    println!(
        "a revalidation of {flows} flows: {with:.3} us a flow with the library, {without:.3} without, ratio {ratio:.4}"
    );
    bench::write(
        "feedback",
        &json!({ "flows": flows, "rounds": ROUNDS, "rows": [
            {
                "name": format!("what the library does with an answer about one of {NATIVE_FLOWS} flows, native"), "unit": "us of CPU a flow",
                "ours": median(&native) / 1000.0, "to_reach": "", "reached": null,
            },
            {
                "name": format!("a revalidation of {flows} flows by ovs-vswitchd with the library, against without"),
                "unit": "us of CPU a flow", "ours": with, "peer": without, "ratio": ratio,
                "to_reach": format!("<= {TO_REACH}"), "reached": ratio <= TO_REACH,
            },
        ] }),
    );
}

/// Processor time for a flow in us, with and without, of each round.
fn in_the_lab(flows: usize) -> Vec<[f64; 2]> {
    let folder = repository("target/bench");
    std::fs::create_dir_all(&folder).expect("target/bench is made");
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(repository("tests/lab/run"));
    command.arg("--out").arg(&folder).arg("--").arg(myself).arg(format!("--flows={flows}"));
    assert!(command.status().expect("tests/lab/run can be run").success(), "the lab fails");
    let file = folder.join(FILE);
    let measured: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("measurements")).expect("JSON");
    std::fs::remove_file(&file).expect("a file of ours");
    let number = |value: &Value| value.as_f64().expect("a number");
    let pairs = measured.as_array().expect("rounds").iter();
    pairs.map(|pair| [number(&pair[0]), number(&pair[1])]).collect()
}
