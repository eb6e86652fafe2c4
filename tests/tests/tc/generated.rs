//! Generated flows: what the kernel makes of each that is a rule, and whether the kernel's own listing is the flow again.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sluice_flow::action::{ActionKind, ActionList};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::refusal::Refusal;
use sluice_tests::generate::packet::{self, Packet};
use sluice_tests::generate::{BEYOND_OVS, Feature, Form, Profile, fields_of, flows};
use sluice_tests::lab::GENEVE;
use sluice_tests::scenario::{Scenario, flow_text};

use crate::classifier::{Classifier, EXISTS};
use crate::report::Report;
use crate::{expected, listing, play, reader};

/// As many rules as are read back at a time.
const BATCH: usize = 500;
/// Of so many scenarios, the rules of one are held against what `tc` shows, with their counters.
const SHOWN: u64 = 16;
/// Tries to find a bit by which a packet misses.
const TRIES: u32 = 8;

/// Plays generated scenarios until there were enough rules.
pub(crate) fn play(
    classifier: &mut Classifier,
    report: &mut Report,
    (seed, rules): (u64, usize),
    is_wanted: &dyn Fn(&str) -> bool,
) {
    println!("\ngenerated flows of seed {seed} (--seed={seed} makes them again)");
    let strategy = flows(&Arc::new(played()));
    let mut sum = Sum::default();
    let mut number = 0;
    while sum.rules < rules {
        let name = format!("generated {number} of seed {seed}");
        let (mut runner, mut draw) = (runner(seed, number), Draw(seed ^ number.rotate_left(32)));
        let drawn = strategy.new_tree(&mut runner).expect("nothing is rejected").current();
        let flows = drawn.into_iter().map(|flow| (at_a_port(flow.matching), flow.actions)).collect();
        let scenario = Scenario { flows, ..Scenario::new(name.clone()) };
        let shows = number % SHOWN == 0;
        number += 1;
        let mut taken =
            play::install(classifier, &scenario, &mut |flow, refusal| sum.refuse(report, &name, flow, refusal));
        sum.rules += taken.flows.len();
        sum.beyond_ovs += taken.flows.iter().filter(|(full, _)| looks_beyond_ovs(full)).count();
        if !is_wanted(&taken.name) || taken.flows.is_empty() {
            continue;
        }
        taken.packets = taken.flows.iter().flat_map(|(full, _)| sum.packets(full, &mut draw)).collect();
        if let Some(counts) = play::compare(classifier, taken, report) {
            sum.hit += counts.len();
        }
        if shows {
            listing::compare(classifier, &name, report);
        }
    }
    sum.print(number);
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
    let (strategies, mut number) = ([flows(&Arc::new(played())), flows(&Arc::new(sayable()))], 0);
    let name = format!("generated {count} for reading, of seed {seed}");
    let (mut rules, mut refusals) = (0, Sum::default());
    while rules < count {
        let mut batch = vec![];
        while batch.len() < BATCH {
            let strategy = &strategies[usize::from(number % 4 != 0)];
            let drawn = strategy.new_tree(&mut runner(!seed, number)).expect("nothing is rejected").current();
            number += 1;
            batch.extend(drawn.into_iter().map(|flow| (at_its_port(flow.matching), flow.actions)));
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

/// What a wire can bring and flower can say, and what two right datapaths do not choose for themselves.
fn played() -> Profile {
    let choices = [Form::NatRange, Form::NatPortRange];
    sayable()
        .without("tunnels", "packets come in at wires", fields_of(Attribute::Tunnel))
        .without("outer headers", "packets go out of wires", [Feature::Action(ActionKind::SetTunnel)])
        .without("meters", "there are none", [Feature::Action(ActionKind::Meter)])
        .without("choices", "every datapath chooses for itself", choices.map(Feature::Form))
}

/// Flows without what no rule can say, so that there are more rules among them.
fn sayable() -> Profile {
    let attributes = [
        Attribute::DpHash,
        Attribute::SkbPriority,
        Attribute::SkbMark,
        Attribute::CtTuple4,
        Attribute::CtTuple6,
        Attribute::Nd,
        Attribute::NdExt,
        Attribute::Nsh,
    ];
    let kinds = [
        ActionKind::AddMpls,
        ActionKind::Clone,
        ActionKind::Hash,
        ActionKind::LbOutput,
        ActionKind::PopEth,
        ActionKind::PopNsh,
        ActionKind::PushEth,
        ActionKind::PushNsh,
        ActionKind::TnlPop,
        ActionKind::TnlPush,
        ActionKind::Trunc,
        ActionKind::Userspace,
    ];
    let forms = [
        Form::IpPacket,
        Form::MaskedProtocol,
        Form::Rarp,
        Form::CtHelper,
        Form::CtTimeout,
        Form::NatPersistent,
        Form::NatHash,
        Form::NatRandom,
        Form::PushTagWithoutCfi,
        Form::MoreAfterRecirc,
        Form::Cookie,
    ];
    let gtpu = [Field::GtpuPresent, Field::GtpuFlags, Field::GtpuMessageType];
    let gtpu = gtpu.into_iter().flat_map(|field| [Feature::Field(field), Feature::SetTunnel(field)]);
    Profile::everything()
        .without("fields", "flower has no key for them", attributes.into_iter().flat_map(fields_of))
        .without("GTP-U", "tc knows another part of it", gtpu)
        .without("actions", "tc has none", kinds.map(Feature::Action))
        .without("forms", "a rule cannot say them", forms.map(Feature::Form))
}

/// The same match at a port, if it is of any.
fn at_a_port(mut full: Match) -> Match {
    if full.mask.get(Field::InPort) == 0 {
        full.set_exact(Field::InPort, 1);
    }
    full
}

/// The same match at a port that is a tunnel if it says so.
fn at_its_port(full: Match) -> Match {
    let mut full = at_a_port(full);
    if full.is_exactly(Field::TunnelPresent, 1) {
        full.set_exact(Field::InPort, GENEVE.into());
    }
    full
}

fn runner(seed: u64, number: u64) -> TestRunner {
    let mut octets = [0; 32];
    octets[..8].copy_from_slice(&seed.to_le_bytes());
    octets[8..16].copy_from_slice(&number.to_le_bytes());
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &octets))
}

/// Numbers for packets (splitmix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
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

    /// A packet that hits and one that misses by one bit, if such ones can come in.
    fn packets(&mut self, full: &Match, draw: &mut Draw) -> Vec<(sluice_flow::port::PortNumber, Vec<u8>)> {
        let comes_in = |packet: &Packet| packet::comes_in(&packet.key);
        let hit = packet::hit(full, draw.next()).filter(comes_in);
        let misses = (0..TRIES).filter_map(|_| packet::near_miss(full, draw.next()));
        let miss = misses.map(|(packet, _)| packet).find(comes_in);
        self.hits += usize::from(hit.is_some());
        self.misses += usize::from(miss.is_some());
        hit.into_iter().chain(miss).map(|packet| (packet::port(&packet.key), packet.frame)).collect()
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
