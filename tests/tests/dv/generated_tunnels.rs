//! Generated flows at tunnel ports: packets come out of tunnels and go into them as in the NIC in software.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use sluice_flow::ChainId;
use sluice_flow::action::{Action, ActionKind, ActionList};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::text::{parse_actions, parse_key};
use sluice_offload_dv::switch::RuleId;
use sluice_tests::generate::{collect, packet, plain_profile};
use sluice_tests::mlx5::on_device;
use sluice_tests::scenario::{Scenario, flow_text, hex};
use sluice_tests::soft::Soft;

use crate::frames::{is_fragment, is_known, leaves_fragments};
use crate::generated::{flow, told};
use crate::rig::Rig;
use crate::tunnels::{PROFILES, add_with_way, all_ports, expected, open};
use crate::wrapped::{Header, Outer, without_entropy};

/// Flows that are drawn, and how many must be taken of each kind: those that take headers off, in one chain or in two, and those that put
/// headers on.
const DRAWN: u64 = 9_000;
const LEAST: usize = 600;
const CHAIN: ChainId = ChainId(7);

#[test]
fn generated_flows_of_tunnels_do_what_they_do_in_the_nic_in_software() {
    for device in PROFILES {
        let name = "generated_tunnels::generated_flows_of_tunnels_do_what_they_do_in_the_nic_in_software";
        on_device(device, name, |wires| {
            let mut comparison = Comparison { rig: open(wires), taken: BTreeMap::new(), refusals: BTreeMap::new() };
            let (sets, _) = collect(&Arc::new(plain_profile()), DRAWN);
            for (number, generated) in (0_u64..).zip(sets.into_iter().flatten()) {
                if !generated.matching.is_exactly(Field::RecircId, 0) {
                    continue;
                }
                let (full, actions) = (generated.matching, generated.actions);
                match number % 3 {
                    0 => comparison.out_of_a_tunnel(number, full, actions),
                    1 => comparison.in_a_later_chain(number, full, actions),
                    _ => comparison.wrapped_in_a_tunnel(number, full, &actions),
                }
            }
            for (refusal, flows) in &comparison.refusals {
                println!("{flows:6} refused: {refusal}");
            }
            println!("{:?}", comparison.taken);
            let kinds = ["out of a tunnel", "out of a tunnel in two chains", "into a tunnel"];
            assert!(kinds.iter().all(|kind| comparison.taken.get(kind) >= Some(&LEAST)), "{:?}", comparison.taken);
        });
    }
}

struct Comparison<'a> {
    rig: Rig<'a>,
    taken: BTreeMap<&'static str, usize>,
    refusals: BTreeMap<String, usize>,
}

impl Comparison<'_> {
    fn out_of_a_tunnel(&mut self, number: u64, inside: Match, actions: ActionList) {
        let tunnel = Tunnel::draw(number);
        let full = tunnel.around(&inside);
        if let Some(ids) = self.install("out of a tunnel", &[(full, actions.clone())]) {
            let only_whole = leaves_fragments(&flow(&full, actions.clone()));
            self.compare(&ids, &[(full, actions)], 1, &tunnel.frames(number, &inside, only_whole));
        }
    }

    /// The first chain looks at the outer headers, and the second one at what is inside.
    fn in_a_later_chain(&mut self, number: u64, inside: Match, actions: ActionList) {
        let tunnel = Tunnel::draw(number);
        let mut first = Match::default();
        first.set_exact(Field::RecircId, 0);
        let first = tunnel.around(&first);
        let mut later = inside;
        later.set_exact(Field::RecircId, CHAIN.0.into());
        later.set_exact(Field::InPort, first.key.get(Field::InPort));
        let flows = [(later, actions), (first, [Action::Recirc(CHAIN)].into())];
        if let Some(ids) = self.install("out of a tunnel in two chains", &flows) {
            let only_whole = leaves_fragments(&flow(&flows[0].0, flows[0].1.clone()));
            self.compare(&ids, &flows, 1, &tunnel.frames(number, &inside, only_whole));
        }
    }

    fn wrapped_in_a_tunnel(&mut self, number: u64, mut full: Match, actions: &ActionList) {
        let from = 2 + number % 3;
        full.set_exact(Field::InPort, from.into());
        // The mark of congestion, which the outer header gets.
        let marked = match full.key.get(Field::EthType) {
            0x0800 => Some(Field::Ipv4Tos),
            0x86dd => Some(Field::Ipv6Tclass),
            _ => None,
        };
        if let Some(field) = marked {
            full.set(field, full.key.get(field) & !3 | u128::from(number >> 8 & 3), full.mask.get(field) | 3);
        }
        let changes = actions.iter().filter(|action| {
            matches!(action.kind(), ActionKind::Set | ActionKind::PushVlan | ActionKind::PopVlan | ActionKind::DecTtl)
        });
        let into = parse_actions(&Tunnel::draw(number).set(), &()).unwrap();
        let flows = [(full, changes.chain(into.iter()).cloned().collect())];
        let Some(ids) = self.install("into a tunnel", &flows) else { return };
        let frames: Vec<_> = packets(number, &full, leaves_fragments(&flow(&full, flows[0].1.clone()))).collect();
        self.compare(&ids, &flows, usize::try_from(from).unwrap(), &frames);
    }

    /// Puts flows in, all of them or none.
    fn install(&mut self, kind: &'static str, flows: &[(Match, ActionList)]) -> Option<Vec<RuleId>> {
        let mut ids = vec![];
        for (full, actions) in flows {
            match add_with_way(&mut self.rig, &flow(full, actions.clone())) {
                Ok(id) => ids.push(id),
                Err(refusal) => {
                    *self.refusals.entry(format!("{kind}: {refusal}")).or_default() += 1;
                    self.rig.switch.remove(&ids).unwrap();
                    return None;
                }
            }
        }
        *self.taken.entry(kind).or_default() += 1;
        Some(ids)
    }

    /// Lets the frames in at a port, and takes the flows out again.
    fn compare(&mut self, ids: &[RuleId], flows: &[(Match, ActionList)], from: usize, frames: &[Vec<u8>]) {
        let text: Vec<_> = flows.iter().map(|(full, actions)| flow_text(full, actions)).collect();
        let scenario = flows
            .iter()
            .fold(Scenario::new("tunnels"), |scenario, (full, actions)| scenario.flow(*full, actions.clone()));
        let soft = Soft::set_up(&all_ports(), &scenario).unwrap_or_else(|refusal| panic!("{text:?}: {refusal}"));
        let mut counts = vec![0; flows.len()];
        for frame in frames {
            let (mut wanted, hits) = expected(&soft, flows.len(), from, frame);
            hits.iter().for_each(|hit| counts[*hit as usize - 1] += 1);
            let mut found = self.rig.inject(from, frame);
            for (_, sent) in found.iter_mut().filter(|(port, _)| *port == 1 && from != 1) {
                *sent = without_entropy(std::mem::take(sent));
            }
            wanted.sort();
            found.sort();
            assert!(found == wanted, "{text:?} of {}: {}, not {}", hex(frame), told(&found), told(&wanted));
        }
        let counted: Vec<_> = self.rig.switch.remove(ids).unwrap().iter().map(|count| count.packets).collect();
        assert_eq!(counted, counts, "what is counted of {text:?}");
    }
}

/// Frames for a match: one that it takes, and some that it does not because of a bit. Fragments that are left to software are those of
/// another story.
fn packets(number: u64, full: &Match, only_whole: bool) -> impl Iterator<Item = Vec<u8>> {
    let misses = (0..2).filter_map(move |turn| packet::near_miss(full, number * 2 + turn));
    let all = packet::hit(full, number).into_iter().chain(misses.map(|(packet, _)| packet));
    all.map(|packet| packet.frame).filter(move |frame| is_known(frame) && !(only_whole && is_fragment(frame)))
}

/// A tunnel port, outer headers, and what is matched of them.
struct Tunnel {
    port: u32,
    outer: Outer,
    key: Vec<String>,
}

impl Tunnel {
    fn draw(number: u64) -> Self {
        let mut dice = Dice(number);
        let (port, id) = (10 + dice.below(3), dice.below(1 << 24));
        let mut key = vec![];
        let mut flags = "flags(+key)";
        let identifier = dice.masked(id, 24);
        let tunnel = match port {
            10 => {
                let (policy, applied) = (dice.below(1 << 16), dice.below(2) << 3);
                let has_policy = dice.below(2) == 1;
                match (has_policy, dice.below(3)) {
                    (true, 0) => key.push(format!("vxlan(gbp(id={policy:#x}))")),
                    (true, 1) => key.push(format!("vxlan(gbp(id={policy:#x},flags={applied:#x}))")),
                    _ => {}
                }
                let word = 0x8800_0000 | applied << 16 | policy;
                Header::Vxlan(if has_policy { word } else { 0x0800_0000 }, id)
            }
            11 => {
                // Data of zero is found by one of the devices only.
                let (kind, data) = (dice.below(0x100), 1 + dice.below(u32::MAX - 1));
                let options = match dice.below(4) {
                    0 => vec![],
                    1 => {
                        key.push("geneve()".to_owned());
                        vec![]
                    }
                    turn => {
                        let mask = if turn == 2 { u32::MAX } else { lowest_bit(data) | dice.below(u32::MAX) };
                        key.push(format!("geneve({{class=0x102,type={kind:#x},len=4,{data:#x}/{mask:#x}}})"));
                        [&[1, 2, kind.to_be_bytes()[3], 1][..], &data.to_be_bytes()].concat()
                    }
                };
                Header::Geneve(dice.below(8) == 0, id, options)
            }
            _ if dice.below(3) == 0 => {
                flags = "flags(-key)";
                Header::Gre(None, false)
            }
            _ => Header::Gre(Some(id), false),
        };
        if flags == "flags(+key)" {
            key.extend(identifier.map(|(value, mask)| format!("tun_id={value:#x}/{mask:#x}")));
        }
        let tos = [0, 0, 0xb8, 0x02][dice.below(4) as usize];
        let [source_port, ttl] = [dice.below(1 << 14) + (3 << 14), 1 + dice.below(255)];
        let plain = Outer { tunnel, ..Outer::vxlan(0) };
        let addressed = if dice.below(3) == 0 { plain.v6() } else { plain };
        let outer = Outer {
            tos,
            ttl: u8::try_from(ttl).unwrap(),
            source_port: u16::try_from(source_port).unwrap(),
            ..addressed
        };
        let prefix = if outer.source.is_ipv6() { "ipv6_" } else { "" };
        for (name, address) in [("src", outer.source), ("dst", outer.destination)] {
            match dice.below(3) {
                0 => key.push(format!("{prefix}{name}={address}")),
                1 => key.push(format!("{prefix}{name}={address}/{}", mask_of(address))),
                _ => {}
            }
        }
        if dice.below(3) == 0 {
            key.push(format!("tos={tos:#x}"));
        }
        if dice.below(3) == 0 {
            key.push(format!("ttl={ttl}"));
        }
        if port != 12 && dice.below(3) == 0 {
            key.push(format!("tp_src={source_port}"));
        }
        key.push(flags.to_owned());
        Self { port, outer, key }
    }

    /// A match on what is inside, and on the outer headers.
    fn around(&self, inside: &Match) -> Match {
        let text = format!("tunnel({}),in_port({})", self.key.join(","), self.port);
        let outside = parse_key(&text, &()).unwrap_or_else(|error| panic!("{text}: {error}")).matching;
        let mut full = *inside;
        full.set_exact(Field::InPort, self.port.into());
        for field in Attribute::Tunnel.fields().map(|spec| spec.field) {
            full.set(field, outside.key.get(field), outside.mask.get(field));
        }
        full
    }

    /// Frames that the match takes, and some that it may not take because of a bit inside or outside.
    fn frames(&self, number: u64, inside: &Match, only_whole: bool) -> Vec<Vec<u8>> {
        let mut inside = *inside;
        inside.set_exact(Field::InPort, 1);
        let mut frames: Vec<_> = packets(number, &inside, only_whole).map(|frame| self.outer.around(&frame)).collect();
        if let Some(frame) = packets(number, &inside, only_whole).next() {
            frames.extend(self.others(number).iter().map(|outer| outer.around(&frame)));
        }
        frames
    }

    /// Outer headers that differ.
    fn others(&self, number: u64) -> [Outer; 5] {
        let bit = |width: u64| 1_u32 << (number % width);
        let change = |change: &dyn Fn(&mut Outer)| {
            let mut outer = self.outer.clone();
            change(&mut outer);
            outer
        };
        [
            change(&|outer| match &mut outer.tunnel {
                Header::Vxlan(_, id) | Header::Geneve(_, id, _) => *id ^= bit(24),
                Header::Gre(key, _) => *key = key.map(|key| key ^ bit(32)),
            }),
            change(&|outer| match &mut outer.tunnel {
                Header::Vxlan(word, _) => *word ^= bit(16),
                Header::Geneve(_, _, options) if options.is_empty() => *options = vec![1, 2, 3, 0],
                Header::Geneve(_, _, options) => {
                    let last = options.len() - 1;
                    options[last] ^= 1 << (number % 8);
                }
                Header::Gre(key, _) => *key = if key.is_some() { None } else { Some(0) },
            }),
            change(&|outer| outer.source = near(outer.source, number)),
            change(&|outer| outer.destination = near(outer.destination, number)),
            change(&|outer| {
                outer.tos ^= 4 << (number % 6);
                outer.ttl ^= 1 << (number % 8);
                outer.source_port ^= 1 << (number % 14);
            }),
        ]
    }

    /// The same headers as actions that put them on.
    fn set(&self) -> String {
        let Outer { source, destination, tos, ttl, .. } = &self.outer;
        let prefix = if source.is_ipv6() { "ipv6_" } else { "" };
        let (id, options) = match &self.outer.tunnel {
            Header::Vxlan(0x0800_0000, id) => (Some(*id), String::new()),
            Header::Vxlan(word, id) => {
                (Some(*id), format!(",vxlan(gbp(id={},flags={:#x}))", word & 0xffff, word >> 16 & 0x48))
            }
            Header::Geneve(_, id, options) if options.is_empty() => (Some(*id), String::new()),
            Header::Geneve(_, id, options) => {
                (Some(*id), format!(",geneve({{class=0x102,type={:#x},len=4,0x{}}})", options[2], hex(&options[4..])))
            }
            Header::Gre(key, _) => (*key, String::new()),
        };
        let (id, flags) = match id {
            Some(id) => (format!("tun_id={id:#x},"), "df|key"),
            None => (String::new(), "df"),
        };
        let addresses = format!("{prefix}src={destination},{prefix}dst={source}");
        // A source that follows from the way is that of another story.
        format!("set(tunnel({id}{addresses},tos={tos:#x},ttl={ttl}{options},flags({flags}))),{}", self.port)
    }
}

/// An address that differs in one of its last 16 bits.
fn near(address: IpAddr, number: u64) -> IpAddr {
    match address {
        IpAddr::V4(address) => std::net::Ipv4Addr::from_bits(address.to_bits() ^ 1 << (number % 16)).into(),
        IpAddr::V6(address) => std::net::Ipv6Addr::from_bits(address.to_bits() ^ 1 << (number % 16)).into(),
    }
}

/// All but the last byte.
fn mask_of(address: IpAddr) -> &'static str {
    if address.is_ipv6() { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00" } else { "255.255.255.0" }
}

fn lowest_bit(bits: u32) -> u32 {
    bits & bits.wrapping_neg()
}

/// Numbers that look random, the same in every run (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((bits ^ bits >> 31) % u64::from(limit)).unwrap()
    }

    /// Nothing, all of a value, or some bits of it.
    fn masked(&mut self, value: u32, width: u32) -> Option<(u32, u32)> {
        let full = u32::MAX >> (32 - width);
        match self.below(4) {
            0 => None,
            1 => Some((value & 0xff, 0xff)),
            2 => Some((value & 0x00ff_ff00, 0x00ff_ff00)),
            _ => Some((value, full)),
        }
    }
}
