//! The programs of the mirror on two machines, over a long time: 10,000,000 frames, a collector that is killed 20 times, a cable that is cut
//! and one that loses frames. Each frame is in the files once, or is counted with its cause, and no process grows.
//!
//! The bench is the cable, and runs itself again in both virtual machines of `tests/lab/pair`: on the left beside `sluice-mirror send`, on
//! the right beside `sluice-mirror collect`. Writes `target/bench/mirror_faults.json`. `MIRROR_BENCH_FRAMES` in the environment asks for
//! another number of frames.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench that cannot go on says so and ends"
)]

mod collecting;
mod machine;
#[path = "../../../tests/mirror_pair/notes.rs"]
mod notes;
mod sending;

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use notes::Notes;
use serde_json::{Value, json};
use sluice_tests::bench;
use sluice_tests::daemon::repository;
use sluice_tests::lab::cable::{Cable, Faults};

const FRAMES: u64 = 10_000_000;
const KILLS: usize = 20;
const CUTS: usize = 3;
/// What a process may grow by after its first minute.
const GROWTH: f64 = 1024.0;

/// Machines take this long to start, and more where others are at work.
const START: Duration = Duration::from_secs(240);
const LONG: Duration = Duration::from_secs(120);
/// Frames come in for so long at the most.
const ALL: Duration = Duration::from_secs(25 * 60);

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let frames = words.iter().find_map(|word| word.strip_prefix("--frames=")?.parse().ok());
    match (words.iter().find(|word| word.starts_with("--end-")).map(String::as_str), frames) {
        (Some("--end-left"), Some(frames)) => sending::be(frames),
        (Some("--end-right"), Some(frames)) => collecting::be(frames),
        _ if bench::is_only_tried() => {}
        _ => outside(),
    }
}

fn outside() {
    let frames = std::env::var("MIRROR_BENCH_FRAMES").ok().and_then(|text| text.parse().ok()).unwrap_or(FRAMES);
    let folder = tempfile::tempdir().unwrap();
    let cable = Cable::new(folder.path(), 18);
    let mut machines = ["left", "right"].map(|side| Machine::start(side, folder.path(), frames));
    let played = || play(&cable, folder.path(), frames);
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(played));
    ["left", "right"].iter().for_each(|side| Notes::of(folder.path(), side).stop());
    let have_ended_well = machines.iter_mut().all(|machine| machine.0.wait().unwrap().success());
    let rows = found.expect("what it tells");
    assert!(have_ended_well, "a machine has failed");
    bench::write("mirror_faults", &json!({ "header": "Soft-RoCE, two machines", "frames": frames, "rows": rows }));
}

/// One of the machines.
struct Machine(Child);

impl Machine {
    fn start(side: &str, folder: &Path, frames: u64) -> Self {
        let out = folder.join(format!("{side}-out"));
        std::fs::create_dir(&out).unwrap();
        let mut command = Command::new(repository("tests/lab/pair"));
        command.arg(side).arg(folder).arg("--out").arg(out).arg("--").arg(std::env::current_exe().unwrap());
        command.env("LAB_TIMEOUT", (ALL + START + LONG).as_secs().to_string());
        Self(command.arg(format!("--end-{side}")).arg(format!("--frames={frames}")).spawn().unwrap())
    }
}

fn play(cable: &Cable, folder: &Path, frames: u64) -> Vec<Value> {
    let [mut left, mut right] = ["left", "right"].map(|side| Notes::of(folder, side));
    right.wait("ready", START);
    left.wait("ready", START);
    // Frames come in for longer than all faults take; if there are fewer of them, there are fewer faults.
    let is_over = || folder.join("left-out").join("generated").exists();
    let pause = |seconds| std::thread::sleep(Duration::from_secs(seconds));
    let mut kill = || {
        right.tell("kill");
        right.wait("killed", LONG);
        pause(4);
    };
    let cut = || {
        cable.cut();
        pause(3);
        cable.mend();
        pause(5);
    };
    let loss = Faults { lost: 10, ..Faults::default() };
    // Each fault is in the first minute, too: what it takes once, such as for attempts that hang beside each other, it takes then.
    cable.disturb(loss);
    kill();
    cut();
    left.wait("minute", LONG);
    cable.disturb(Faults::default());
    let (mut kills, mut cuts) = (1, 1);
    while kills < KILLS && !is_over() {
        kill();
        kills += 1;
    }
    pause(5);
    while cuts < CUTS && !is_over() {
        cut();
        cuts += 1;
    }
    cable.disturb(loss);
    while !is_over() {
        pause(1);
    }
    cable.disturb(Faults::default());
    let carried = cable.carried();
    let sent: Value = serde_json::from_str(&left.wait("found", ALL)).unwrap();
    right.tell("end");
    let written: Value = serde_json::from_str(&right.wait("found", LONG)).unwrap();
    println!("{kills} kills, {cuts} cuts, the cable {carried:?}\nsent: {sent}\nwritten: {written}");
    let count = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let (once, twice, dropped) = (count(&written, "once"), count(&written, "twice"), count(&sent, "dropped"));
    assert_eq!((once + dropped, twice), (frames, 0), "each frame is written once or is dropped with its cause");
    let kilobytes = |of: &Value| of["growth"].as_f64().unwrap();
    let row = |name: &str, unit: &str, ours: f64, to_reach: f64| {
        println!("  {name}: {ours} {unit}, to reach {to_reach}");
        json!({ "name": name, "unit": unit, "ours": ours, "to_reach": to_reach, "reached": ours <= to_reach })
    };
    vec![
        row("frames without a cause", "frames", frames.abs_diff(once + dropped) as f64, 0.0),
        row("growth of the sender after its first minute", "KiB", kilobytes(&sent), GROWTH),
        row("growth of the last collector after its first minute", "KiB", kilobytes(&written), GROWTH),
        json!({
            "name": format!("frames that were dropped with their cause, over {kills} kills, {cuts} cuts and 1 % loss"),
            "unit": "frames", "ours": dropped, "peer": frames, "to_reach": null,
        }),
    ]
}
