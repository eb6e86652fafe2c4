//! Rules that a process reads back which knows nothing of the flows that they were made from.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use sluice_flow::key::Match;
use sluice_offload_tc::context::Context;
use sluice_offload_tc::dump::{Detail, Lister};
use sluice_offload_tc::label::Label;
use sluice_offload_tc::translate;
use sluice_offload_tc::wire::filter::Filter;
use sluice_tests::scenario::{Scenario, flow_text};

use crate::classifier::{Classifier, LabDevices};
use crate::play::{flow, plain};
use crate::report::Report;

/// The argument with which the program is that process.
pub(crate) const ARGUMENT: &str = "--read-rules";

/// Prints every rule of ours as a flow: its handle, its UFID, and what it matches and does.
pub(crate) fn print() -> ExitCode {
    let devices = LabDevices::find();
    let mut lister = Lister::open().expect("a socket");
    for device in devices.devices() {
        let listed = lister.list(device.hook(), Detail::Full, &mut |view| {
            println!("{}", line(&view.parse()?, &devices));
            Ok(())
        });
        listed.map(drop).expect("a listing");
    }
    ExitCode::SUCCESS
}

fn line(filter: &Filter, context: &dyn Context) -> String {
    let note = |at: usize| filter.flower.actions.get(at).and_then(|action| action.cookie.as_ref());
    let bytes = [0, 1].map(|at| note(at).map_or(&[][..], |cookie| cookie.bytes()));
    let handle = filter.id.handle;
    let Some(label) = Label::read(bytes) else { return format!("{handle} is not ours: {filter:?}") };
    match translate::flow(filter, &label, context) {
        // The UFID is a hash over what is matched, so that the same one says that not a bit of it is another.
        Ok((matching, actions)) if Some(flow(&matching, &actions).ufid) == label.ufid => {
            format!("{handle} {} {}", flow(&matching, &actions).ufid, flow_text(&matching, &actions))
        }
        Ok((matching, actions)) => format!("{handle} is of another UFID: {}", flow_text(&matching, &actions)),
        Err(error) => format!("{handle} cannot be read: {error}: {filter:?}"),
    }
}

/// Has another process read the rules of a scenario, which are in, and be them the flows.
pub(crate) fn compare(classifier: &Classifier, scenario: &Scenario, report: &mut Report) {
    let myself = std::env::current_exe().expect("a program knows its name");
    let output = Command::new(myself).arg(ARGUMENT).output().expect("a program that runs already");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let mut read: BTreeMap<u32, &str> = BTreeMap::new();
    for line in text.lines() {
        let handle = line.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
        if let Some(twice) = read.insert(handle, line) {
            report.fail(format!("{}: two rules of one number\n  {twice}\n  {line}", scenario.name));
        }
    }
    if read.len() != scenario.flows.len() || classifier.installed() != scenario.flows.len() {
        report.fail(format!("{}: {} rules of {} flows", scenario.name, read.len(), scenario.flows.len()));
    }
    for (handle, (matching, actions)) in (1..).zip(&scenario.flows) {
        let given = given(handle, matching, &plain(actions));
        match read.get(&handle) {
            Some(line) if **line == given => report.read_back += 1,
            line => report.misread(&format!("{}: {given}", scenario.name), line.unwrap_or(&"nothing")),
        }
    }
}

fn given(handle: u32, matching: &Match, actions: &sluice_flow::action::ActionList) -> String {
    format!("{handle} {} {}", flow(matching, actions).ufid, flow_text(matching, actions))
}
