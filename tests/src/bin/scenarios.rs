//! The scenarios with which the tc backend is held against the kernel, for a test of another crate that has a device: what to
//! install, and what is to come of packets. With the arguments SEED and COUNT so many generated ones follow. With the argument
//! `plain` and a number there is one of so many plain flows instead.
//!
//! For each it prints a line of JSON with its name and its flows, reads one with the places of the flows that the device
//! took, and prints one with its packets and what the software NIC sends with just these flows.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

#[path = "../../tests/kernel/actions.rs"]
mod actions;
#[path = "../../tests/tc/beyond_ovs.rs"]
mod beyond_ovs;
#[path = "../../tests/kernel/flows.rs"]
#[allow(dead_code, reason = "some are for scenarios that are not here")]
mod flows;
#[path = "../../tests/tc/incomparable.rs"]
mod incomparable;
#[path = "../../tests/kernel/keys.rs"]
mod keys;
#[path = "../../tests/kernel/packets.rs"]
#[allow(dead_code, reason = "some are for scenarios that are not here")]
mod packets;

use std::io::BufRead;

use serde_json::{Value, json};
use sluice_flow::text::parse_key;
use sluice_tests::generate::{FlowerFlows, plain_flows};
use sluice_tests::lab::{introduce, ports};
use sluice_tests::scenario::{Scenario, flow_text, hex};
use sluice_tests::soft::Soft;

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let is_plain = arguments.next_if_eq("plain").is_some();
    let mut numbers = arguments.map(|number| number.parse().expect("numbers: SEED COUNT, or plain COUNT"));
    let mut answers = std::io::stdin().lock().lines().map(|answer| answer.expect("a line"));
    if is_plain {
        let count = numbers.next().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
        let Some(scenario) = taken(plain_flows(count), &mut answers) else { return };
        return println!("{}", played(&scenario));
    }
    let (seed, count) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    for scenario in [keys::scenarios(), beyond_ovs::scenarios(), actions::scenarios()].concat() {
        let Some(scenario) = taken(scenario, &mut answers) else { return };
        println!("{}", played(&scenario));
    }
    let mut generated = FlowerFlows::new(seed);
    while generated.drawn() < count {
        let (scenario, mut packets) = generated.scenario();
        let Some(mut scenario) = taken(scenario, &mut answers) else { return };
        scenario.packets = scenario.flows.iter().flat_map(|(full, _)| packets.of(full)).flatten().collect();
        println!("{}", played(&scenario));
    }
}

/// The scenario with the flows that the device takes, as who reads their texts understands them, unless nobody is there any more
/// to say which. A text cannot say that there is no tag where it does not say the Ethernet type.
fn taken(mut scenario: Scenario, answers: &mut impl Iterator<Item = String>) -> Option<Scenario> {
    let texts: Vec<_> = scenario.flows.iter().map(|(matching, actions)| flow_text(matching, actions)).collect();
    println!("{}", json!({ "name": scenario.name, "flows": texts }));
    let places: Vec<usize> = serde_json::from_str(&answers.next()?).expect("places of flows");
    let understood = |place: &usize| {
        let key = texts[*place].split(", actions:").next().expect("a part");
        (parse_key(key, &()).expect("a key").matching, scenario.flows[*place].1.clone())
    };
    scenario.flows = places.iter().map(understood).collect();
    Some(scenario)
}

/// The packets with what is to come of each, or why the software NIC cannot tell.
fn played(scenario: &Scenario) -> Value {
    let soft = match Soft::set_up(&ports(), scenario) {
        Ok(soft) => soft,
        Err(refusal) => return json!({ "refusal": refusal.to_string(), "packets": [] }),
    };
    introduce(&soft);
    let packets = scenario.packets.iter().map(|(port, frame)| {
        let sent: Vec<_> = soft
            .inject(*port, frame)
            .iter()
            .flat_map(|(port, frames)| frames.iter().map(|frame| json!([port.0, hex(frame)])))
            .collect();
        json!({ "port": port.0, "frame": hex(frame), "sent": sent, "why": incomparable::why(frame, &scenario.flows) })
    });
    json!({ "packets": packets.collect::<Vec<_>>() })
}
