//! One match has one rule, whatever happened before.

use std::collections::BTreeMap;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use sluice_flow::backend::{InstalledRule, Owner};
use sluice_flow::id::{FlowId, Generation};
use sluice_offload_tc::OffloadPolicy;
use sluice_offload_tc::dump::{Detail, Lister};
use sluice_offload_tc::install::{Installer, Request};
use sluice_offload_tc::wire::action::{Action, Control, Operation};
use sluice_offload_tc::wire::filter::{Filter, FilterView, Hook};
use sluice_offload_tc::wire::key::Key;

use crate::device::{Device, OWNER, Rule};
use crate::network::Network;
use crate::stories;

stories![
    a_rule_left_under_a_name_lets_no_second_one_of_a_match_in,
    a_flow_of_an_odd_protocol_meets_the_rule_that_another_agent_has_for_it,
    one_match_has_one_rule_whatever_was_lost_left_or_changed,
];

const OTHER: Owner = Owner(0xbeef);
const STEPS: usize = 200;

fn open(owner: Owner) -> Device {
    let mut device = Device::bare(OffloadPolicy::SkipHardware, owner);
    device.attach(1);
    device.attach(2);
    device
}

fn a_rule_left_under_a_name_lets_no_second_one_of_a_match_in(network: &Network) {
    let key = |host: u8| format!("in_port(1),eth_type(0x0800),ipv4(dst=10.9.0.{host})");
    // Left under the first name, by a run whose knowledge is lost.
    open(OWNER).install(&key(1), "2").unwrap();
    open(OTHER).install(&key(2), "2").unwrap();
    let mut third = open(OWNER);
    assert_eq!(third.install(&key(2), "2").unwrap_err().label(), "kernel", "another has it");
    assert_eq!(doubled(network), Vec::<String>::new());
    assert_eq!(rules(network).len(), 1, "what nobody wants does not stay under the name");
    third.install(&key(1), "2").unwrap();
}

fn a_flow_of_an_odd_protocol_meets_the_rule_that_another_agent_has_for_it(network: &Network) {
    let mut other = open(OTHER);
    other.install("in_port(2),eth_type(0x9000)", "1").unwrap();
    other.install("in_port(1),eth_type(0x9001)", "2").unwrap();
    // What it has met before decides nothing.
    let mut ours = open(OWNER);
    assert_eq!(ours.install("in_port(1),eth_type(0x9001)", "2").unwrap_err().label(), "kernel");
    assert_eq!(doubled(network), Vec::<String>::new());
}

/// Runs begin and end, with and without what earlier ones knew; flows come, go and change; somebody deletes rules and puts others
/// in their place.
fn one_match_has_one_rule_whatever_was_lost_left_or_changed(network: &Network) {
    for seed in 1..=2 {
        let mut dice = Dice(seed);
        let mut device = open(OWNER);
        let mut known: BTreeMap<String, Rule> = BTreeMap::new();
        let mut accepted = 0;
        for step in 0..STEPS {
            let key = key(&mut dice);
            match dice.roll(12) {
                0 => {
                    drop(device);
                    device = open(if dice.roll(2) == 0 { OWNER } else { OTHER });
                    known.clear();
                    if dice.roll(2) == 0 {
                        let mut slot = 1_000_000;
                        let mut claim = |_: &InstalledRule| {
                            slot += 1;
                            (dice.roll(3) > 0).then_some((FlowId { slot, incarnation: 1 }, Generation(1)))
                        };
                        device.adoption().adopt(&mut claim).unwrap();
                    }
                }
                1 => meddle(network, &mut dice),
                2 | 3 => {
                    if let Some(rule) = known.remove(&key) {
                        device.remove(rule);
                    }
                }
                4..=6 => {
                    if let Some(rule) = known.get(&key).copied() {
                        let modified = device.modify(rule, &key, actions(&mut dice));
                        if modified.is_err() {
                            device.remove(rule);
                            known.remove(&key);
                        }
                    }
                }
                _ => {
                    if !known.contains_key(&key)
                        && let Ok(rule) = device.install(&key, actions(&mut dice))
                    {
                        accepted += 1;
                        known.insert(key, rule);
                    }
                }
            }
            assert_eq!(doubled(network), Vec::<String>::new(), "seed {seed}, step {step}");
        }
        assert!(accepted > STEPS / 20, "{accepted} were accepted");
        drop(device);
        for owner in [OWNER, OTHER] {
            open(owner).backend.flush().unwrap();
        }
    }
}

/// Few enough that all that can happen to one does.
fn key(dice: &mut Dice) -> String {
    let port = dice.roll(2) + 1;
    match dice.roll(4) {
        0 => format!("in_port({port}),eth_type({:#06x})", 0x9000 + dice.roll(3)),
        _ => format!("in_port({port}),eth_type(0x0800),ipv4(dst=10.9.0.{})", dice.roll(6)),
    }
}

fn actions(dice: &mut Dice) -> &'static str {
    ["1", "2", "drop", "set(ipv4(ttl=9)),2", "dec_ttl(le_1(drop)),2"][dice.roll(5) as usize]
}

/// Deletes a rule, or puts one in its place that matches what no other does.
fn meddle(network: &Network, dice: &mut Dice) {
    let rules = rules(network);
    let Some(rule) = rules.get(dice.roll(64) as usize) else { return };
    let mut rule = rule.clone();
    let request = match rule.flower.keys.iter_mut().find(|key| key.key == Key::Ipv4Dst) {
        Some(address) if dice.roll(2) == 0 => {
            address.value = 0x0a09_0100 + u128::from(dice.roll(u32::MAX) & 0xf_ffff);
            let drop = || Action::new(Operation::Generic, Control::Shot);
            // With the notes on it, or without.
            let is_noted = dice.roll(2) == 0;
            let noted = |action: &Action| Action { cookie: action.cookie.filter(|_| is_noted), ..drop() };
            rule.flower.actions = rule.flower.actions.iter().take(2).map(noted).collect();
            rule.flower.hardware_count = None;
            rule.flower.flags = sluice_offload_tc::install::flags(OffloadPolicy::SkipHardware);
            Request::Replace(rule)
        }
        _ => Request::Delete(rule.id),
    };
    let mut installer = Installer::open(OffloadPolicy::SkipHardware).unwrap();
    installer.submit(&[request]).pop().unwrap().unwrap();
}

/// All rules at both ports.
fn rules(_: &Network) -> Vec<Filter> {
    let mut rules = vec![];
    for port in ["p1", "p2"] {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let interface = name_to_index(socket, port).unwrap();
        let mut see = |view: &FilterView<'_>| {
            rules.push(view.parse().unwrap());
            Ok(())
        };
        let hook = Hook::Ingress { interface };
        let _ = Lister::open().unwrap().list(hook, Detail::Full, &mut see).unwrap();
    }
    rules
}

/// Matches that more than one rule has.
fn doubled(network: &Network) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for Filter { id, flower } in rules(network) {
        let place = (id.hook, id.chain, id.protocol);
        *counts.entry(format!("{place:?} {:?}", (flower.keys, flower.options, flower.labels))).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(rule, _)| rule).collect()
}

/// Numbers that are the same in every run (xorshift).
struct Dice(u32);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % sides
    }
}
