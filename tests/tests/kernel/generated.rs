//! Generated flows and packets, played like the written ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sluice_flow::Action;
use sluice_flow::action::{ActionKind, ActionList};
use sluice_flow::field::{Attribute, Field};
use sluice_tests::generate::{Feature, Form, Profile, fields_beyond_ovs, fields_of, scenarios};
use sluice_tests::lab::Judge;
use sluice_tests::scenario::flow_text;

use crate::report::Report;

/// Scenarios of a run; `SLUICE_GENERATED` in the environment says another number.
const SCENARIOS: u64 = 400;

/// What the module of Linux 6.1 has not, and what two right datapaths may choose for themselves.
fn profile() -> Profile {
    let actions = |kinds: &[ActionKind]| kinds.iter().map(|kind| Feature::Action(*kind)).collect::<Vec<_>>();
    let sets = |attributes: &[Attribute]| attributes.iter().map(|header| Feature::Set(*header)).collect::<Vec<_>>();
    let picks = [Form::NatRange, Form::NatPortRange, Form::NatRandom, Form::NatHash, Form::NatPersistent];
    Profile { name: "the module of Linux 6.1", rules: Vec::new() }
        .without(
            "userspace only",
            "OVS's userspace has them alone",
            actions(&[ActionKind::LbOutput, ActionKind::Psample, ActionKind::TnlPop, ActionKind::TnlPush]),
        )
        .without("processes", "the software NIC has none behind it", actions(&[ActionKind::Userspace]))
        .without("meters", "scenarios have none", actions(&[ActionKind::Meter]))
        .without("tunnels", "scenarios have no tunnel ports", actions(&[ActionKind::SetTunnel]))
        .without("tunnel keys", "scenarios have no tunnel ports", fields_of(Attribute::Tunnel))
        .without(
            "headers",
            "the module cannot set them",
            sets(&[
                Attribute::Arp,
                Attribute::Icmp,
                Attribute::Icmpv6,
                Attribute::Nd,
                Attribute::NdExt,
                Attribute::Nsh,
            ]),
        )
        .without("userspace keys", "OVS's userspace has them alone", fields_of(Attribute::NdExt))
        .without("fields of ours", "OVS does not have them", fields_beyond_ovs())
        .without(
            "hashes",
            "every datapath has its own",
            [Feature::Field(Field::DpHash), Feature::Form(Form::HashSymmetric)],
        )
        .without("choices", "every datapath chooses for itself", picks.map(Feature::Form))
        .without("names", "neither is loaded", [Form::CtHelper, Form::CtTimeout].map(Feature::Form))
}

/// Plays generated scenarios, without the flows that the module refuses.
pub(crate) fn play(judge: &mut Judge, report: &mut Report) {
    let count = std::env::var("SLUICE_GENERATED").ok().and_then(|count| count.parse().ok()).unwrap_or(SCENARIOS);
    let strategy = scenarios(&Arc::new(profile()));
    let (mut flows, mut refused) = (0, BTreeMap::<String, usize>::new());
    for number in 0..count {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&u64::to_le_bytes(number));
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(Config::default(), random);
        let mut scenario = strategy.new_tree(&mut runner).expect("nothing is rejected").current();
        scenario.name = format!("generated {number}");
        scenario.ports.clear();
        // What is shorter than an Ethernet header cannot come in at all.
        scenario.packets.retain(|(_, frame)| frame.len() >= 14);
        for (_, actions) in &mut scenario.flows {
            *actions = without_chance(actions);
        }
        let sifted = judge.sift(scenario);
        for (flow, reason) in sifted.by_kernel {
            *refused.entry(reason).or_default() += 1;
            let _ = flow;
        }
        for ((matching, actions), refusal) in sifted.by_ours {
            report.fail(format!("ours refuses what the module takes: {refusal}: {}", flow_text(&matching, &actions)));
        }
        flows += sifted.scenario.flows.len();
        let outcome = judge.play(&sifted.scenario);
        report.add(&sifted.scenario, &outcome);
    }
    println!("{flows} generated flows played; refused by the module:");
    refused.iter().for_each(|(reason, count)| println!("{count:>8} {reason}"));
}

/// The same actions, with samples that are certain.
fn without_chance(actions: &[Action]) -> ActionList {
    let certain = |action: &Action| match action {
        Action::Sample { probability: 0, actions } => {
            Action::Sample { probability: 0, actions: without_chance(actions) }
        }
        Action::Sample { actions, .. } => Action::Sample { probability: u32::MAX, actions: without_chance(actions) },
        Action::Clone(list) => Action::Clone(without_chance(list)),
        Action::DecTtl(list) => Action::DecTtl(without_chance(list)),
        Action::CheckPacketLength { length, greater, less_or_equal } => Action::CheckPacketLength {
            length: *length,
            greater: without_chance(greater),
            less_or_equal: without_chance(less_or_equal),
        },
        other => other.clone(),
    };
    actions.iter().map(certain).collect()
}
