//! Generated flows: what the kernel makes of each that is a rule, and whether the kernel's own listing is the flow again.

use std::collections::BTreeMap;

use sluice_flow::action::ActionList;
use sluice_flow::key::Match;
use sluice_flow::refusal::Refusal;
use sluice_tests::generate::{BEYOND_OVS, FlowerFlows};
use sluice_tests::scenario::{Scenario, flow_text};

use crate::classifier::{Classifier, EXISTS};
use crate::report::Report;
use crate::{expected, listing, play, reader};

/// As many rules as are read back at a time.
const BATCH: usize = 500;
/// Of so many scenarios, the rules of one are held against what `tc` shows, with their counters.
const SHOWN: u64 = 16;

/// Plays generated scenarios until there were enough rules.
pub(crate) fn play(
    classifier: &mut Classifier,
    report: &mut Report,
    (seed, rules): (u64, usize),
    is_wanted: &dyn Fn(&str) -> bool,
) {
    println!("\ngenerated flows of seed {seed} (--seed={seed} makes them again)");
    let mut sum = Sum::default();
    let mut generated = FlowerFlows::new(seed);
    while sum.rules < rules {
        let (scenario, mut packets) = generated.scenario();
        let mut taken = play::install(classifier, &scenario, &mut |flow, refusal| {
            sum.refuse(report, &scenario.name, flow, refusal)
        });
        sum.rules += taken.flows.len();
        sum.beyond_ovs += taken.flows.iter().filter(|(full, _)| looks_beyond_ovs(full)).count();
        if !is_wanted(&taken.name) || taken.flows.is_empty() {
            continue;
        }
        for (full, _) in &taken.flows {
            let [hit, miss] = packets.of(full);
            sum.hits += usize::from(hit.is_some());
            sum.misses += usize::from(miss.is_some());
            taken.packets.extend(hit.into_iter().chain(miss));
        }
        if let Some(counts) = play::compare(classifier, taken, report) {
            sum.hit += counts.len();
        }
        if generated.drawn() % SHOWN == 1 {
            listing::compare(classifier, &scenario.name, report);
        }
    }
    sum.print(generated.drawn());
    if sum.beyond_ovs == 0 {
        report.fail("no generated rule matches what OVS does not have".into());
    }
}

/// Whether a match has a field that OVS does not have.
fn looks_beyond_ovs(full: &Match) -> bool {
    let mut fields = BEYOND_OVS.iter().flat_map(|attribute| attribute.fields());
    fields.any(|spec| full.mask.get(spec.field) != 0)
}

/// Has rules be read back from the kernel by another process, which knows nothing of the flows.
pub(crate) fn read_back(classifier: &mut Classifier, report: &mut Report, (seed, count): (u64, usize)) {
    let mut generated = FlowerFlows::new(!seed);
    let name = format!("generated {count} for reading, of seed {seed}");
    let (mut rules, mut refusals) = (0, Sum::default());
    while rules < count {
        let mut batch = vec![];
        while batch.len() < BATCH {
            batch.extend(generated.flows());
        }
        let scenario = Scenario { flows: batch, ..Scenario::new(name.clone()) };
        let taken = play::install(classifier, &scenario, &mut |flow, refusal| match refusal {
            // Two of them match the same.
            Refusal::Kernel { errno: EXISTS, .. } => {}
            Refusal::Kernel { .. } => refusals.refuse(report, &name, flow, refusal),
            _ => {}
        });
        rules += taken.flows.len();
        reader::compare(classifier, &taken, report);
    }
}

#[derive(Default)]
struct Sum {
    rules: usize,
    /// Rules that match what OVS does not have.
    beyond_ovs: usize,
    hits: usize,
    misses: usize,
    /// Rules that counted a packet.
    hit: usize,
    refusals: BTreeMap<String, usize>,
}

impl Sum {
    fn refuse(&mut self, report: &mut Report, name: &str, (full, actions): &(Match, ActionList), refusal: &Refusal) {
        *self.refusals.entry(refusal.to_string()).or_default() += 1;
        if matches!(refusal, Refusal::Kernel { .. }) && expected::refusal(refusal).is_none() {
            report.fail(format!("{name}: {refusal}\n  {}", flow_text(full, actions)));
        }
    }

    fn print(&self, scenarios: u64) {
        let Self { rules, beyond_ovs, hits, misses, hit, refusals } = self;
        println!("\ngenerated flows that are no rules, and why:");
        refusals.iter().for_each(|(reason, count)| println!("{count:>8} {reason}"));
        println!(
            "{rules} generated flows of {scenarios} scenarios were put in, {beyond_ovs} with fields that OVS does not have; {hits} \
             packets made to hit, {misses} to miss by one bit; {hit} rules counted packets"
        );
    }
}
