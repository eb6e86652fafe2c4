//! A connection between two machines, whose cable is cut, loses frames and is mended, and whose far end is killed: first with ends of the
//! test's own, and then with `sluice-mirror`.
//!
//! The test is the cable, and runs itself again in both virtual machines of `tests/lab/pair`: on the left it sends numbered messages, on
//! the right it receives them. What happens there it notes in files, by which the times are taken here.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../mirror/agent.rs"]
mod agent;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../mirror/captures.rs"]
mod captures;
mod ends;
mod mirror;
mod notes;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../mirror_lab/programs.rs"]
mod programs;

use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use notes::Notes;
use sluice_tests::lab::cable::{Cable, Faults};

fn main() -> ExitCode {
    let end = std::env::args().nth(1).filter(|argument| argument.starts_with("--end-"));
    match end.as_deref() {
        None => outside(),
        Some(end) => ends::be(end),
    }
}

fn outside() -> ExitCode {
    let start = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let cable = Cable::new(folder.path(), 18);
    let mut machines = ["left", "right"].map(|side| Machine::start(side, folder.path()));
    let mut notes = ["left", "right"].map(|side| Notes::of(folder.path(), side));
    let stories: [(&str, Story); 2] = [
        ("a_cut_cable_a_lossy_one_and_a_killed_peer_cost_time_and_no_message", messages),
        ("a_cut_cable_is_seen_also_while_the_collector_stands_still_and_no_frame_is_lost", frames),
    ];
    let mut failed = 0;
    for (name, story) in stories {
        let [left, right] = &mut notes;
        // The second goes on with the machines as the first leaves them.
        let has_passed = failed == 0
            && std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story(&cable, left, right))).is_ok();
        println!("test {name} ... {}", if has_passed { "ok" } else { "FAILED" });
        failed += usize::from(!has_passed);
    }
    notes.iter().for_each(Notes::stop);
    let ended = machines.iter_mut().all(Machine::has_ended_well);
    let verdict = if failed == 0 && ended { "ok" } else { "FAILED" };
    let seconds = start.elapsed().as_secs_f32();
    let passed = stories.len() - failed;
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; finished in {seconds:.1}s");
    if verdict == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

type Story = fn(&Cable, &mut Notes, &mut Notes);

/// One of the machines.
struct Machine(Child);

impl Machine {
    fn start(side: &str, folder: &Path) -> Self {
        let out = folder.join(format!("{side}-out"));
        std::fs::create_dir(&out).unwrap();
        let myself = std::env::current_exe().unwrap();
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/pair"));
        command.arg(side).arg(folder).arg("--out").arg(out).arg("--").arg(myself).arg(format!("--end-{side}"));
        Self(command.spawn().unwrap())
    }

    fn has_ended_well(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

/// Machines take this long to start, and more where others are at work.
const START: Duration = Duration::from_secs(240);
/// Long enough for anything that happens at all.
const LONG: Duration = Duration::from_secs(60);

fn messages(cable: &Cable, left: &mut Notes, right: &mut Notes) {
    right.wait("ready", START);
    left.wait("ready", START);
    left.tell("begin");
    left.wait("flows", LONG);

    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(1));
        cable.cut();
        let cut = Instant::now();
        let lost = left.wait("lost", LONG);
        let seen = cut.elapsed();
        println!("a cut cable was seen after {seen:?}: {lost}");
        assert!(seen < Duration::from_secs(2), "{seen:?}");
        std::thread::sleep(Duration::from_secs(1));
        cable.mend();
        let mended = Instant::now();
        left.wait("flows", LONG);
        let flows = mended.elapsed();
        println!("messages flowed again {flows:?} after it was mended");
        assert!(flows < Duration::from_secs(2), "{flows:?}");
    }

    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(1));
        right.tell("kill");
        right.wait("killed", LONG);
        let killed = Instant::now();
        let lost = left.wait("lost", LONG);
        println!("a killed peer was seen after {:?}: {lost}", killed.elapsed());
        assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
        right.wait("ready", LONG);
        let back = Instant::now();
        left.wait("flows", LONG);
        println!("messages flowed again {:?} after the peer was back", back.elapsed());
        assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
    }

    let before = cable.carried();
    cable.disturb(Faults { lost: 10, doubled: 5, delayed: 5, delay: Duration::from_millis(3) });
    std::thread::sleep(Duration::from_secs(10));
    cable.disturb(Faults::default());
    let after = cable.carried();
    println!("under faults: {before:?} to {after:?}");
    assert!(after.lost > before.lost && after.doubled > before.doubled && after.delayed > before.delayed);
    left.tell("end");
    let sent: u64 = left.wait("sent", LONG).parse().unwrap();
    let deadline = Instant::now() + LONG;
    loop {
        let noted = right.wait("received", LONG);
        let (received, missing) = noted.split_once(' ').unwrap();
        let (received, missing): (u64, u64) = (received.parse().unwrap(), missing.parse().unwrap());
        if received + missing == sent {
            println!("{received} of {sent} messages, each once and in order; {missing} went with the killed peers");
            // As many as a queue pair has receive requests, at most.
            assert!(sent > 100 && missing <= 2 * 64);
            return;
        }
        assert!(Instant::now() < deadline && received + missing < sent, "{noted} of {sent}");
    }
}

fn frames(cable: &Cable, left: &mut Notes, right: &mut Notes) {
    right.tell("collect");
    right.wait("collects", LONG);
    left.tell("send");
    left.wait("flows", LONG);
    for stands_still in [false, true] {
        std::thread::sleep(Duration::from_secs(1));
        if stands_still {
            right.tell("stand");
            right.wait("stands", LONG);
            // Until nothing may be sent any more.
            std::thread::sleep(Duration::from_secs(2));
        }
        cable.cut();
        let cut = Instant::now();
        let lost = left.wait("lost", LONG);
        let seen = cut.elapsed();
        println!("a cut cable was seen after {seen:?}, the collector stands still: {stands_still}: {lost}");
        assert!(seen < Duration::from_secs(2), "{seen:?}");
        std::thread::sleep(Duration::from_secs(1));
        cable.mend();
        if stands_still {
            right.tell("go");
            right.wait("goes", LONG);
        }
        let mended = Instant::now();
        left.wait("flows", LONG);
        let flows = mended.elapsed();
        println!("frames flowed again {flows:?} after it was mended");
        assert!(flows < Duration::from_secs(2), "{flows:?}");
    }
    std::thread::sleep(Duration::from_secs(1));
    right.tell("end-collector");
    right.wait("killed", LONG);
    let killed = Instant::now();
    left.wait("lost", LONG);
    println!("a killed collector was seen after {:?}", killed.elapsed());
    right.wait("collects", LONG);
    let back = Instant::now();
    left.wait("flows", LONG);
    println!("frames flowed again {:?} after the collector was back", back.elapsed());
    assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());

    left.tell("last");
    let handed = left.wait("handed", LONG);
    let (handed, dropped) = handed.split_once(' ').unwrap();
    let (handed, dropped): (u64, u64) = (handed.parse().unwrap(), dropped.parse().unwrap());
    right.tell("finish");
    let written: u64 = right.wait("written", LONG).parse().unwrap();
    println!("{written} of {handed} frames, each once; {dropped} dropped");
    assert_eq!(written + dropped, handed);
}
