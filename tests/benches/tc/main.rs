//! The tc backend's way into the kernel against the least that is possible, against `tc -batch` and against ovs-vswitchd:
//! control-plane cost without a device.
//!
//! Our own processor time is measured on this machine, all else on the kernel of `tests/lab`, whose processors are
//! emulated: ratios count, the figures themselves do not. All put the same rules in, in turns, and after each the rules in
//! the kernel are counted. Writes `target/bench/tc.json`.
//!
//! `TC_BENCH_RULES` and `TC_BENCH_ROUNDS` in the environment ask for other numbers, words of the command line for some
//! [parts](parts::Part) alone, as in `cargo bench -p sluice-tests --bench tc -- native restart`. With 50,000 rules a round of
//! all takes some minutes on two processors.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot go on says so and ends")]

mod agent;
mod floor;
mod lab;
mod latency;
mod native;
mod parts;
mod revalidation;
mod rules;

use std::process::Command;
use std::time::Duration;

use lab::{Lab, Round};
use latency::Latencies;
use parts::{Part, Parts};
use serde_json::{Value, json};
use sluice_offload_tc::install::BATCH;
use sluice_tests::bench::{self, median};
use sluice_tests::daemon::repository;

const RULES: usize = 10_000;
const ROUNDS: usize = 3;
/// Of the rules, so many where OVS needs a packet for each.
const REVALIDATED: usize = 10_000;
/// Of our own part, which is quick.
const NATIVE_ROUNDS: usize = 15;
/// The file that the measurements of the lab come back in.
const FILE: &str = "tc-lab.json";

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let parts = Parts::of_command_line();
    let number =
        |name: &str, usual| std::env::args().find_map(|word| word.strip_prefix(name)?.parse().ok()).unwrap_or(usual);
    if let Ok(folder) = std::env::var("LAB_OUT") {
        let rounds = inside(number("--rules=", RULES), number("--rounds=", ROUNDS), &parts);
        std::fs::write(format!("{folder}/{FILE}"), rounds.to_string()).expect("the folder can be written to");
        return;
    }
    let asked = |name: &str, usual: usize| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (rules, rounds) = (asked("TC_BENCH_RULES", RULES), asked("TC_BENCH_ROUNDS", ROUNDS));
    let mut rows = Vec::new();
    if parts.has(Part::Native) {
        rows.push(native(rules));
    }
    if parts.need_the_lab() {
        rows.extend(in_the_lab(rules, rounds, &parts));
    }
    bench::write("tc", &json!({ "header": "control-plane cost without a device", "rules": rules, "rows": rows }));
}

/// Our own part, with no kernel behind it.
fn native(rules: usize) -> Value {
    let lines = rules::flow_lines(rules, 1, 2);
    let measured: Vec<_> = (0..NATIVE_ROUNDS).map(|_| native::stages(&lines)).collect();
    let per_rule = |time: Duration| time.as_nanos() as f64 / rules as f64;
    println!("our own processor time for a rule, on this machine and without a kernel, median of {NATIVE_ROUNDS}:");
    let mut stages = vec![];
    for (stage, name) in native::STAGES.iter().enumerate() {
        let times: Vec<_> = measured.iter().map(|round| per_rule(round[stage])).collect();
        println!("  {name:<20} {:>7.0} ns", median(&times));
        stages.push(json!({ "stage": name, "nanoseconds": median(&times) }));
    }
    let sums: Vec<_> = measured.iter().map(|round| per_rule(round.iter().sum()) / 1000.0).collect();
    println!("  {:<20} {:>7.0} ns", "together", median(&sums) * 1000.0);
    json!({
        "name": "processor time of ours for 1,000 installations, native, without the kernel's",
        "unit": "ms", "ours": median(&sums), "to_reach": 0.5, "stages": stages,
    })
}

/// Runs this program in the lab, and makes rows of what it measured.
fn in_the_lab(rules: usize, rounds: usize, parts: &Parts) -> Vec<Value> {
    let folder = repository("target/bench");
    std::fs::create_dir_all(&folder).expect("target/bench is made");
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(repository("tests/lab/run"));
    command.arg("--out").arg(&folder).arg("--").arg(myself).args(parts.names());
    let status = command.arg(format!("--rules={rules}")).arg(format!("--rounds={rounds}")).status();
    assert!(status.expect("tests/lab/run can be run").success(), "the lab fails");
    let file = folder.join(FILE);
    let text = std::fs::read_to_string(&file).expect("what was measured");
    std::fs::remove_file(&file).expect("a file of ours");
    match serde_json::from_str(&text).expect("JSON") {
        Value::Array(rows) => rows,
        other => panic!("{other}"),
    }
}

/// A row: what is compared, with what, in which part, and from the times of a round both figures.
type Row = (&'static str, Part, fn(&Round) -> [Duration; 2], Goal);

/// What is to be reached.
enum Goal {
    /// So many times the floor at the most, and better so many.
    Within(f64, f64),
    /// So many times as fast at the least.
    Faster(f64),
}

const ROWS: [Row; 8] = [
    (
        "installation against a replay of the same messages",
        Part::Ways,
        |round| [round.ours, round.floor],
        Goal::Within(1.4, 1.25),
    ),
    ("installation against tc -batch", Part::Ways, |round| [round.ours, round.tc], Goal::Faster(4.0)),
    (
        "installation against ovs-vswitchd dpctl/add-flows",
        Part::Ways,
        |round| [round.ours, round.ovs],
        Goal::Faster(10.0),
    ),
    ("two workers against one", Part::Ways, |round| [round.ours_of_two, round.ours], Goal::Faster(1.4)),
    ("replay by two against one", Part::Ways, |round| [round.floor_of_two, round.floor], Goal::Faster(1.0)),
    (
        "counters of all against a listing thrown away",
        Part::Ways,
        |round| [round.poll, round.poll_floor],
        Goal::Within(1.3, 1.3),
    ),
    (
        "installation by the whole agent against that replay",
        Part::Ways,
        |round| [round.agent, round.floor],
        Goal::Within(1.4, 1.25),
    ),
    (
        "from kill -9 until ready again against a listing thrown away",
        Part::Restart,
        |round| [round.restart, round.dump],
        Goal::Within(2.0, 2.0),
    ),
];

fn us(times: [Duration; 2]) -> [f64; 2] {
    times.map(|time| time.as_nanos() as f64 / 1000.0)
}

fn inside(rules: usize, rounds: usize, parts: &Parts) -> Value {
    let mut lab = Lab::open(rules, parts.clone());
    // What the kernel has to get memory for the first time is nobody's fault.
    lab.round();
    let measured: Vec<_> = (0..rounds)
        .map(|_| {
            let round = lab.round();
            println!("{round:.2?}");
            round
        })
        .collect();
    let revalidated = rules.min(REVALIDATED);
    let revalidations = lab.revalidation(rounds, revalidated);
    drop(lab);

    println!("control-plane cost without a device; {rules} rules, medians of {rounds} rounds and of their ratios:");
    let per = |times: [Duration; 2], rules: usize| us(times).map(|us| us / rules as f64);
    let mut rows: Vec<_> = ROWS
        .iter()
        .filter(|(_, part, ..)| parts.has(*part))
        .map(|(name, _, times, goal)| {
            let figures: Vec<_> = measured.iter().map(|round| per(times(round), rules)).collect();
            row(name, "us a rule", &figures, goal)
        })
        .collect();
    if !revalidations.is_empty() {
        let figures: Vec<_> = revalidations.iter().map(|pair| per(*pair, revalidated)).collect();
        let name = "processor time of a revalidation against that of OVS";
        rows.push(row(name, "us a rule", &figures, &Goal::Faster(4.0)));
    }
    if parts.has(Part::Latency) {
        rows.extend(latencies(rules, &measured));
    }
    Value::Array(rows)
}

/// What becomes of flows that come at half of the highest rate.
fn latencies(rules: usize, measured: &[Round]) -> Vec<Value> {
    let agent = median(&measured.iter().map(|round| round.agent).collect::<Vec<_>>());
    let rate = rules as f64 / agent.as_secs_f64() / 2.0;
    let taken: Vec<_> = measured.iter().map(|_| Latencies::measure(rate)).collect();
    let batch = |round: &Round| round.floor.mul_f64(BATCH as f64 / rules as f64);
    let pairs = |pair: fn(&Latencies) -> [Duration; 2]| taken.iter().map(pair).map(us).collect::<Vec<_>>();
    let against_a_batch: Vec<_> =
        taken.iter().zip(measured).map(|(taken, round)| us([taken.agent, batch(round)])).collect();
    let name = "p99 from acceptance at half the rate against";
    let goal = Goal::Within(2.0, 2.0);
    vec![
        row(&format!("{name} a batch"), "us", &against_a_batch, &goal),
        row(
            &format!("{name} a replay with a poll at that rate"),
            "us",
            &pairs(|taken| [taken.agent, taken.floor]),
            &goal,
        ),
        row(&format!("{name} that without a poll"), "us", &pairs(|taken| [taken.agent, taken.without_poll]), &goal),
        row(
            "the same of both without polls",
            "us",
            &pairs(|taken| [taken.without_poll, taken.floor_without_poll]),
            &goal,
        ),
    ]
}

/// A row of pairs of ours and the other's.
fn row(name: &str, unit: &str, figures: &[[f64; 2]], goal: &Goal) -> Value {
    let [ours, peer] = [0, 1].map(|side| median(&figures.iter().map(|pair| pair[side]).collect::<Vec<_>>()));
    let ratio = |pair: &[f64; 2]| match goal {
        Goal::Within(..) => pair[0] / pair[1],
        Goal::Faster(_) => pair[1] / pair[0],
    };
    let ratio = median(&figures.iter().map(ratio).collect::<Vec<_>>());
    let (to_reach, reached) = match goal {
        Goal::Within(most, better) if most == better => (format!("<= {most}"), ratio <= *most),
        Goal::Within(most, better) => (format!("<= {most}, then {better}"), ratio <= *most),
        Goal::Faster(least) => (format!(">= {least}"), ratio >= *least),
    };
    println!("  {name:<60} {ours:>7.2} {peer:>8.2} {unit}, ratio {ratio:.2} (to reach: {to_reach})");
    json!({
        "name": name, "unit": unit, "ours": ours, "peer": peer, "ratio": ratio, "to_reach": to_reach,
        "reached": reached,
    })
}
