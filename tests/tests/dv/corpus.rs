//! The scenarios with which the other backends are held against the kernel: flows are in the device, and packets come out as the NIC in
//! software has it, or they are refused with a reason.
//!
//! `cargo test -p sluice-tests --test dv corpus -- --nocapture` prints how many are, and why the others are not.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::Value;
use sluice_offload_dv::switch::RuleId;
use sluice_tests::daemon::binary;
use sluice_tests::mlx5::on_device;

use crate::frames::{is_fragment, is_known, leaves_fragments};
use crate::rig::{Rig, flow};

/// In a hundred, of the flows that are written. What they are about is in part what no ConnectX looks at: NSH, ARP, SCTP, PPPoE, CFM,
/// several labels, first and later fragments.
const LEAST_TAKEN: usize = 60;
/// How many flows are generated besides, for flower, and of which seed: most have what it matches, and the device does not.
const GENERATED: usize = 24;
const SEED: usize = 17;
/// Of so many packets one is played, which are other ones on each device.
const EVERY: usize = 8;

/// Scenarios of which some packets come out otherwise, and why that is known.
const KNOWN: &[(&str, &str)] = &[
    ("key nsh: nothing more", "a broken NSH header: OVS drops it, hardware does not look into it"),
    (
        "key mpls: the lowest bit of mpls.label",
        "labels without a last one: OVS has none of them, hardware looks at the first",
    ),
];
const FRAGMENTS: &str = "fragments that are left to software: they are at the representor as they came in";
const EXTENSIONS: &str = "extension headers of IPv6: hardware may find the protocol behind them or not";

#[test]
fn most_flows_of_the_corpus_are_in_the_device_and_do_there_what_they_should() {
    for (first, profile) in ["bluefield-2", "bluefield-3"].into_iter().enumerate() {
        let name = "corpus::most_flows_of_the_corpus_are_in_the_device_and_do_there_what_they_should";
        on_device(profile, name, |wires| {
            let mut rig = Rig::open(wires);
            let mut program = Command::new(binary("scenarios"))
                .args([SEED.to_string(), GENERATED.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut answers = program.stdin.take().unwrap();
            let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
            let mut next = || Some(serde_json::from_str::<Value>(&lines.next()?.unwrap()).unwrap());
            let mut sum = Sum::default();
            while let Some(scenario) = next() {
                let name = scenario["name"].as_str().unwrap();
                let Taken { rules, places, leaves_fragments } =
                    install(&mut rig, name, scenario["flows"].as_array().unwrap(), &mut sum);
                writeln!(answers, "{places:?}").unwrap();
                play(&rig, name, leaves_fragments, &next().unwrap(), first, &mut sum);
                rig.switch.remove(&rules).unwrap();
            }
            assert!(program.wait().unwrap().success());
            println!("{profile}: {sum}");
            assert_eq!(sum.differing, [""; 0], "packets came out otherwise");
            assert!(sum.written.share() >= LEAST_TAKEN, "{} of the flows that are written", sum.written);
        });
    }
}

/// Flows of a scenario that are in the device.
#[derive(Default)]
struct Taken {
    rules: Vec<RuleId>,
    /// Of their flows.
    places: Vec<usize>,
    /// Whether one of them does.
    leaves_fragments: bool,
}

/// Puts a scenario's flows in.
fn install(rig: &mut Rig<'_>, name: &str, flows: &[Value], sum: &mut Sum) -> Taken {
    let mut taken = Taken::default();
    for (place, text) in flows.iter().enumerate() {
        let (key, actions) = text.as_str().unwrap().split_once(", actions:").unwrap();
        let flow = flow(key, actions);
        match rig.add(&flow) {
            Ok(rule) => {
                taken.rules.push(rule);
                taken.places.push(place);
                taken.leaves_fragments |= leaves_fragments(&flow);
            }
            Err(refusal) => *sum.refused.entry(refusal.to_string()).or_default() += 1,
        }
    }
    let part = if name.starts_with("generated") { &mut sum.generated } else { &mut sum.written };
    part.flows += flows.len();
    part.taken += taken.rules.len();
    taken
}

/// Lets the packets in, and compares what comes out at ports: what no rule takes, and so comes to a representor, is nobody's.
fn play(rig: &Rig<'_>, name: &str, leaves_fragments: bool, played: &Value, first: usize, sum: &mut Sum) {
    for packet in played["packets"].as_array().unwrap().iter().skip(first).step_by(EVERY) {
        if let Some(why) = packet["why"].as_str() {
            *sum.left_out.entry(why.to_owned()).or_default() += 1;
            continue;
        }
        let frame = bytes(&packet["frame"]);
        if !is_known(&frame) {
            *sum.left_out.entry(EXTENSIONS.to_owned()).or_default() += 1;
            continue;
        }
        let number = |port: &Value| u32::try_from(port.as_u64().unwrap()).unwrap();
        let sent = packet["sent"].as_array().unwrap().iter().map(|sent| (number(&sent[0]), bytes(&sent[1])));
        let mut wanted: Vec<_> = sent.collect();
        wanted.sort();
        let mut found = rig.inject(number(&packet["port"]) as usize, &frame);
        if leaves_fragments && is_fragment(&frame) {
            let is_as_it_came_in = found == [(0, frame)];
            if !is_as_it_came_in {
                sum.differing.push(format!("{name}: {packet}, not {found:02x?}"));
            }
            *sum.left_out.entry(FRAGMENTS.to_owned()).or_default() += 1;
            continue;
        }
        found.retain(|(port, _)| *port != 0);
        if found == wanted {
            sum.equal += 1;
        } else if let Some((_, why)) = KNOWN.iter().find(|(known, _)| *known == name) {
            *sum.left_out.entry((*why).to_owned()).or_default() += 1;
        } else {
            sum.differing.push(format!("{name}: {packet}, not {found:02x?}"));
        }
    }
}

fn bytes(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// How many flows there are, and how many of them are in the device.
#[derive(Default)]
struct Part {
    flows: usize,
    taken: usize,
}

impl Part {
    /// How many in a hundred.
    fn share(&self) -> usize {
        self.taken * 100 / self.flows.max(1)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}, in a hundred {}", self.taken, self.flows, self.share())
    }
}

/// What came of all of them.
#[derive(Default)]
struct Sum {
    written: Part,
    generated: Part,
    /// Flows that are not, by the reason.
    refused: BTreeMap<String, usize>,
    /// Packets that came out as they should.
    equal: usize,
    /// Packets that were not compared or are known to differ, by the reason.
    left_out: BTreeMap<String, usize>,
    differing: Vec<String>,
}

impl fmt::Display for Sum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { written, generated, equal, .. } = self;
        writeln!(
            out,
            "in the device are of the flows that are written {written}, of those that are generated {generated}"
        )?;
        let mut reasons: Vec<_> = self.refused.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        reasons.iter().try_for_each(|(reason, count)| writeln!(out, "{count:>6} {reason}"))?;
        writeln!(out, "{equal} packets came out as they should; not compared, or known to differ, were:")?;
        self.left_out.iter().try_for_each(|(why, count)| writeln!(out, "{count:>6} {why}"))
    }
}
