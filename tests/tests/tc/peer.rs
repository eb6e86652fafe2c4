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
/// Why OVS's rules are others than ours, and what of a rule is then the same.
type Reason = (&'static str, fn(&str) -> String);

/// Whatever is not here is printed with both rules.
const REASONS: [Reason; 5] = [
    ("OVS has no pass with room for a note, and no drop where nothing is sent", without_passes),
    ("OVS matches 16 bits of the TCP flags, of which flower has 12", |rule| rule.replace("/ffff\"", "/fff\"")),
    ("OVS sums up a header in which nothing changed that a checksum covers", |rule| rule.replace(" csum:pipe", "")),
    ("OVS matches no label but the first of a stack", without_labels),
    ("of check_pkt_len OVS jumps over the branch that we leave", in_any_order),
];
const IN_THE_MODULE: &str = "OVS keeps what it cannot offload, and all that is recirculated, in its kernel module";

/// What came of all.
#[derive(Default)]
struct Sum {
    equal: usize,
    packets: usize,
    refused: usize,
    same_rules: usize,
    others: BTreeMap<&'static str, usize>,
}

/// Plays scenarios to both, those of wires that both take. Meters are of OpenFlow in OVS, and not of its flows.
pub(crate) fn play<'a>(
    classifier: &mut Classifier,
    report: &mut Report,
    scenarios: impl Iterator<Item = &'a Scenario>,
) {
    println!("\nthe same flows in ovs-vswitchd (hw-offload, tc-policy=skip_hw) and in our rules:");
    let mut peer = OvsPeer::start();
    let mut sum = Sum::default();
    for scenario in scenarios {
        let name = &scenario.name;
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
        if packets(classifier, &mut peer, &taken, report) {
            sum.equal += 1;
            sum.packets += taken.packets.len();
            report.pass(&format!("in ovs-vswitchd, too: {name}"));
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
    scenario.packets.iter().all(|(port, _)| is_wire(port))
        && !["tunnel(", "meter("].iter().any(|word| text.contains(word))
}

fn packets(classifier: &mut Classifier, peer: &mut OvsPeer, scenario: &Scenario, report: &mut Report) -> bool {
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
                &scenario.name,
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
    let reason = why_others(&ours, &theirs).unwrap_or_else(|| {
        let [ours, theirs] = [ours, theirs].map(|rules| rules.join("\n       "));
        println!("other rules for {}:\n  ours {ours}\n  OVS  {theirs}", scenario.name);
        "printed above"
    });
    *sum.others.entry(reason).or_default() += 1;
}

/// The last of the reasons that must hold for the rules to be the same.
fn why_others(ours: &[String], theirs: &[String]) -> Option<&'static str> {
    if theirs.len() < ours.len() {
        return Some(IN_THE_MODULE);
    }
    let (mut ours, mut theirs) = (ours.to_vec(), theirs.to_vec());
    let holds = |(_, leave): &&Reason| {
        for rules in [&mut ours, &mut theirs] {
            rules.iter_mut().for_each(|rule| *rule = leave(rule));
            rules.sort();
        }
        ours == theirs
    };
    REASONS.iter().find(holds).map(|(reason, _)| *reason)
}

fn without_passes(rule: &str) -> String {
    rule.replace(" gact:pipe", "").replace(" gact:drop", "")
}

fn without_labels(rule: &str) -> String {
    let Some((keys, actions)) = rule.split_once(" ->") else { return rule.to_owned() };
    let keys: Vec<_> = keys.split(' ').filter(|key| !key.starts_with("mpls")).collect();
    format!("{} ->{actions}", keys.join(" "))
}

/// The actions in any order, and wherever a police goes on.
fn in_any_order(rule: &str) -> String {
    let Some((keys, actions)) = rule.split_once(" -> ") else { return rule.to_owned() };
    let mut actions: Vec<_> = actions.split(' ').map(|action| action.replace("police:jump", "police:pipe")).collect();
    actions.sort();
    format!("{keys} -> {}", actions.join(" "))
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
