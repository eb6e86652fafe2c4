//! Memory per flow: the whole daemon on the NIC in software, beside ovs-vswitchd on its userspace datapath, both given the
//! same lines by `dpctl/add-flows`.
//!
//! Resident memory is read from outside, before and after; flows are counted by each daemon afterwards. Ours runs with
//! and without its log of flows, and has all flows deleted and added again, to show that nothing is left behind. Writes
//! `target/bench/memory.json`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_control::Client;
use sluice_tests::bench::{self, timed};
use sluice_tests::daemon::{Daemon, new_folder};
use sluice_tests::vswitchd::Vswitchd;
use sluice_tests::world::SEED;

/// Flows after each step.
const STEPS: [usize; 3] = [10_000, 100_000, 1_000_000];
/// Times that all flows are deleted and added again.
const CHURN: usize = 3;
/// What a flow may take.
const TO_REACH: f64 = 300.0;
/// Whatever a daemon does once a load is over, such as freeing what it needed for it, is done after so long.
const REST: Duration = Duration::from_secs(3);
/// What a daemon is done with whatever it was asked for within.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
idle_timeout = "none"
flow_limit = 2000000
"#;

fn main() {
    if bench::is_only_tried() {
        return;
    }
    let files = Files::write();
    let (kept, _) = ours(&files, true);
    let (ours, churn) = ours(&files, false);
    let peer = ovs(&files);

    println!("{:<34} {:>10} {:>10} {:>12}", "bytes of resident memory a flow", "flows", "", "whole");
    for (name, steps) in [("sluiced, with its log", &kept), ("sluiced, without", &ours), ("ovs-vswitchd", &peer)] {
        for step in &steps[1..] {
            println!("{name:<34} {:>10} {:>10.0} {:>12}", step.flows, step.a_flow(&steps[0]), step.memory);
        }
        println!("{name:<34} {:>10} {:>10} {:>12}", 0, "", steps[0].memory);
    }
    for (round, step) in (1..).zip(&churn) {
        println!(
            "{:<34} {:>10} {:>10.0} {:>12}",
            format!("again, round {round}"),
            step.flows,
            step.a_flow(&ours[0]),
            step.memory
        );
    }
    let [ours_last, kept_last, peer_last] = [&ours, &kept, &peer].map(|steps| steps[STEPS.len()].a_flow(&steps[0]));
    println!("ours / ovs-vswitchd: {:.2}; to reach: {TO_REACH} bytes", kept_last / peer_last);
    let growth = |steps: &[Step]| -> Vec<Value> {
        let value =
            |step: &Step| json!({ "flows": step.flows, "value": step.a_flow(&steps[0]), "unit": "bytes a flow" });
        steps[1..].iter().map(value).collect()
    };
    bench::write(
        "memory",
        &json!({
            "name": "memory per flow, whole process, 1,000,000 5-tuple flows of 10 masks",
            "unit": "bytes a flow",
            "ours": kept_last,
            "peer": peer_last,
            "ratio": kept_last / peer_last,
            "to_reach": TO_REACH,
            "without_log": ours_last,
            "empty": { "ours": kept[0].memory, "without_log": ours[0].memory, "peer": peer[0].memory },
            "growth": growth(&kept),
            "growth_without_log": growth(&ours),
            "growth_peer": growth(&peer),
            "deleted_and_added_again": churn.iter().map(|step| step.a_flow(&ours[0])).collect::<Vec<_>>(),
        }),
    );
}

/// What a daemon holds at a number of flows.
struct Step {
    flows: usize,
    memory: usize,
}

impl Step {
    fn a_flow(&self, empty: &Self) -> f64 {
        self.memory.saturating_sub(empty.memory) as f64 / self.flows.max(1) as f64
    }
}

/// The lines that lead from each step to the next, a file each.
struct Files(PathBuf, [String; STEPS.len()]);

impl Files {
    fn write() -> Self {
        let folder = new_folder();
        std::fs::create_dir_all(&folder).expect("a folder");
        let lines = bench::five_tuple_file(STEPS[STEPS.len() - 1], &SEED);
        let mut lines = lines.lines();
        let mut before = 0;
        let paths = STEPS.map(|flows| {
            let path = folder.join(flows.to_string()).display().to_string();
            let part: Vec<_> = lines.by_ref().take(flows - before).collect();
            std::fs::write(&path, part.join("\n")).expect("the file is written");
            before = flows;
            path
        });
        Self(folder, paths)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ours(files: &Files, has_log: bool) -> (Vec<Step>, Vec<Step>) {
    let ports: String = (1..=5).map(|port| format!("[[port]]\nnumber = {port}\nname = \"p{port}\"\n")).collect();
    let daemon = Daemon::start(&format!("{CONFIG}persist = {has_log}\n{ports}"));
    let mut control = Client::connect(&daemon.socket()).expect("it listens");
    // An answer that says that the device is not done yet is not the last word.
    let mut add = |file: &str| drop(control.call("dpctl/add-flows", &[file], &mut |_| {}));
    let step = |flows: usize| {
        let offloaded = || daemon.metric("sluice_flows{state=\"offloaded\"} ");
        let live = || daemon.metric("sluice_flows{state=\"deleting\"} ");
        patiently("every flow is in the NIC, and no other", || {
            (offloaded(), live()) == (Some(flows as f64), Some(0.0))
        });
        std::thread::sleep(REST);
        Step { flows, memory: daemon.memory() }
    };
    let mut steps = vec![step(0)];
    for (flows, file) in STEPS.iter().zip(&files.1) {
        add(file);
        steps.push(step(*flows));
    }
    let mut churn = Vec::new();
    for _ in 0..if has_log { 0 } else { CHURN } {
        let deleted = timed(|| {
            daemon.sluice(&["flush"]);
            step(0)
        });
        println!("all flows deleted within {:.1} s: {} bytes are held", deleted.0.as_secs_f64(), deleted.1.memory);
        files.1.iter().for_each(|file| add(file));
        churn.push(step(STEPS[STEPS.len() - 1]));
    }
    (steps, churn)
}

fn patiently(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn ovs(files: &Files) -> Vec<Step> {
    let vswitchd = Vswitchd::start();
    vswitchd.appctl(&["upcall/set-flow-limit", "2000000"]);
    let step = |flows: usize| {
        std::thread::sleep(REST);
        let show = vswitchd.appctl(&["dpctl/show"]);
        let count = show.out.lines().find_map(|line| line.trim().strip_prefix("flows: ")?.parse().ok());
        assert_eq!(count, Some(flows), "every flow is in the datapath: {}{}", show.out, show.err);
        Step { flows, memory: vswitchd.memory() }
    };
    let mut steps = vec![step(0)];
    for (flows, file) in STEPS.iter().zip(&files.1) {
        let added = vswitchd.appctl(&["dpctl/add-flows", file]);
        assert_eq!(added.code, Some(0), "{}", added.err);
        steps.push(step(*flows));
    }
    steps
}
