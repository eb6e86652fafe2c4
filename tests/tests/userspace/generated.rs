//! Generated scenarios: the same in every run, others with another number in `SLUICE_SEED`.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sluice_flow::action::{Action, ActionKind, ActionList, FieldSet};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::port::PortNumber;
use sluice_tests::generate::{
    Feature, Form, GeneratedFlow, Profile, check, collect, fields_beyond_ovs, fields_of, flows, packet,
};
use sluice_tests::scenario::Scenario;

use crate::differences::{self, RULES};
use crate::judge::{Difference, Judge, Outcome, Refused};
use crate::text::as_ovs_wants;

/// The variable of the environment with another seed.
const SEED: &str = "SLUICE_SEED";
const DEFAULT_SEED: u64 = 1;
const FLOWS: usize = 2_000;
const PACKETS: usize = 10_000;

fn profile() -> Profile {
    use ActionKind as Kind;
    let actions = |kinds: &[ActionKind]| kinds.iter().map(|kind| Feature::Action(*kind)).collect::<Vec<_>>();
    Profile { name: "OVS's userspace datapath", rules: Vec::new() }
        .without(
            "unread actions",
            "OVS 3.1 writes them and reads them in no form; they come by OpenFlow",
            actions(&[Kind::DecTtl, Kind::Hash, Kind::PopEth, Kind::PopMpls, Kind::PushEth, Kind::PushMpls]),
        )
        .without("later actions", "OVS 3.1 does not have it", actions(&[Kind::Psample]))
        .without("other places", "what they do is seen in no frame", actions(&[Kind::Userspace, Kind::LbOutput]))
        .without("meters", "the text of a datapath has no command for them", actions(&[Kind::Meter]))
        .without("tunnels", "by hand: they need ports", actions(&[Kind::SetTunnel, Kind::TnlPop, Kind::TnlPush]))
        .without("connections", "by hand: they need a story", actions(&[Kind::Ct, Kind::CtClear]))
        .without("no Ethernet header", "frames have one", [Feature::Form(Form::IpPacket)])
        .without("no Ethernet type", "there it is the type of 802.3 frames", [Feature::Form(Form::AnyEthType)])
        .without(
            "any tag",
            "the bit that says that there is a tag must be exact",
            [Feature::Form(Form::UnconstrainedTag)],
        )
        .without("open label stack", "the key must have the bottom of the stack", [Feature::Form(Form::OpenLabelStack)])
        .without("tags without CFI", "refused by ours, as by the kernel", [Feature::Form(Form::PushTagWithoutCfi)])
        .without(
            "service headers",
            "OVS 3.1 does not read nsh()",
            fields_of(Attribute::Nsh).chain([Feature::Set(Attribute::Nsh)]),
        )
        .without("tunnel keys", "packets come in on wires", fields_of(Attribute::Tunnel))
        .without("fields of ours", "OVS does not have them", fields_beyond_ovs())
}

/// The dice of two datapaths do not fall alike, so that a sample takes all packets or none. And OVS 3.1 knows no masks
/// of ICMP (`odp_execute_masked_set_action` in `lib/odp-execute.c` ends the daemon), so that both fields are set.
fn for_ovs(actions: &[Action]) -> ActionList {
    let each = |action: &Action| match action {
        Action::Set(set) if matches!(set.attribute, Attribute::Icmp | Attribute::Icmpv6) => {
            let whole = |field: Field| (field, set.get(field).map_or(0, |(value, _)| value), field.full_mask());
            let fields = set.attribute.fields().map(|spec| whole(spec.field)).collect();
            Action::Set(FieldSet { attribute: set.attribute, fields })
        }
        Action::Sample { probability, actions } => {
            let probability = if *probability > u32::MAX / 2 { u32::MAX } else { 0 };
            Action::Sample { probability, actions: for_ovs(actions) }
        }
        Action::Clone(list) => Action::Clone(for_ovs(list)),
        Action::CheckPacketLength { length, greater, less_or_equal } => Action::CheckPacketLength {
            length: *length,
            greater: for_ovs(greater),
            less_or_equal: for_ovs(less_or_equal),
        },
        other => other.clone(),
    };
    actions.iter().map(each).collect()
}

/// What a packet has none of when it comes in on a wire.
const NOT_ON_A_WIRE: [Attribute; 9] = [
    Attribute::DpHash,
    Attribute::SkbPriority,
    Attribute::SkbMark,
    Attribute::CtState,
    Attribute::CtZone,
    Attribute::CtMark,
    Attribute::CtLabel,
    Attribute::CtTuple4,
    Attribute::CtTuple6,
];

/// Flows that packets can hit and of which something is seen, and packets.
fn scenario(flows: Vec<GeneratedFlow>, numbers: &[u64]) -> Scenario {
    let mut scenario = Scenario::new(format!("{} flows", flows.len()));
    for flow in flows {
        let mut matching = as_ovs_wants(&flow.matching);
        if matching.is_exactly(Field::RecircId, 0) {
            let fields = NOT_ON_A_WIRE.iter().flat_map(|attribute| attribute.fields());
            fields.for_each(|spec| matching.set(spec.field, 0, 0));
        }
        if scenario.flows.iter().any(|(other, _)| check::overlap(other, &matching)) {
            continue;
        }
        let mut actions = for_ovs(&flow.actions).to_vec();
        actions.push(Action::Output(PortNumber(2)));
        scenario.flows.push((matching, actions.into()));
    }
    scenario.packets = packet::for_flows(&scenario.flows, numbers);
    scenario
}

/// A reason, and whether it is that.
type Known = (&'static str, fn(&Refused) -> bool);

/// Flows that OVS does not take, and why that is known.
const REFUSED: &[Known] = &[
    ("OVS 3.1 reads no md2 of more than 216 bytes", |refused| {
        let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        refused.flow.split("md2=0x").skip(1).any(|rest| digits(rest) > 2 * 216) && is(refused, "parsing actions")
    }),
    ("to OVS a flow with one tag overlaps one with two", |refused| is(refused, "File exists")),
];

fn is(refused: &Refused, error: &str) -> bool {
    refused.ours.is_ok() && refused.ovs.as_ref().is_err_and(|reason| reason.contains(error))
}

#[test]
fn generated_flows_do_to_packets_what_ovs_does() {
    let seed: u64 = std::env::var(SEED).map_or(DEFAULT_SEED, |text| text.parse().expect("a number"));
    println!("{SEED}={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let profile = Arc::new(profile());
    let (_, hits) = collect(&profile, FLOWS as u64);
    for (name, reason, count) in hits.left_out(&profile) {
        println!("{count:>8} left out by rule {name:?}: {reason}");
        assert!(count > 0, "it leaves nothing out: {name}");
    }
    let strategy = (flows(&profile), vec(any::<u64>(), 32)).prop_map(|(flows, numbers)| scenario(flows, &numbers));
    let mut run = Run::new();
    while run.flows < FLOWS || run.packets < PACKETS {
        let scenario = strategy.new_tree(&mut runner).expect("nothing is rejected").current();
        run.play(scenario);
    }
    println!("{} flows, {} packets in, {} frames out", run.flows, run.packets, run.frames);
    println!("{:>8} packets ended OVS, as they are known to", run.ends);
    for ((reason, _), count) in REFUSED.iter().zip(run.refused) {
        println!("{count:>8} flows: {reason}");
        assert!(count > 0 || seed != DEFAULT_SEED, "it never occurs: {reason}");
    }
    for (rule, count) in RULES.iter().zip(run.differences) {
        println!("{count:>8} packets: {}", rule.reason);
    }
}

/// What has been played, and what was known to come of it.
struct Run {
    judge: Judge,
    flows: usize,
    packets: usize,
    frames: usize,
    ends: usize,
    refused: [usize; REFUSED.len()],
    differences: [usize; RULES.len()],
}

impl Run {
    fn new() -> Self {
        let judge = Judge::new();
        let (refused, differences) = ([0; REFUSED.len()], [0; RULES.len()]);
        Self { judge, flows: 0, packets: 0, frames: 0, ends: 0, refused, differences }
    }

    fn play(&mut self, scenario: Scenario) {
        let (mut scenario, refused) = self.judge.split(scenario);
        for refused in refused {
            let known = REFUSED.iter().position(|(_, is_known)| is_known(&refused));
            self.refused[known.unwrap_or_else(|| panic!("{refused:#?}"))] += 1;
        }
        self.flows += scenario.flows.len();
        loop {
            match self.judge.play(&scenario) {
                Outcome::Equal { packets, frames } => {
                    self.packets += packets;
                    self.frames += frames;
                    return;
                }
                Outcome::Differs(Difference { packet, .. }) => {
                    let again = self.judge.shrink(&scenario, packet);
                    let (small, difference) = again.unwrap_or_else(|| panic!("packet {packet} only now:\n{scenario}"));
                    let known = differences::rule(&small, &difference).unwrap_or_else(|| panic!("{small}{difference}"));
                    self.differences[known] += 1;
                    scenario.packets.remove(packet);
                }
                Outcome::EndOfOvs { packet } => {
                    assert!(differences::ends_ovs(&scenario, packet), "packet {packet} ends OVS:\n{scenario}");
                    self.ends += 1;
                    scenario.packets.remove(packet);
                }
                other => panic!("{other:?}\n{scenario}"),
            }
        }
    }
}
