//! One line for each scenario, and a sum that `cargo test` could have written.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use sluice_tests::lab::Outcome;
use sluice_tests::scenario::{Scenario, flow_text, hex};

use crate::dump::Understood;
use crate::expected::{Known, needless, reason};

pub(crate) struct Report {
    start: Instant,
    equal: usize,
    known: usize,
    failed: Vec<String>,
    /// Lines of what is expected that were of use.
    used: BTreeSet<usize>,
    packets: usize,
    /// Flows that the module understood, and those of which that cannot be said.
    understood: usize,
    unread: usize,
}

impl Default for Report {
    fn default() -> Self {
        let used = BTreeSet::new();
        Self { start: Instant::now(), equal: 0, known: 0, failed: vec![], used, packets: 0, understood: 0, unread: 0 }
    }
}

impl Report {
    pub(crate) fn add(&mut self, scenario: &Scenario, outcome: &Outcome) {
        let name = &scenario.name;
        self.packets += scenario.packets.len();
        match outcome {
            Outcome::Equal(frames) => {
                self.equal += 1;
                println!("equal    {name} ({} packets in, {frames} out)", scenario.packets.len());
            }
            Outcome::Differs(difference) => {
                let known = reason(name, Known::Differs);
                self.otherwise(name, "differs", known, &format!("at packet {}", difference.packet));
                if known.is_none() {
                    for (matching, actions) in &scenario.flows {
                        println!("  {}", flow_text(matching, actions));
                    }
                    let (port, frame) = &scenario.packets[difference.packet];
                    println!("  packet {} in at {port}: {}\n{difference}", difference.packet, hex(frame));
                }
            }
            Outcome::RefusedByKernel(refusal, ours) => {
                let ours = match ours {
                    Ok(()) => "ours takes it".into(),
                    Err(refusal) => format!("so does ours: {refusal}"),
                };
                let known = reason(name, Known::KernelRefuses);
                self.otherwise(name, "kernel refuses", known, &format!("{refusal}; {ours}"));
            }
            Outcome::RefusedByOurs(refusal) => {
                let known = reason(name, Known::OursRefuses);
                self.otherwise(name, "ours refuses", known, &refusal.to_string());
            }
        }
    }

    /// Notes whether the module understood the flows.
    pub(crate) fn add_dump(&mut self, dump: Understood) {
        self.understood += dump.equal;
        self.unread += dump.unread.len();
        for words in dump.unread {
            println!("  dump not read: {words}");
        }
        for (given, dumped) in dump.different {
            println!("MISUNDERSTOOD\n  given {given}\n  taken {dumped}");
            self.failed.push(format!("misunderstood: {given}"));
        }
    }

    fn otherwise(&mut self, name: &str, what: &str, known: Option<(usize, &str)>, details: &str) {
        if let Some((line, reason)) = known {
            self.used.insert(line);
            self.known += 1;
            println!("{what:8} {name}: {details} [known: {reason}]");
        } else {
            self.failed.push(name.to_owned());
            println!("{:8} {name}: {details}", what.to_uppercase());
        }
    }

    /// Notes something else that must not be.
    pub(crate) fn fail(&mut self, what: String) {
        println!("{what}");
        self.failed.push(what);
    }

    /// Has every line of what is expected be of use, after all scenarios were played.
    pub(crate) fn has_played_all(&mut self) {
        self.failed
            .extend(needless(&self.used).into_iter().map(|line| format!("nothing comes under the line {line:?}")));
    }

    /// The sum. What is known to be otherwise is a test that passed.
    pub(crate) fn finish(self) -> ExitCode {
        let Self { start, equal, known, failed, packets, understood, unread, .. } = self;
        let seconds = start.elapsed().as_secs_f32();
        println!("\n{packets} packets in {seconds:.1} s; {equal} scenarios are equal, {known} known to be otherwise");
        println!(
            "{understood} flows were read back from the kernel as they were given, {unread} could not be read by our parser"
        );
        for name in &failed {
            println!("failed: {name}");
        }
        let verdict = if failed.is_empty() && equal > 0 { "ok" } else { "FAILED" };
        println!("\ntest result: {verdict}. {} passed; {} failed; 0 ignored", equal + known, failed.len());
        if verdict == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
