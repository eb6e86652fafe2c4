//! The tc backend's rules in a real kernel: the same flows and packets as for the software NIC, and out of every port the
//! same bytes; the rules read back as the flows that they were made from; counters of what was sent.
//!
//! The kernel's flower classifier is not in every machine's kernel, so the test runs itself again in the virtual machine of
//! `tests/lab/run`. Arguments that are no options pick the scenarios whose names contain one of them. The scenarios are
//! those with which the software NIC is held against the Open vSwitch module.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

#[path = "../kernel/actions.rs"]
mod actions;
mod classifier;
#[path = "../kernel/conntrack.rs"]
mod conntrack;
mod expected;
#[path = "../kernel/flows.rs"]
mod flows;
mod generated;
mod incomparable;
mod install;
#[path = "../kernel/keys.rs"]
mod keys;
mod kernels;
mod listing;
#[path = "../kernel/packets.rs"]
mod packets;
mod play;
mod reader;
mod report;
#[path = "../kernel/tunnels.rs"]
mod tunnels;

use std::process::{Command, ExitCode};

use sluice_tests::scenario::Scenario;

/// Of the generated flows, unless `--seed=` says another one.
const SEED: u64 = 1;

fn main() -> ExitCode {
    // `tests/lab/run` says with this where to leave files.
    if std::env::var_os("LAB_OUT").is_some() { inside() } else { outside() }
}

fn outside() -> ExitCode {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/lab/run");
    let myself = std::env::current_exe().expect("a program knows its name");
    let status = Command::new(script).arg("--").arg(myself).args(std::env::args_os().skip(1)).status();
    let code = status.expect("tests/lab/run can be run").code();
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn inside() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == reader::ARGUMENT) {
        return reader::print();
    }
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(*filter));
    let seed = arguments.iter().find_map(|argument| argument.strip_prefix("--seed=")?.parse().ok()).unwrap_or(SEED);
    let mut report = report::Report::default();
    let mut classifier = classifier::Classifier::open();
    for scenario in scenarios().iter().filter(|scenario| is_wanted(&scenario.name)) {
        play::play(&mut classifier, scenario, &mut report);
    }
    install::play(&mut classifier, &mut report, &is_wanted);
    if filters.is_empty() || filters.iter().any(|filter| filter.contains("generated")) {
        generated::play(&mut classifier, &mut report, seed, &is_wanted);
    }
    if is_wanted("read back") {
        generated::read_back(&mut classifier, &mut report, seed);
    }
    report.finish(filters.is_empty())
}

fn scenarios() -> Vec<Scenario> {
    [keys::scenarios(), actions::scenarios(), conntrack::scenarios(), tunnels::scenarios()].concat()
}
