//! The mirror's verbs, connections and packet rings on Soft-RoCE in a real kernel, one story each.
//!
//! It needs to be root in a kernel with all drivers, so the test runs itself again in the virtual machine of `tests/lab/run`.
//! Arguments that are no options pick the stories whose names contain one of them. Those that start programs, the mirror's own and other
//! people's daemons, take minutes, and are played with `--processes` only; with `--pair`, what needs a second machine for the collector, in
//! those of `tests/lab/pair`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../mirror/agent.rs"]
mod agent;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../mirror/captures.rs"]
mod captures;
mod changes;
mod collecting;
mod collector;
mod connecting;
mod daemons;
mod far;
mod independent;
mod killed;
mod lab;
mod leaving;
mod messages;
mod programs;
#[path = "../verbs/rig.rs"]
mod rig;
mod rings;
mod samples;
mod site;
mod wires;

use std::panic::catch_unwind;
use std::process::{Command, ExitCode};
use std::time::Instant;

use sluice_tests::lab::soft_roce::DEVICE;

/// A story by its name.
type Story = (&'static str, fn());

/// Stories under the names of their functions.
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const STORIES: &[crate::Story] = &[$((stringify!($name), $name)),+];
    };
}
pub(crate) use stories;

fn main() -> ExitCode {
    if let Some(port) = std::env::args().skip_while(|argument| argument != leaving::PEER).nth(1) {
        return leaving::be_a_peer(&port);
    }
    let is_pair = std::env::args().any(|argument| argument == "--pair");
    match far::side().as_deref() {
        Some("right") => return far::serve(),
        Some(_) => return inside(&[daemons::IN_TWO_MACHINES], far::begin),
        None if is_pair => return far::both_machines(),
        None => {}
    }
    // `tests/lab/run` says with this where to leave files.
    if std::env::var_os("LAB_OUT").is_none() {
        return outside();
    }
    let with_processes = std::env::args().any(|argument| argument == "--processes");
    let stories: &[&[Story]] = match with_processes {
        true => &[killed::STORIES, changes::STORIES, daemons::STORIES],
        false => &[messages::STORIES, connecting::STORIES, leaving::STORIES, rings::STORIES, samples::STORIES],
    };
    inside(stories, lab::prepare)
}

fn outside() -> ExitCode {
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/run"));
    command.arg("--").arg(myself).args(std::env::args_os().skip(1));
    let code = command.status().expect("tests/lab/run can be run").code();
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn inside(stories: &[&[Story]], prepare: fn()) -> ExitCode {
    let start = Instant::now();
    let filters: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    println!("kernel {}", std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
    prepare();
    let (mut passed, mut failed) = (0, vec![]);
    // One after the other, for they share the device.
    for (name, story) in stories.iter().copied().flatten().filter(|(name, _)| is_wanted(name)) {
        let at = Instant::now();
        let has_passed = catch_unwind(story).is_ok();
        let seconds = at.elapsed().as_secs_f32();
        println!("test {name} ... {} ({seconds:.1} s)", if has_passed { "ok" } else { "FAILED" });
        if has_passed { passed += 1 } else { failed.push(name) }
    }
    if far::side().is_some() {
        far::end();
    }
    failed.iter().for_each(|name| println!("failed: {name}"));
    let verdict = if failed.is_empty() && passed > 0 { "ok" } else { "FAILED" };
    let seconds = start.elapsed().as_secs_f32();
    println!(
        "\ntest result: {verdict}. {passed} passed; {} failed; 0 ignored; finished in {seconds:.1}s",
        failed.len()
    );
    if verdict == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
