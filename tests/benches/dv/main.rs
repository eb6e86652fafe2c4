//! What the mlx5 backend costs besides libmlx5 and the device: instructions and processor time of a rule, and the reading of counters.
//!
//! Each figure is of a program of its own under `connectx run`, which is this one again with a part to play, or DPDK's
//! `dpdk-test-flow-perf`. The emulated device runs in the same process. What it takes is left out: instructions by the object files that
//! they are in (`callgrind.rs`), processor time by the thread (`task_time.rs`), and of what is read, the device's dump is measured by
//! itself. Instructions are differences of runs with more and with fewer rules, so that what is done once is left out, too; they do
//! not depend on the machine. Memory is what is resident of a process that has the backend, beyond one whose libmlx5 has the same rules.
//! Writes `target/bench/dv.json`.
//!
//! Names of the command line are those of measurements to make alone, as in `cargo bench -p sluice-tests --bench dv -- peer`. What needs a
//! program that is not here is left out, and says so.
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
/// Rules of runs that are timed, and of those whose counters and memory are measured.
const TIMED: usize = 20_000;
const MANY: usize = 1_000_000;
/// Runs that are timed, in turns; the middle one counts.
const TURNS: usize = 3;
/// Rounds of readings that are timed, and those that callgrind sees.
const WHOLE_ROUNDS: u32 = 10;
const FEW_ROUNDS: usize = 2;
const MANY_ROUNDS: usize = 12;
/// Has libc copy and fill memory by a loop, however much it is.
const WITHOUT_REP: &str = "glibc.cpu.x86_rep_movsb_threshold=0x7fffffff:glibc.cpu.x86_rep_stosb_threshold=0x7fffffff";
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
    let asked: Vec<_> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut rows = Vec::new();
    for (name, needs, measure) in MEASUREMENTS {
        if !asked.is_empty() && asked.iter().all(|asked| asked != name) {
            continue;
        }
        match needs.iter().find(|program| !is_here(program)) {
            Some(program) => {
                let lacks = format!("not measured: there is no {program}, which `scripts/setup bench` installs");
                rows.push(json!({ "name": name, "lacks": lacks }));
            }
            None => rows.extend(measure()),
        }
    }
    for row in &rows {
        let name = row["name"].as_str().unwrap_or_default();
        match row["lacks"].as_str() {
            Some(lacks) => println!("{name:<90} {lacks}"),
            None => {
                let to_reach = row["to_reach"].as_f64().map(|most| format!("to reach {most}")).unwrap_or_default();
                println!("{name:<90} {:>9.3} {to_reach}", number(row, "ours"));
            }
        }
    }
    let rows = Value::from(rows);
    println!("{rows:#}");
    bench::write("dv", &json!({ "rows": rows }));
}

type Measurement = (&'static str, &'static [&'static str], fn() -> Vec<Value>);

/// What is measured, the programs that are needed for it, and how.
const MEASUREMENTS: [Measurement; 6] = [
    ("instructions", &["valgrind"], || PROFILES.into_iter().flat_map(instructions).collect()),
    ("layouts", &["valgrind"], || vec![layouts()]),
    ("workers", &[], || vec![workers()]),
    ("peer", &["valgrind", "dpdk-test-flow-perf"], || vec![peer()]),
    ("reading", &["valgrind"], || reading().into()),
    ("memory", &[], || vec![memory()]),
];

fn is_here(program: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(program).exists())
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
        let timed: Vec<_> = (0..TURNS).map(|_| play("bluefield-3", &format!("timed {part}"), 5 * TIMED)).collect();
        let median = |key| bench::median(&timed.iter().map(|told| number(told, key)).collect::<Vec<_>>());
        (instructions / (MORE - FEWER) as f64, median("us"), median("longest call in ms"))
    });
    let told = |(instructions, us, longest)| json!({ "instructions": instructions, "us a rule": us, "longest call in ms": longest });
    json!({ "name": "libmlx5 alone: a fixed layout without the port ÷ a resizable one with it, processor time", "unit": "ratio",
        "ours": fixed.1 / port.1, "resizable, with the port": told(port), "resizable, without": told(anywhere),
        "fixed, without": told(fixed) })
}

/// What is resident of the backend beyond libmlx5 and the device with the same rules, and beyond the flows.
fn memory() -> Value {
    let rules = many();
    let [ours, bare] =
        ["backend", "bare"].map(|part| number(&play("bluefield-3", &format!("memory {part}"), rules), "bytes"));
    json!({ "name": format!("our memory beyond the flow table, of {rules} rules"), "unit": "bytes a rule", "ours": ours - bare,
        "to_reach": 96.0, "by sizes": sluice_offload_dv::BYTES_A_RULE, "bare": bare })
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

/// Installation and removal of the same rules by DPDK: instructions with those of libmlx5, and processor time, in which the device's work
/// is that it does in the calling thread.
fn peer() -> Value {
    let instructions = |of: fn(&[&str], usize) -> Command| {
        let counted = |rules| profiled(|under| of(under, rules));
        let Counted { ours, mlx5, .. } = (counted(MORE) - counted(FEWER)) / (MORE - FEWER) as f64;
        [ours, mlx5]
    };
    let [ours_by, peer_by] = [task_time::ours, task_time::flow_perf].map(instructions);
    let [ours, peer] = [ours_by, peer_by].map(|by| by.iter().sum::<f64>());
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..TURNS {
        for (times, of) in times.iter_mut().zip([task_time::ours, task_time::flow_perf]) {
            let time = |rules| task_time::of(of(&[], rules));
            times.push((time(5 * TIMED).as_secs_f64() - time(TIMED).as_secs_f64()) * 1e6 / (4 * TIMED) as f64);
        }
    }
    let [ours_us, peer_us] = times.map(|times| bench::median(&times));
    json!({ "name": "a rule and its removal ÷ dpdk-test-flow-perf", "unit": "instructions a rule", "ours": ours, "peer": peer,
        "ratio": ours / peer, "to_reach": peer, "besides libmlx5 and in it": { "ours": ours_by, "peer": peer_by },
        "processor time, us a rule": { "ours": ours_us, "peer": peer_us } })
}

fn reading() -> [Value; 3] {
    let of = |rounds| counted("bluefield-3", &format!("rounds {rounds}"), COUNTED);
    let rounds = (of(MANY_ROUNDS) - of(FEW_ROUNDS)) / (MANY_ROUNDS - FEW_ROUNDS) as f64;
    let calls = |name: &str| rounds.calls.get(name).copied().unwrap_or_default() / BULKS;
    let counters = many();
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

/// As many rules as the largest agents have, or as many as are asked for.
fn many() -> usize {
    env::var("SLUICE_BENCH_RULES").ok().and_then(|number| number.parse().ok()).unwrap_or(MANY)
}

/// What callgrind counts of a part.
fn counted(profile: &str, part: &str, rules: usize) -> Counted {
    profiled(|under| command(profile, under, part, rules))
}

/// What callgrind counts of a program, which is run under it.
fn profiled(command: impl FnOnce(&[&str]) -> Command) -> Counted {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("callgrind");
    let out = format!("--callgrind-out-file={}", file.display());
    // Threads have turns: one that waits by looking again and again would keep all others from running.
    let mut command = command(&["valgrind", "--tool=callgrind", "--quiet", "--fair-sched=yes", &out]);
    // Its own thread is nobody's work.
    command.env("_RJEM_MALLOC_CONF", "background_thread:false");
    // libc copies more than a few pages by one instruction (`rep movsb`), of which callgrind counts each byte.
    command.env("GLIBC_TUNABLES", WITHOUT_REP);
    run(command);
    Counted::read(&file)
}

/// Plays a part, and returns what it has found.
fn play(profile: &str, part: &str, rules: usize) -> Value {
    let out = run(command(profile, &[], part, rules));
    let found = out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    found.unwrap_or_else(|| panic!("{part} says {out}"))
}

fn run(mut command: Command) -> String {
    let output = command.output().expect("connectx runs");
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A part on a device, under a program that looks at it, if any is given: the device keeps up with such a one.
fn command(profile: &str, under: &[&str], part: &str, rules: usize) -> Command {
    let mut command = Command::new(binary("connectx"));
    command.args(["run", "--profile", profile]).args((!under.is_empty()).then_some("--in-step")).arg("--").args(under);
    command.arg(env::current_exe().expect("this program")).env(PART, format!("{part} {rules}"));
    // The loader looks functions up before the first rule, not at it.
    command.env("LD_BIND_NOW", "1");
    command
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{value} has no number {key}"))
}
