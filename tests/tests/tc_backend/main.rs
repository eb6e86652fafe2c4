//! The tc backend in a real kernel, with real packets between network namespaces, one story each.
//!
//! It needs to be root in a kernel with all drivers, so the test runs itself again in the virtual machine of
//! `tests/lab/run`, each story in namespaces of its own. Arguments that are no options pick the stories whose names contain
//! one of them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod adoption;
mod chains;
mod conforming;
mod device;
mod exclusive;
mod guards;
mod installing;
mod leftovers;
mod losing;
mod mirrors;
mod network;
mod ports;
mod refusing;

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use network::Network;

/// A story by its name.
type Story = (&'static str, fn(&Network));
/// A story that is to be played.
type Play = Box<dyn Fn(&Network) + Send + Sync>;

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
    command.arg("--").arg(myself).args(std::env::args_os().skip(1));
    let code = command.status().expect("tests/lab/run can be run").code();
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn inside() -> ExitCode {
    let start = Instant::now();
    let filters: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    println!("kernel {}", std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim());
    network::load_modules();
    let stories = [
        installing::STORIES,
        chains::STORIES,
        guards::STORIES,
        mirrors::STORIES,
        adoption::STORIES,
        exclusive::STORIES,
        losing::STORIES,
        ports::STORIES,
        leftovers::STORIES,
        refusing::STORIES,
    ];
    let own = stories.into_iter().flatten().map(|(name, story)| (*name, Box::new(*story) as Play));
    let wanted: Vec<_> = own.chain(conforming::stories()).filter(|(name, _)| is_wanted(name)).collect();
    let (mut passed, mut failed) = (0, vec![]);
    for (name, has_passed) in play(&wanted) {
        if has_passed {
            passed += 1;
        } else {
            println!("failed: {name}");
            failed.push(name);
        }
    }
    let verdict = if failed.is_empty() && passed > 0 { "ok" } else { "FAILED" };
    let seconds = start.elapsed().as_secs_f32();
    println!(
        "\ntest result: {verdict}. {passed} passed; {} failed; 0 ignored; finished in {seconds:.1}s",
        failed.len()
    );
    if verdict == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays stories, as many at a time as there are processors, and says of each whether it went well.
fn play(stories: &[(&'static str, Play)]) -> Vec<(&'static str, bool)> {
    let next = AtomicUsize::new(0);
    let played = Mutex::new(vec![]);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((name, story)) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The thread alone enters the namespace, and what it complains of comes under its name.
                    let thread = std::thread::Builder::new().name((*name).to_owned());
                    let played_alone = thread.spawn_scoped(scope, || story(&Network::new()));
                    let has_passed = played_alone.expect("a thread").join().is_ok();
                    println!("test {name} ... {}", if has_passed { "ok" } else { "FAILED" });
                    played.lock().unwrap().push((*name, has_passed));
                }
            });
        }
    });
    played.into_inner().unwrap()
}
