//! The same flows given to ovs-vswitchd and to us: the same packets come out. Where the rules are others, both are printed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sluice_flow::port::PortNumber;
use sluice_tests::lab::{OVS_SPACE, OvsPeer, Sent, WIRES, ovs_device};
use sluice_tests::scenario::{Scenario, flow_text, hex};

use crate::classifier::{Classifier, try_to_run};
use crate::report::Report;
use crate::{incomparable, play};

/// Packets of a scenario.
const PACKETS: usize = 12;
/// Why rules are others than those of OVS, by what is in ours or in theirs and not in the other's. Whatever is not here is
/// printed with both rules.
const REASONS: &[(&str, &str)] = &[
    ("in the module", "OVS keeps what it cannot offload, and all that is recirculated, in its kernel module"),
    ("gact", "a pass that has room for our note, or the drop of what has no output"),
];

/// What came of all.
#[derive(Default)]
struct Sum {
    equal: usize,
    packets: usize,
    refused: usize,
    same_rules: usize,
    others: BTreeMap<String, usize>,
}

/// Plays scenarios to both, those of wires that both take.
pub(crate) fn play(classifier: &mut Classifier, report: &mut Report, scenarios: &[Scenario]) {
    println!("\nthe same flows in ovs-vswitchd (hw-offload, tc-policy=skip_hw) and in our rules:");
    let mut peer = OvsPeer::start();
    let mut sum = Sum::default();
    for scenario in scenarios {
        let name = format!("peer: {}", scenario.name);
        let mut taken = play::install(classifier, scenario, &mut |_, _| {});
        if taken.flows.len() < scenario.flows.len() || taken.flows.is_empty() || !is_of_wires(&taken) {
            continue;
        }
        let is_comparable = |(_, frame): &(PortNumber, Vec<u8>)| incomparable::why(frame, &taken.flows).is_none();
        let step = scenario.packets.len().div_ceil(PACKETS).max(1);
        taken.packets = scenario.packets.iter().step_by(step).filter(|packet| is_comparable(packet)).cloned().collect();
        if let Err(words) = peer.set_up(&taken.flows) {
            sum.refused += 1;
            println!("refused by OVS  {name}: {words}");
            continue;
        }
        if packets(classifier, &mut peer, &taken, &name, report) {
            sum.equal += 1;
            sum.packets += taken.packets.len();
            report.pass(&name);
        }
        rules(&taken, &mut sum);
    }
    let Sum { equal, packets, refused, same_rules, others } = sum;
    println!(
        "{equal} scenarios with {packets} packets end the same in ovs-vswitchd; it refuses {refused} that we take"
    );
    println!("{same_rules} have the same keys and actions in tc; of the others:");
    others.iter().for_each(|(reason, count)| println!("{count:>8} {reason}"));
}

fn is_of_wires(scenario: &Scenario) -> bool {
    let is_wire = |port: &PortNumber| WIRES.contains(&port.0);
    let text: String = scenario.flows.iter().map(|(full, actions)| flow_text(full, actions)).collect();
    scenario.packets.iter().all(|(port, _)| is_wire(port)) && !text.contains("tunnel(")
}

fn packets(
    classifier: &mut Classifier,
    peer: &mut OvsPeer,
    scenario: &Scenario,
    name: &str,
    report: &mut Report,
) -> bool {
    for (number, (port, frame)) in scenario.packets.iter().enumerate() {
        let ours = classifier.inject(*port, frame, 0);
        let count = ours.values().map(Vec::len).sum();
        let theirs = peer.inject(*port, frame, count);
        if ours != theirs {
            let told = [("ours", &ours), ("OVS", &theirs)].map(|(who, sent)| told(who, sent)).concat();
            let both = format!("{}\n{}", shown(scenario, "lab"), shown(scenario, "ovs"));
            let flows: String =
                scenario.flows.iter().map(|(full, actions)| format!("    {}\n", flow_text(full, actions))).collect();
            let frame = hex(frame);
            report.peer_differs(
                name,
                &format!("{flows}    packet {number} in at {port}: {frame}\n{told}{both}\n{}", peer.dump()),
            );
            return false;
        }
    }
    true
}

fn told(who: &str, sent: &Sent) -> String {
    let frames = sent.iter().flat_map(|(port, frames)| frames.iter().map(move |frame| (port, frame)));
    let lines: String = frames.map(|(port, frame)| format!("    {who} sent out of {port}: {}\n", hex(frame))).collect();
    if lines.is_empty() { format!("    {who} sent nothing\n") } else { lines }
}

/// Compares what is matched and done, whatever the priorities, numbers and notes.
fn rules(scenario: &Scenario, sum: &mut Sum) {
    let (ours, theirs) = (bare(scenario, "lab"), bare(scenario, "ovs"));
    if ours == theirs {
        sum.same_rules += 1;
        return;
    }
    let difference = match (ours.len(), theirs.len()) {
        (our_count, their_count) if their_count < our_count => "in the module",
        _ if without_passes(&ours) == without_passes(&theirs) => "gact",
        _ => "",
    };
    let reason = REASONS.iter().find(|(part, _)| *part == difference).map(|(_, reason)| *reason);
    if reason.is_none() {
        println!(
            "other rules for {}:\n  ours {}\n  OVS  {}",
            scenario.name,
            ours.join("\n       "),
            theirs.join("\n       ")
        );
    }
    *sum.others.entry(reason.unwrap_or("printed above").into()).or_default() += 1;
}

fn without_passes(rules: &[String]) -> Vec<String> {
    let stripped = rules.iter().map(|rule| rule.replace(" gact:pipe", "").replace(" gact:drop", ""));
    stripped.collect()
}

/// The rules at all wires of one side: keys, and the kinds of the actions with what comes after each.
fn bare(scenario: &Scenario, side: &str) -> Vec<String> {
    let mut found = vec![];
    for filter in listed(scenario, side) {
        let keys = filter["options"]["keys"].as_object().map(words).unwrap_or_default();
        let mut rule = format!("{}: {keys} ->", filter["protocol"].as_str().unwrap_or_default());
        for action in filter["options"]["actions"].as_array().into_iter().flatten() {
            let control = action["control_action"]["type"].as_str().unwrap_or_default();
            rule += &format!(" {}:{control}", action["kind"].as_str().unwrap_or_default());
        }
        found.push(rule);
    }
    found.sort();
    found
}

fn words(keys: &Map<String, Value>) -> String {
    keys.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn shown(scenario: &Scenario, side: &str) -> String {
    listed(scenario, side).iter().map(|filter| format!("    {side}: {filter}\n")).collect()
}

fn listed(scenario: &Scenario, side: &str) -> Vec<Value> {
    let mut ports: Vec<_> = scenario.flows.iter().filter_map(|(full, _)| port(full)).collect();
    ports.sort_unstable();
    ports.dedup();
    let mut all = vec![];
    for port in ports {
        let device = if side == "ovs" { ovs_device(port) } else { format!("lab{port}") };
        let space: &[&str] = if side == "ovs" { &["-netns", OVS_SPACE] } else { &[] };
        let words = [space, &["-s", "-d", "-j", "filter", "show", "dev", &device, "ingress"]].concat();
        let text = try_to_run("tc", &words).unwrap_or_default();
        let shown: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        all.extend(shown.into_iter().filter(|filter| filter.get("options").is_some()));
    }
    all
}

fn port(full: &sluice_flow::key::Match) -> Option<PortNumber> {
    u32::try_from(full.key.get(sluice_flow::field::Field::InPort)).ok().map(PortNumber)
}
