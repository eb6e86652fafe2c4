//! The Linux kernel's Open vSwitch module as the judge of the software NIC: the same flows and the same packets, and out
//! of every port the same bytes.
//!
//! The module is not in every machine's kernel, so the test runs itself again in the virtual machine of `tests/lab/run`.
//! Arguments that are no options pick the scenarios whose names contain one of them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

mod actions;
mod combined;
mod conntrack;
mod dump;
mod errors;
mod expected;
mod feed;
mod flows;
mod fragments;
mod generated;
mod keys;
mod lives;
mod packets;
mod picks;
mod report;
mod tunnels;

use std::process::{Command, ExitCode};

use sluice_tests::lab::{Judge, Outcome};
use sluice_tests::scenario::Scenario;

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
    let filters: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    let mut judge = Judge::open();
    let mut report = report::Report::default();
    let scenarios = scenarios();
    let mut taken = vec![];
    for scenario in scenarios.iter().filter(|scenario| is_wanted(&scenario.name)) {
        let outcome = judge.play(scenario);
        report.add(scenario, &outcome);
        if !matches!(outcome, Outcome::RefusedByKernel(..)) {
            taken.push(scenario);
        }
    }
    let picks = picks::play(&mut judge, &mut report, &is_wanted);
    taken.extend(&picks);
    if is_wanted("generated") {
        generated::play(&mut judge, &mut report);
    }
    if filters.is_empty() {
        report.has_played_all();
    }
    let flows = dump::flows(&taken);
    let dump = judge.dump(&flows);
    report.add_dump(dump::compare(&flows, &dump));
    feed::compare(&dump, &mut report);
    report.finish()
}

fn scenarios() -> Vec<Scenario> {
    [
        keys::scenarios(),
        actions::scenarios(),
        conntrack::scenarios(),
        errors::scenarios(),
        combined::scenarios(),
        lives::scenarios(),
        fragments::scenarios(),
        tunnels::scenarios(),
    ]
    .concat()
}
