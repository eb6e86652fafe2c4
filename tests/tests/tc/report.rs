//! One line for each scenario, and a sum that `cargo test` could have written.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Instant;

use sluice_flow::refusal::Refusal;
use sluice_tests::scenario::{Scenario, flow_text, hex};

use crate::expected;

pub(crate) struct Report {
    start: Instant,
    equal: usize,
    known: usize,
    packets: usize,
    /// Rules that were read back from the kernel as the flows that they were made from.
    pub(crate) read_back: usize,
    /// Rules that tc shows as we do, and those that it fails to show.
    shown: usize,
    not_shown: usize,
    failed: Vec<String>,
    refusals: BTreeMap<String, usize>,
    left_out: BTreeMap<&'static str, usize>,
    used: BTreeSet<usize>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            equal: 0,
            known: 0,
            packets: 0,
            read_back: 0,
            shown: 0,
            not_shown: 0,
            failed: vec![],
            refusals: BTreeMap::new(),
            left_out: BTreeMap::new(),
            used: BTreeSet::new(),
        }
    }
}

impl Report {
    /// Both did the same.
    pub(crate) fn equal(&mut self, scenario: &Scenario, frames: usize) {
        self.equal += 1;
        self.packets += scenario.packets.len();
        println!("equal    {} ({} packets in, {frames} out)", scenario.name, scenario.packets.len());
    }

    /// A packet is not compared.
    pub(crate) fn left_out(&mut self, reason: &'static str) -> bool {
        *self.left_out.entry(reason).or_default() += 1;
        false
    }

    /// A flow has no rule.
    pub(crate) fn refused(&mut self, name: &str, refusal: &Refusal) {
        *self.refusals.entry(refusal.to_string()).or_default() += 1;
        if matches!(refusal, Refusal::Kernel { .. }) {
            self.otherwise(name, "the kernel refuses", &refusal.to_string());
        } else {
            println!("refused  {name}: {refusal}");
        }
    }

    /// The software NIC alone refuses a flow.
    pub(crate) fn only_tc(&mut self, name: &str, refusal: &Refusal) {
        println!("not compared: {name}: {refusal}");
    }

    /// Something else came out.
    pub(crate) fn differs(&mut self, scenario: &Scenario, packet: usize, told: &str) {
        let (port, frame) = &scenario.packets[packet];
        let details = format!("packet {packet} in at {port}: {}\n{told}", hex(frame));
        self.otherwise(&scenario.name, "differs", &(flows(scenario) + &details));
    }

    /// Something else was counted.
    pub(crate) fn miscounted(&mut self, scenario: &Scenario, details: &str) {
        self.otherwise(&scenario.name, "counts otherwise", &(flows(scenario) + details));
    }

    /// A rule that the kernel shows is another flow.
    pub(crate) fn misread(&mut self, given: &str, read: &str) {
        self.fail(format!("misread: given {given}\n  read {read}"));
    }

    /// Something else comes out of OVS, for which there are the reasons that there are with the software NIC.
    pub(crate) fn peer_differs(&mut self, name: &str, details: &str) {
        self.otherwise(name, "ends otherwise in ovs-vswitchd", details);
    }

    /// Rules are as tc shows them, too.
    pub(crate) fn shown_alike(&mut self, rules: usize) {
        self.shown += rules;
    }

    /// Rules cannot be shown by tc.
    pub(crate) fn not_shown(&mut self, rules: usize) {
        self.not_shown += rules;
    }

    /// `tc` shows a rule otherwise than we do.
    pub(crate) fn shown_otherwise(&mut self, name: &str, details: &str) {
        self.fail(format!("{name}: tc shows a rule otherwise\n  {details}"));
    }

    /// Something that must not be.
    pub(crate) fn fail(&mut self, what: String) {
        println!("FAILED   {what}");
        self.failed.push(what.lines().next().unwrap_or_default().to_owned());
    }

    /// Something that is as it should be.
    pub(crate) fn pass(&mut self, what: &str) {
        self.equal += 1;
        println!("ok       {what}");
    }

    fn otherwise(&mut self, name: &str, what: &str, details: &str) {
        if let Some((line, reason)) = expected::reason(name) {
            self.used.insert(line);
            self.known += 1;
            println!("{what} {name} [known: {reason}]");
        } else {
            self.fail(format!("{name} {what}\n{details}"));
        }
    }

    /// How many scenarios came out how.
    pub(crate) fn counts(&self) -> [(&'static str, usize); 4] {
        let refused = self.refusals.values().sum();
        [
            ("equal", self.equal),
            ("known to differ", self.known),
            ("refused flows", refused),
            ("failed", self.failed.len()),
        ]
    }

    /// The sum. What is known to be otherwise is a test that passed.
    pub(crate) fn finish(mut self, has_played_all: bool) -> ExitCode {
        if has_played_all {
            let needless = expected::needless(&self.used);
            self.failed.extend(needless.into_iter().map(|line| format!("nothing comes under the line {line:?}")));
        }
        println!("\nrefused, and why:");
        self.refusals.iter().for_each(|(reason, count)| println!("{count:>8} {reason}"));
        println!("\npackets that were not compared, and why:");
        self.left_out.iter().for_each(|(reason, count)| println!("{count:>8} {reason}"));
        let seconds = self.start.elapsed().as_secs_f32();
        let Self { equal, known, packets, read_back, shown, not_shown, failed, .. } = self;
        println!("\n{packets} packets in {seconds:.1} s; {equal} scenarios are equal, {known} known to be otherwise");
        println!("{read_back} rules were read back from the kernel as the flows that they were made from");
        println!("{shown} rules are the same in what tc shows; {not_shown} are beside one that it fails to show");
        failed.iter().for_each(|name| println!("failed: {name}"));
        let verdict = if failed.is_empty() && equal > 0 { "ok" } else { "FAILED" };
        println!("\ntest result: {verdict}. {} passed; {} failed; 0 ignored", equal + known, failed.len());
        if verdict == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn flows(scenario: &Scenario) -> String {
    scenario.flows.iter().map(|(matching, actions)| format!("    {}\n", flow_text(matching, actions))).collect()
}
