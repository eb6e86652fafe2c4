//! The tc backend's rules in a real kernel: the same flows and packets as for the software NIC, and out of every port the
//! same bytes; the rules read back as the flows that they were made from; counters of what was sent.
//!
//! The kernel's flower classifier is not in every machine's kernel, so the test runs itself again in the virtual machine of
//! `tests/lab/run`, and then a part of it in one with a newer kernel. Arguments that are no options pick the scenarios whose
//! names contain one of them, on one kernel. The scenarios are those with which the software NIC is held against the Open
//! vSwitch module, and generated ones, which `--seed=` makes again.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

#[path = "../kernel/actions.rs"]
mod actions;
mod beyond_ovs;
mod classifier;
#[path = "../kernel/conntrack.rs"]
mod conntrack;
mod expected;
#[path = "../kernel/flows.rs"]
mod flows;
mod generated;
mod guards;
mod helpers;
mod incomparable;
mod install;
mod iproute;
mod kernels;
#[path = "../kernel/keys.rs"]
mod keys;
mod listing;
mod meters;
mod mirrors;
#[path = "../kernel/packets.rs"]
mod packets;
mod peer;
mod play;
mod reader;
mod refusals;
mod report;
mod tunnel_flags;
#[path = "../kernel/tunnels.rs"]
mod tunnels;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use sluice_tests::scenario::Scenario;

/// Of the generated flows, unless `--seed=` says another one.
const SEED: u64 = 1;
/// How many flows are generated, unless `--generated=` says another number.
const GENERATED: usize = 1000;
/// Asks for a part of everything, for a kernel that is not the first one.
const SHORT: &str = "--short";

/// How much of everything is played.
struct Extent {
    /// Generated flows that get their packets.
    played: usize,
    /// Generated flows that are read back by another process.
    read: usize,
    /// Of a scenario with many packets, every so manieth.
    step: usize,
    /// Of the scenarios, every so manieth is played to ovs-vswitchd, too; all if that is asked for by name (`peer`).
    peer_step: usize,
}

/// Everything, with so many generated flows.
const fn whole(generated: usize) -> Extent {
    Extent { played: generated, read: generated, step: 1, peer_step: 5 }
}
const PART: Extent = Extent { played: 100, read: 200, step: 32, peer_step: 50 };

fn main() -> ExitCode {
    // `tests/lab/run` says with this where to leave files.
    match std::env::var_os("LAB_OUT") {
        Some(folder) => inside(Path::new(&folder)),
        None => outside(),
    }
}

/// Everything on Debian's kernel, and on a newer one a part of it; of a single scenario, as `LAB_KERNEL` says.
fn outside() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let folders = ["first", "newer"].map(|name| Path::new(env!("CARGO_TARGET_TMPDIR")).join("tc").join(name));
    folders.iter().for_each(|folder| std::fs::create_dir_all(folder).expect("a folder for what is found"));
    let [first, newer] = &folders;
    let mut code = in_the_lab(first, None, &arguments);
    let is_all = arguments.iter().all(|argument| argument.starts_with('-'));
    if is_all && std::env::var_os("LAB_KERNEL").is_none() {
        match newer_kernel() {
            Some(kernel) => {
                let more = [arguments, vec![SHORT.to_owned()]].concat();
                code = code.max(in_the_lab(newer, Some(&kernel), &more));
            }
            None => println!("\ntest result: ok. 0 passed; 0 failed; 1 ignored (there is no newer kernel)"),
        }
        let table = kernels::table(&[first, newer]);
        println!("\n{table}");
    }
    ExitCode::from(code)
}

/// What `tests/lab/kernel` brings.
fn newer_kernel() -> Option<String> {
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/kernel")).stderr(Stdio::inherit()).output();
    let output = output.expect("tests/lab/kernel can be run");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn in_the_lab(folder: &Path, kernel: Option<&str>, arguments: &[String]) -> u8 {
    let myself = std::env::current_exe().expect("a program knows its name");
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/run"));
    command.arg("--out").arg(folder).arg("--").arg(myself).args(arguments);
    if let Some(kernel) = kernel {
        command.env("LAB_KERNEL", kernel);
    }
    let code = command.status().expect("tests/lab/run can be run").code();
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn inside(folder: &Path) -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    if has(reader::ARGUMENT) {
        return reader::print();
    }
    println!("kernel {}", kernels::full_release());
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    let number = |name| arguments.iter().find_map(|argument| argument.strip_prefix(name)?.parse::<usize>().ok());
    let seed = number("--seed=").map_or(SEED, |seed| seed as u64);
    let extent = if has(SHORT) { PART } else { whole(number("--generated=").unwrap_or(GENERATED)) };
    let mut report = report::Report::default();
    let mut classifier = classifier::Classifier::open();
    for mut scenario in scenarios().into_iter().filter(|scenario| is_wanted(&scenario.name)) {
        if scenario.packets.len() > 4 * extent.step {
            scenario.packets = scenario.packets.into_iter().step_by(extent.step).collect();
        }
        play::play(&mut classifier, &scenario, &mut report);
    }
    install::play(&mut classifier, &mut report, &is_wanted);
    for play in [meters::play, guards::play, tunnel_flags::play, mirrors::play, refusals::play] {
        play(&mut classifier, &mut report, &is_wanted);
    }
    if filters.is_empty() || filters.iter().any(|filter| filter.contains("generated")) {
        generated::play(&mut classifier, &mut report, (seed, extent.played), &is_wanted);
    }
    if is_wanted("read back") {
        generated::read_back(&mut classifier, &mut report, (seed, extent.read));
    }
    if filters.is_empty() || filters.iter().any(|filter| *filter == "peer") {
        let step = if filters.is_empty() { extent.peer_step } else { 1 };
        peer::play(&mut classifier, &mut report, scenarios().iter().step_by(step));
    }
    if is_wanted("kernel table") {
        classifier.clear();
        kernels::write(&mut classifier, folder, &mut report);
    }
    report.finish(filters.is_empty() && !has(SHORT))
}

fn scenarios() -> Vec<Scenario> {
    [
        keys::scenarios(),
        beyond_ovs::scenarios(),
        actions::scenarios(),
        conntrack::scenarios(),
        tunnels::scenarios(),
        helpers::scenarios(),
    ]
    .concat()
}
