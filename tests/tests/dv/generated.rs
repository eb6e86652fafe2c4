//! Generated flows: what the device makes of packets is what the NIC in software makes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_flow::action::{Action, ActionList};
use sluice_flow::field::Field;
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_flow::ufid::Seed;
use sluice_flow::{ChainId, Expiry, Flow, MaskedKey, Priority};
use sluice_tests::generate::{collect, packet, plain_profile, ports};
use sluice_tests::mlx5::on_device;
use sluice_tests::scenario::{Scenario, flow_text, hex};
use sluice_tests::soft::{Sent, Soft};

use crate::frames::{is_fragment, is_known, leaves_fragments};
use crate::rig::{HOST, OLD_HOST, Rig};

/// Devices, with how many flows are drawn for each, and how many of them must be taken.
const FLOWS: [(&str, u64, usize); 4] =
    [("bluefield-2", 11_000, 2_000), ("bluefield-3", 11_000, 2_000), (HOST, 2_750, 500), (OLD_HOST, 2_750, 300)];

/// The same of flows in a later chain.
const FLOWS_IN_CHAIN: [(&str, u64, usize); 4] =
    [("bluefield-2", 2_500, 400), ("bluefield-3", 2_500, 400), (HOST, 625, 100), (OLD_HOST, 625, 60)];

/// What the device is to make of a frame that the NIC in software made this of. Where that drops a packet that misses, the device shows it
/// to the representor as it came in.
fn wanted(sent: Sent, has_missed: bool, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
    if has_missed {
        return vec![(0, frame.to_vec())];
    }
    let of_port = |(port, frames): (PortNumber, Vec<_>)| frames.into_iter().map(move |frame| (port.0, frame));
    let mut wanted: Vec<_> = sent.into_iter().flat_map(of_port).collect();
    wanted.sort();
    wanted
}

pub(crate) fn told(frames: &[(u32, Vec<u8>)]) -> String {
    frames.iter().map(|(port, frame)| format!("{port}: {} ", hex(frame))).collect()
}

#[test]
fn generated_flows_do_what_they_do_in_the_nic_in_software() {
    for (device, drawn, least) in FLOWS {
        on_device(device, "generated::generated_flows_do_what_they_do_in_the_nic_in_software", |wires| {
            let mut rig = Rig::open(wires);
            let (sets, _) = collect(&Arc::new(plain_profile()), drawn);
            let (mut taken, mut packets, mut refusals) = (0, 0, BTreeMap::<String, usize>::new());
            for (number, generated) in (0_u64..).zip(sets.into_iter().flatten()) {
                let (full, actions) = (generated.matching, generated.actions);
                if !full.is_exactly(Field::RecircId, 0) {
                    // No packet comes to a later chain by itself.
                    continue;
                }
                let flow = flow(&full, actions.clone());
                let id = match rig.add(&flow) {
                    Ok(id) => id,
                    Err(refusal) => {
                        *refusals.entry(refusal.to_string()).or_default() += 1;
                        continue;
                    }
                };
                taken += 1;
                let text = flow_text(&full, &actions);
                let scenario = Scenario::new("one flow").flow(full, actions);
                let soft = Soft::set_up(&ports(), &scenario).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
                let misses = (0..3).filter_map(|turn| packet::near_miss(&full, number * 3 + turn));
                let all = packet::hit(&full, number).into_iter().chain(misses.map(|(packet, _)| packet));
                let mut hits = 0;
                for packet in all.filter(|packet| packet::comes_in(&packet.key) && is_known(&packet.frame)) {
                    let port = packet::port(&packet.key);
                    let (sent, hit) = soft.inject_and_tell(port, &packet.frame);
                    let is_left = leaves_fragments(&flow) && is_fragment(&packet.frame);
                    hits += if is_left { 0 } else { hit.len() as u64 };
                    let wanted = wanted(sent, is_left || hit.is_empty(), &packet.frame);
                    let found = rig.inject(usize::try_from(port.0).unwrap(), &packet.frame);
                    assert!(
                        found == wanted,
                        "{text} of {} at {port}: {}, not {}",
                        hex(&packet.frame),
                        told(&found),
                        told(&wanted)
                    );
                    packets += 1;
                }
                let last = rig.switch.remove(&[id]).unwrap();
                assert_eq!(last[0].packets, hits, "packets counted of {text}");
            }
            for (refusal, flows) in &refusals {
                println!("{flows:6} refused: {refusal}");
            }
            println!("{taken} flows taken, {packets} packets");
            assert!(taken >= least, "{taken} flows taken");
        });
    }
}

#[test]
fn generated_flows_of_a_later_chain_do_what_they_do_in_the_nic_in_software() {
    const CHAIN: ChainId = ChainId(7);
    for (device, drawn, least) in FLOWS_IN_CHAIN {
        on_device(
            device,
            "generated::generated_flows_of_a_later_chain_do_what_they_do_in_the_nic_in_software",
            |wires| {
                let mut rig = Rig::open(wires);
                let (sets, _) = collect(&Arc::new(plain_profile()), drawn);
                let (mut taken, mut packets) = (0, 0);
                for (number, generated) in (0_u64..).zip(sets.into_iter().flatten()) {
                    let (full, actions) = (generated.matching, generated.actions);
                    if !full.is_exactly(Field::RecircId, 0) {
                        continue;
                    }
                    let mut later = full;
                    later.set_exact(Field::RecircId, CHAIN.0.into());
                    let mut first = Match::default();
                    first.set_exact(Field::RecircId, 0);
                    first.set(Field::InPort, full.key.get(Field::InPort), full.mask.get(Field::InPort));
                    let jump: ActionList = [Action::Recirc(CHAIN)].into();
                    let second = flow(&later, actions.clone());
                    let Ok(in_chain) = rig.add(&second) else { continue };
                    let to_chain = rig.add(&flow(&first, jump.clone())).unwrap();
                    taken += 1;
                    let text = flow_text(&full, &actions);
                    let scenario = Scenario::new("two chains").flow(first, jump).flow(later, actions);
                    let soft = Soft::set_up(&ports(), &scenario).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
                    let miss = packet::near_miss(&full, number).map(|(packet, _)| packet);
                    let all = packet::hit(&full, number).into_iter().chain(miss);
                    let mut counts = [0; 2];
                    for packet in all.filter(|packet| packet::comes_in(&packet.key) && is_known(&packet.frame)) {
                        let port = packet::port(&packet.key);
                        let (sent, hits) = soft.inject_and_tell(port, &packet.frame);
                        let is_left = leaves_fragments(&second) && is_fragment(&packet.frame);
                        let chains = if is_left { 1 } else { 2 };
                        hits.iter().take(chains).for_each(|hit| counts[*hit as usize - 1] += 1);
                        let wanted = wanted(sent, is_left || hits.len() < 2, &packet.frame);
                        let found = rig.inject(usize::try_from(port.0).unwrap(), &packet.frame);
                        assert!(
                            found == wanted,
                            "{text} of {} at {port}: {}, not {}",
                            hex(&packet.frame),
                            told(&found),
                            told(&wanted)
                        );
                        packets += 1;
                    }
                    let last = rig.switch.remove(&[to_chain, in_chain]).unwrap();
                    assert_eq!([last[0].packets, last[1].packets], counts, "packets counted of {text}");
                }
                println!("{taken} flows taken, {packets} packets");
                assert!(taken >= least, "{taken} flows taken");
            },
        );
    }
}

pub(crate) fn flow(full: &Match, actions: ActionList) -> Flow {
    Flow::new(None, MaskedKey::new(full), actions, Priority::default(), Expiry::default(), &Seed([7; 16]))
}
