//! The dv backend after a restart: flows of the log are back in the device, against the same flows put in by the backend alone.
//!
//! Both write into an emulated BlueField-3, each in a process of its own under `connectx run`, in turns: the ratio counts, the figures are
//! the emulator's for the most part. Afterwards the rules are counted on both sides. Writes `target/bench/dv_restart.json`.
//!
//! `DV_BENCH_RULES` and `DV_BENCH_ROUNDS` in the environment ask for other numbers.

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot go on says so and ends")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::NonZeroU16;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_flow::backend::{Change, OpenConfig, Operation};
use sluice_flow::port::PortKind;
use sluice_flow::time::MonotonicClock;
use sluice_flow::{Backend, FlowId, Generation, Port, PortNumber};
use sluice_offload_dv::{Config, DvNic};
use sluice_tests::bench::{self, median};
use sluice_tests::conformance::{Worker, flow};
use sluice_tests::daemon::{Daemon, run};
use sluice_tests::mlx5::runner;

const RULES: usize = 100_000;
const ROUNDS: usize = 3;
const PROFILE: &str = "bluefield-3";
/// What is to be reached of a restart's time, as a multiple of the bare install's.
const TARGET: f64 = 1.2;
/// Set for the process that installs without an agent.
const BARE: &str = "DV_BENCH_BARE";
const CONFIG: &str = r#"
backend = "dv"
device = "mlx5_0"
idle_timeout = "none"
flow_limit = 1000000
dirty_limit = 1000000
[dv]
takeover = true
# A table that grows is moved within one call, for which the emulated device takes seconds.
stuck_after = 60
vports = { p1 = 0, p2 = 65535 }
[[port]]
number = 1
name = "p1"
[[port]]
number = 2
name = "p2"
"#;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(rules) = asked(BARE) {
        println!("{}", install(rules).as_secs_f64());
        return;
    }
    let (rules, rounds) = (asked("DV_BENCH_RULES").unwrap_or(RULES), asked("DV_BENCH_ROUNDS").unwrap_or(ROUNDS));
    let mut measured: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        let (back, without_rules) = restart(rules);
        for (list, value) in measured.iter_mut().zip([bare(rules), back, without_rules]) {
            list.push(value);
        }
    }
    let [bare, back, without_rules] = measured.map(|values| median(&values));
    let ratio = back / bare;
    println!("{rules} rules: bare install {bare:.2} s, back from the log {back:.2} s after the start of the process");
    println!(
        "ratio {ratio:.2} (to reach: {TARGET}); without rules for at most {without_rules:.2} s, as the agent tells"
    );
    let result = json!({
        "name": format!("{rules} rules of dv back from the log ÷ installed by the backend alone"), "unit": "s",
        "ours": back, "peer": bare, "ratio": ratio, "to_reach": TARGET * bare,
        "rounds": rounds, "without_rules_seconds": without_rules,
    });
    bench::write("dv_restart", &result);
}

/// Installs by the backend alone, in a process that has a device, and returns the seconds that it took.
fn bare(rules: usize) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let program = runner(PROFILE, folder.path());
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).arg(std::env::current_exe().expect("this program")).env(BARE, rules.to_string());
    let ran = run(&mut command);
    ran.out.trim().parse().unwrap_or_else(|_| panic!("no bare install: {}", ran.err))
}

fn install(rules: usize) -> Duration {
    let vports = [("p1", 0), ("p2", 0xffff)].map(|(name, vport)| (name.to_owned(), vport));
    let stuck_after = NonZeroU16::MIN.saturating_add(59);
    let config = Config { takeover: true, vports: BTreeMap::from(vports), stuck_after, ..Config::default() };
    let nic = DvNic::open(&config, &OpenConfig::new("mlx5_0", Arc::new(MonotonicClock::new()))).expect("a device");
    for number in [1, 2] {
        let name = format!("p{number}").parse().expect("a name");
        nic.attach_port(&Port { number: PortNumber(number), name, kind: PortKind::Physical }).expect("a port");
    }
    let flows: Vec<_> = (0..rules).map(|number| flow(&key(number), "2")).collect();
    let mut worker = Worker::new(&nic);
    let began = Instant::now();
    let change = |(slot, flow)| Change {
        flow: FlowId { slot, incarnation: 1 },
        generation: Generation(1),
        operation: Operation::Install(flow),
    };
    let changes: Vec<_> = (0..).zip(flows).map(change).collect();
    let mut changes = changes.into_iter();
    loop {
        let batch: Vec<_> = changes.by_ref().take(nic.capabilities().batch).collect();
        if batch.is_empty() {
            break;
        }
        worker.submit(batch);
    }
    let done = worker.finish();
    let took = began.elapsed();
    assert!(done.iter().all(|completion| completion.result.is_ok()), "all are taken");
    took
}

/// Kills an agent that has so many flows, and starts the next one. Returns how long after that all are back in the device, and how long
/// they were without rules at most as the agent tells.
fn restart(rules: usize) -> (f64, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("flows");
    let mut lines = String::new();
    for number in 0..rules {
        writeln!(lines, "{}, actions:2", key(number)).expect("a string takes all");
    }
    std::fs::write(&file, lines).expect("a file");
    let mut daemon = start(folder.path(), 0);
    let ran = daemon.sluice(&["add-flows", file.to_str().expect("a path")]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(offloaded(&daemon), rules, "all are in the device");
    let pid = std::fs::read_to_string(daemon.run_dir().join("sluiced.pid")).expect("a pidfile");
    assert!(Command::new("kill").args(["-KILL", pid.trim()]).status().expect("kill runs").success());
    daemon.wait();
    drop(daemon);
    let began = Instant::now();
    let daemon = start(folder.path(), 1);
    let without_rules = loop {
        match daemon.metric("sluice_reinstatement_seconds") {
            Some(seconds) => break seconds,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let back = began.elapsed();
    assert_eq!(offloaded(&daemon), rules, "all are back");
    (back.as_secs_f64(), without_rules)
}

fn start(folder: &Path, run: u32) -> Daemon {
    let wires = folder.join(format!("wires-{run}"));
    std::fs::create_dir(&wires).expect("a folder");
    Daemon::start_by(&runner(PROFILE, &wires), &folder.join("agent"), CONFIG)
}

fn offloaded(daemon: &Daemon) -> usize {
    let listed = daemon.sluice(&["dump-flows", "type=offloaded"]).out;
    listed.lines().filter(|line| line.contains("actions:")).count()
}

/// One of many 5-tuples.
fn key(number: usize) -> String {
    let [_, high, middle, low] = u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    format!(
        "in_port(1),eth(),eth_type(0x0800),ipv4(src=10.{high}.{middle}.{low},dst=10.0.0.2,proto=6,frag=no),tcp(src={},dst=80)",
        number % 60_000
    )
}
