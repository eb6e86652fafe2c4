//! What the mlx5 backend costs besides libmlx5 and the device: instructions and processor time of a rule, and the reading of counters.
//!
//! Each figure is of a program of its own under `connectx run`, which is this one again with a part to play, or DPDK's
//! `dpdk-test-flow-perf`. The emulated device runs in the same process. What it takes is left out: instructions by the object files that
//! they are in (`callgrind.rs`), processor time by the thread (`task_time.rs`), and of what is read, the device's dump is measured by
//! itself. Instructions are differences of runs with more and with fewer rules, so that what is done once is left out, too; they do
//! not depend on the machine. Writes `target/bench/dv.json`.
//!
//! The device says nothing of silicon: it answers at once, and its memory is this machine's.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot go on says so and ends")]

mod callgrind;
mod parts;
mod rules;
mod task_time;
mod worker;

use std::env;
use std::process::Command;

use serde_json::{Value, json};
use sluice_tests::bench;
use sluice_tests::daemon::binary;

use self::callgrind::Counted;

/// That of `sluiced`. libmlx5 and the device have that of libc.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Which part this program plays, and with how many rules.
const PART: &str = "SLUICE_BENCH_DV";
const PROFILES: [&str; 2] = ["bluefield-3", "bluefield-2"];
/// Rules of the two runs under callgrind: fewer than a matcher has that is laid out anew.
const FEWER: usize = 1_024;
const MORE: usize = 4_096;
/// Flows that there are in both, of which the first have rules.
const ALL: usize = MORE;
/// Rules of runs that are timed, and counters that are read.
const TIMED: usize = 20_000;
const COUNTERS: usize = 1_000_000;
/// Runs that are timed, in turns; the middle one counts.
const TURNS: usize = 3;
/// Rounds of readings that are timed, and those that callgrind sees.
const WHOLE_ROUNDS: u32 = 10;
const FEW_ROUNDS: usize = 2;
const MANY_ROUNDS: usize = 12;
/// Counters of the first bulks, which have 512 to 8,192, and of one of 16,384.
const COUNTED: usize = 1 << 15;
const BULKS: f64 = 7.0;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    if let Ok(part) = env::var(PART) {
        return parts::play(&part);
    }
    let mut rows = Vec::new();
    for profile in PROFILES {
        rows.extend(instructions(profile));
    }
    rows.push(layouts());
    rows.push(memory());
    rows.push(workers());
    rows.push(peer());
    rows.extend(reading());
    for row in &rows {
        let to_reach = row["to_reach"].as_f64().map(|most| format!("to reach {most}")).unwrap_or_default();
        println!("{:<90} {:>9.3} {to_reach}", row["name"].as_str().unwrap_or_default(), number(row, "ours"));
    }
    let rows = Value::from(rows);
    println!("{rows:#}");
    bench::write("dv", &json!({ "rows": rows }));
}

/// Ours of a rule, and libmlx5's against those of a bare loop.
fn instructions(profile: &str) -> [Value; 2] {
    let [ours, bare] = ["backend", "bare"].map(|part| {
        let of = |rules| counted(profile, part, rules);
        (of(MORE) - of(FEWER)) / (MORE - FEWER) as f64
    });
    [
        json!({ "name": format!("{profile}: our instructions, installation and removal, 5-tuple with counter"),
            "unit": "instructions a rule", "ours": ours.ours, "to_reach": 1_500.0, "libmlx5": ours.mlx5 }),
        json!({ "name": format!("{profile}: libmlx5's instructions ÷ a bare loop over the same rules"),
            "unit": "ratio", "ours": ours.mlx5 / bare.mlx5, "to_reach": 1.02, "bare": bare.mlx5 }),
    ]
}

/// What a fixed layout would save for flows that match the port they come from.
fn layouts() -> Value {
    let [port, anywhere, fixed] = ["bare", "bare anywhere", "bare fixed"].map(|part| {
        let instructions = (counted("bluefield-3", part, MORE) - counted("bluefield-3", part, FEWER)).mlx5;
        let times: Vec<_> =
            (0..TURNS).map(|_| number(&play("bluefield-3", &format!("timed {part}"), 5 * TIMED), "us")).collect();
        (instructions / (MORE - FEWER) as f64, bench::median(&times))
    });
    let pair = |(instructions, us)| json!({ "instructions": instructions, "us a rule": us });
    json!({ "name": "libmlx5 alone: a fixed layout without the port ÷ a resizable one with it, processor time", "unit": "ratio",
        "ours": fixed.1 / port.1, "resizable, with the port": pair(port), "resizable, without": pair(anywhere),
        "fixed, without": pair(fixed) })
}

/// By the sizes of what a rule has, without what the allocator adds.
fn memory() -> Value {
    json!({ "name": "our memory beyond the flow table, as counted", "unit": "bytes a rule", "ours": sluice_offload_dv::BYTES_A_RULE,
        "to_reach": 96.0 })
}

fn workers() -> Value {
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..TURNS {
        for (workers, times) in (1..).zip(&mut times) {
            times.push(number(&play("bluefield-3", &format!("workers {workers}"), TIMED), "us"));
        }
    }
    let [one, two] = times.map(|times| bench::median(&times));
    json!({ "name": "two workers ÷ one, the device included", "unit": "processor time", "ours": two / one, "to_reach": 1.3,
        "us a rule": [one, two] })
}

/// Installation and removal of the same rules by DPDK.
fn peer() -> Value {
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..TURNS {
        for (times, of) in times.iter_mut().zip([task_time::ours, task_time::flow_perf]) {
            times.push((of(5 * TIMED) - of(TIMED)).as_secs_f64() * 1e6 / (4 * TIMED) as f64);
        }
    }
    let [ours, peer] = times.map(|times| bench::median(&times));
    json!({ "name": "a rule and its removal, processor time ÷ dpdk-test-flow-perf", "unit": "us a rule", "ours": ours, "peer": peer,
        "ratio": ours / peer, "to_reach": peer })
}

fn reading() -> [Value; 3] {
    let of = |rounds| counted("bluefield-3", &format!("rounds {rounds}"), COUNTED);
    let rounds = (of(MANY_ROUNDS) - of(FEW_ROUNDS)) / (MANY_ROUNDS - FEW_ROUNDS) as f64;
    let calls = |name: &str| rounds.calls.get(name).copied().unwrap_or_default() / BULKS;
    let counters = env::var("SLUICE_BENCH_COUNTERS").ok().and_then(|number| number.parse().ok()).unwrap_or(COUNTERS);
    let told = play("bluefield-3", "reading", counters);
    [
        json!({ "name": format!("reading {counters} counters, the device's dump excluded"), "unit": "ns a counter",
            "ours": number(&told, "ns"), "to_reach": 15.0, "dump": number(&told, "dump_ns"),
            "our instructions": rounds.ours / COUNTED as f64 }),
        json!({ "name": "the whole round", "unit": "us a flow", "ours": number(&told, "round_ns") / 1e3, "to_reach": 0.2 }),
        json!({ "name": "system calls a bulk of counters", "unit": "calls", "ours": calls("ioctl") + calls("read"),
            "to_reach": 2.0, "all": rounds.calls }),
    ]
}

/// What callgrind counts of a part.
fn counted(profile: &str, part: &str, rules: usize) -> Counted {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("callgrind");
    let out = format!("--callgrind-out-file={}", file.display());
    run(profile, &["valgrind", "--tool=callgrind", "--quiet", &out], part, rules);
    Counted::read(&file)
}

/// Plays a part, and returns what it has found.
fn play(profile: &str, part: &str, rules: usize) -> Value {
    let out = run(profile, &[], part, rules);
    let found = out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    found.unwrap_or_else(|| panic!("{part} says {out}"))
}

fn run(profile: &str, under: &[&str], part: &str, rules: usize) -> String {
    let mut command = command(profile, under, part, rules);
    let output = command.output().expect("connectx runs");
    assert!(output.status.success(), "{part} {rules}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A part on a device, under a program that looks at it, if any is given: the device keeps up with such a one.
fn command(profile: &str, under: &[&str], part: &str, rules: usize) -> Command {
    let mut command = Command::new(binary("connectx"));
    command.args(["run", "--profile", profile]).args((!under.is_empty()).then_some("--in-step")).arg("--").args(under);
    command.arg(env::current_exe().expect("this program")).env(PART, format!("{part} {rules}"));
    // The loader looks functions up before the first rule, not at it.
    command.env("LD_BIND_NOW", "1");
    if !under.is_empty() {
        // Its own thread is nobody's work.
        command.env("_RJEM_MALLOC_CONF", "background_thread:false");
    }
    command
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{value} has no number {key}"))
}
