//! What the benches share: the same flows for everybody, the peers, and where results go.
//!
//! A bench is a program that measures ours, a peer and a floor in turns in one run, checks afterwards that each has done the
//! work, prints a table, and writes `target/bench/NAME.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_flow::text::Style;
use sluice_flow::ufid::Seed;
use sluice_flow::{Expiry, Field, Flow, MaskedKey, Match, Priority, text};

use crate::daemon::repository;

/// Masks of [`five_tuples`].
pub const MASKS: usize = 10;
/// Action lists of [`five_tuples`]: each sends to one port, from 2 on.
const OUTPUTS: u32 = 4;

/// Whether `cargo test --benches` only asks if it builds, not how fast it is.
pub fn is_only_tried() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// TCP flows, each matched by its 5-tuple under one of ten masks, each of which adds a field to the one before.
pub fn five_tuples(count: usize, seed: &Seed) -> impl Iterator<Item = Flow> {
    let masks = masks();
    let actions: Vec<_> =
        (2..2 + OUTPUTS).map(|port| text::parse_actions(&port.to_string(), &()).expect("actions")).collect();
    let seed = *seed;
    (0..count).map(move |number| {
        let mut matching = masks[number % MASKS];
        let spread = number as u128;
        matching.set_exact(Field::Ipv4Src, 0x0a00_0000 + spread);
        matching.set_exact(Field::TcpSrc, spread % 60_000);
        let actions = actions[number % actions.len()].clone();
        Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &seed)
    })
}

/// The same flows as lines for `add-flows`, in OVS's own form, with UFID.
pub fn five_tuple_lines(count: usize, seed: &Seed) -> String {
    let mut lines = String::new();
    let style = Style::default();
    for flow in five_tuples(count, seed) {
        write!(lines, "ufid:{}, ", flow.ufid).expect("a string takes all");
        text::write_key(&mut lines, &flow.matching(), &style).expect("a string takes all");
        lines.push_str(", actions:");
        text::write_actions(&mut lines, &flow.actions, &style).expect("a string takes all");
        lines.push('\n');
    }
    lines
}

/// The same flows in the only form that OVS reads from a file: key, blank, actions.
pub fn five_tuple_file(count: usize, seed: &Seed) -> String {
    let mut lines = String::new();
    let style = Style::default();
    for flow in five_tuples(count, seed) {
        text::write_key(&mut lines, &flow.matching(), &style).expect("a string takes all");
        lines.push(' ');
        text::write_actions(&mut lines, &flow.actions, &style).expect("a string takes all");
        lines.push('\n');
    }
    lines
}

fn masks() -> Vec<Match> {
    let parsed = text::parse_key(
        "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.0,dst=10.0.0.0,proto=6,frag=no),tcp(src=1,dst=1)",
        &(),
    );
    let mut masks: Vec<Match> = vec![parsed.expect("a key").matching];
    let more = [
        (Field::EthSrc, 0x0200_0000_0001),
        (Field::EthDst, 0x0200_0000_0002),
        (Field::Ipv4Tos, 0),
        (Field::Ipv4Ttl, 64),
        (Field::SkbMark, 7),
        (Field::CtZone, 3),
        (Field::CtMark, 9),
        (Field::TcpFlags, 2),
        (Field::SkbPriority, 1),
    ];
    for (field, value) in more {
        let mut next = masks[masks.len() - 1];
        next.set_exact(field, value);
        masks.push(next);
    }
    assert_eq!(masks.len(), MASKS);
    masks
}

/// OVS's own benchmarks of its parts, as `make bench` builds them from Debian's openvswitch-source.
pub fn ovstest(arguments: &[&str]) -> String {
    let program = repository("target/peers/ovstest");
    let ran = Command::new(&program).args(arguments).stderr(Stdio::inherit()).output();
    let output = ran.unwrap_or_else(|error| panic!("{}: {error}; `scripts/setup bench` builds it", program.display()));
    assert!(output.status.success(), "ovstest {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// The same, with the processor time of each thread that the program starts, by name. It is read every millisecond, so
/// that it is short by so much at most.
pub fn ovstest_threads(arguments: &[&str]) -> (String, Vec<(String, Duration)>) {
    let program = repository("target/peers/ovstest");
    let started = Command::new(&program).args(arguments).stdout(Stdio::piped()).spawn();
    let mut process =
        started.unwrap_or_else(|error| panic!("{}: {error}; `scripts/setup bench` builds it", program.display()));
    let mut threads = BTreeMap::new();
    while process.try_wait().expect("it is waited for").is_none() {
        // A thread, or all of it, may end at any moment.
        for task in std::fs::read_dir(format!("/proc/{}/task", process.id())).into_iter().flatten().flatten() {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
            let spent = read("schedstat").and_then(|line| line.split(' ').next()?.parse().ok());
            if let (Some(name), Some(spent)) = (read("comm"), spent) {
                threads.insert((task.file_name(), name.trim().to_owned()), Duration::from_nanos(spent));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = process.wait_with_output().expect("it has ended");
    assert!(output.status.success(), "ovstest {arguments:?}: {}", output.status);
    let threads = threads.into_iter().map(|((_, name), spent)| (name, spent)).collect();
    (String::from_utf8(output.stdout).expect("text"), threads)
}

/// Cycles of the time stamp counter in a second: it runs at the nominal frequency.
pub fn tsc_hertz() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").expect("Linux");
    let line = text.lines().find(|line| line.starts_with("cpu MHz")).expect("a frequency");
    line.rsplit(' ').next().and_then(|last| last.parse::<f64>().ok()).expect("a number") * 1e6
}

/// Memory of this process that is in use, in bytes (`/proc/self/statm`).
pub fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

/// How long some work takes.
pub fn timed<R>(work: impl FnOnce() -> R) -> (Duration, R) {
    let began = Instant::now();
    let result = std::hint::black_box(work());
    (began.elapsed(), result)
}

/// How much processor time of this thread some work takes, whatever else runs on the machine.
pub fn cpu_timed<R>(work: impl FnOnce() -> R) -> (Duration, R) {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).expect("a time since the thread began")
    };
    let began = now();
    let result = std::hint::black_box(work());
    (now().saturating_sub(began), result)
}

/// Processor time that this process has taken so far, with all of its threads.
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a time since the process began")
}

/// The middle one of some measurements.
pub fn median<T: PartialOrd + Copy>(samples: &[T]) -> T {
    quantile(samples, 0.5)
}

/// The measurement below which so great a part of all lies.
pub fn quantile<T: PartialOrd + Copy>(samples: &[T], part: f64) -> T {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).expect("no measurement is NaN"));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
    let place = (sorted.len() as f64 * part) as usize;
    sorted[place.min(sorted.len() - 1)]
}

/// Writes `target/bench/NAME.json`.
pub fn write(name: &str, result: &Value) {
    let folder: PathBuf = repository("target/bench");
    std::fs::create_dir_all(&folder).expect("target/bench is made");
    let text = serde_json::to_string_pretty(result).expect("JSON");
    std::fs::write(folder.join(format!("{name}.json")), text + "\n").expect("the result is written");
}
