//! The network devices of a real kernel, as `sluice_netdev` sees, follows and makes them.
//!
//! It needs to be root in a kernel with all drivers, so the test runs itself again in the virtual machine of
//! `tests/lab/run`, each story in a network namespace of its own. Arguments that are no options pick the stories whose names
//! contain one of them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod discovery;
mod filters;
mod ingress;
mod lag;
mod monitor;
mod netdevsim;
mod next_hops;
mod overrun;
mod space;
mod tunnels;

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use sluice_tests::lab::netdevsim as simulator;
use space::Space;

/// A story by its name.
type Story = (&'static str, fn(&Space));

/// Stories under the names of their functions.
macro_rules! stories {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const STORIES: &[crate::Story] = &[$((stringify!($name), $name)),+];
    };
}
pub(crate) use stories;

fn main() -> ExitCode {
    // `tests/lab/run` says with this where to leave files.
    if std::env::var_os("LAB_OUT").is_some() { inside() } else { outside() }
}

fn outside() -> ExitCode {
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/run"));
    command.arg("--").arg(myself).arg(simulator::argument()).args(std::env::args_os().skip(1));
    let code = command.status().expect("tests/lab/run can be run").code();
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn inside() -> ExitCode {
    let start = Instant::now();
    let filters: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    println!("kernel {}", std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
    let stories = [
        discovery::STORIES,
        monitor::STORIES,
        filters::STORIES,
        overrun::STORIES,
        tunnels::STORIES,
        ingress::STORIES,
        lag::STORIES,
        next_hops::STORIES,
    ];
    let has_netdevsim = simulator::load();
    let simulated = netdevsim::STORIES.iter().filter(|(name, _)| is_wanted(name));
    let mut wanted: Vec<_> = stories.into_iter().flatten().filter(|(name, _)| is_wanted(name)).collect();
    let mut sum = Sum::default();
    if has_netdevsim {
        wanted.extend(simulated);
    } else {
        for (name, _) in simulated {
            println!("test {name} ... ignored, there is no netdevsim for this kernel");
            sum.skipped += 1;
        }
    }
    play(&wanted, &mut sum);
    sum.finish(start)
}

/// Plays stories, as many at a time as there are processors: most of the time goes to starting programs.
fn play(stories: &[&Story], sum: &mut Sum) {
    let next = AtomicUsize::new(0);
    let sum = Mutex::new(sum);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&&(name, story)) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The thread alone enters the namespace, and what it complains of comes under its name.
                    let thread = std::thread::Builder::new().name(name.into());
                    let played = thread.spawn(move || story(&Space::new(name))).expect("a thread").join();
                    sum.lock().unwrap().add(name, played.is_ok());
                }
            });
        }
    });
}

#[derive(Default)]
struct Sum {
    passed: usize,
    skipped: usize,
    failed: Vec<&'static str>,
}

impl Sum {
    fn add(&mut self, name: &'static str, has_passed: bool) {
        println!("test {name} ... {}", if has_passed { "ok" } else { "FAILED" });
        if has_passed {
            self.passed += 1;
        } else {
            self.failed.push(name);
        }
    }

    fn finish(self, start: Instant) -> ExitCode {
        let Self { passed, skipped, failed } = self;
        for name in &failed {
            println!("failed: {name}");
        }
        let verdict = if failed.is_empty() && passed > 0 { "ok" } else { "FAILED" };
        let seconds = start.elapsed().as_secs_f32();
        println!(
            "\ntest result: {verdict}. {passed} passed; {} failed; {skipped} ignored; finished in {seconds:.1}s",
            failed.len()
        );
        if verdict == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
