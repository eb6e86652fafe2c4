//! Plays a scenario to OVS's userspace datapath and to the software NIC, and compares.

use std::fmt;
use std::sync::Arc;

use sluice_flow::Match;
use sluice_flow::action::jumps;
use sluice_flow::field::Field;
use sluice_flow::port::{Port, PortKind, PortNumber, Tunnel, TunnelProtocol};
use sluice_flow::refusal::Refusal;
use sluice_tests::scenario::{Scenario, flow_text, hex};
use sluice_tests::soft::{Sent, Soft};
use sluice_tests::vswitchd::{PORTS, Vswitchd, Wires};

use crate::by_hand::actions;
use crate::mask::mask;
use crate::text;

/// Shorter ones are no Ethernet frames, and neither side takes them.
const SHORTEST: usize = 14;

/// What came of a scenario.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Both did the same: so many packets went in, so many frames came out.
    Equal { packets: usize, frames: usize },
    /// They did not.
    Differs(Difference),
    /// This packet was the end of the OVS daemon.
    EndOfOvs { packet: usize },
    /// OVS did not want a flow; what the software NIC said to it.
    RefusedByOvs(String, Result<(), Refusal>),
    /// Only the software NIC did not want a flow.
    RefusedByOurs(Refusal),
}

/// A flow that one of both did not want.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) flow: String,
    pub(crate) ovs: Result<(), String>,
    pub(crate) ours: Result<(), Refusal>,
}

/// The first packet of which something else came.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// Which packet, from 0.
    pub(crate) packet: usize,
    pub(crate) ovs: Sent,
    pub(crate) ours: Sent,
}

/// The two sides.
pub(crate) struct Judge {
    vswitchd: Vswitchd,
    wires: Wires,
    ports: Vec<Port>,
}

impl Judge {
    /// Wires and nothing else.
    pub(crate) fn new() -> Self {
        let vswitchd = Vswitchd::start();
        let wires = Wires::new(&vswitchd);
        let wire = |number| Port {
            number: PortNumber(number),
            name: format!("p{number}").parse().expect("a name"),
            kind: PortKind::Physical,
        };
        // OVS has no underlay: it pops where a flow says so. Out of the last of ours nothing ever comes.
        let ports = (1..=PORTS).chain([UNDERLAY]).map(wire).collect();
        Self { vswitchd, wires, ports }
    }

    /// Adds a group to OVS, in the words of `ovs-ofctl`.
    pub(crate) fn add_group(&self, group: &str) {
        self.vswitchd.add_group(group);
    }

    /// Adds a meter to OVS, in the words of `ovs-ofctl`; the first has the number 0.
    pub(crate) fn add_meter(&self, meter: &str) {
        self.vswitchd.add_meter(meter);
    }

    /// Adds a tunnel port, and returns the number that OVS gave it.
    pub(crate) fn add_tunnel(&mut self, protocol: TunnelProtocol) -> PortNumber {
        let number = self.vswitchd.add_tunnel(protocol.name());
        let udp_port = protocol.default_udp_port();
        let kind = PortKind::Tunnel(Tunnel { protocol, udp_port, underlay: PortNumber(UNDERLAY) });
        self.ports.push(Port { number, name: protocol.name().parse().expect("a name"), kind });
        number
    }

    /// What the software NIC alone does with the packets of a scenario, in order.
    pub(crate) fn ours(&self, scenario: &Scenario) -> Result<Vec<Sent>, Refusal> {
        let soft = Soft::set_up(&self.ports, scenario)?;
        Ok(scenario.packets.iter().map(|(port, frame)| soft.inject(*port, frame)).collect())
    }

    /// Splits a scenario's flows into those that both take and the others, with the word of each side.
    pub(crate) fn split(&mut self, scenario: Scenario) -> (Scenario, Vec<Refused>) {
        self.wires.clear();
        let mut refused = Vec::new();
        let mut taken = Scenario { flows: Vec::new(), ..scenario };
        for (matching, actions) in scenario.flows {
            let ovs = self.wires.add(&text::key(&matching), &text::actions(&actions));
            let alone = Scenario::new("").flow(matching, Arc::clone(&actions));
            let ours = Soft::set_up(&self.ports, &alone).map(drop);
            if ovs.is_ok() && ours.is_ok() {
                taken.flows.push((matching, actions));
            } else {
                refused.push(Refused { flow: flow_text(&matching, &actions), ovs, ours });
            }
        }
        (taken, refused)
    }

    /// The difference again, with this packet only and without the flows that do not matter.
    pub(crate) fn shrink(&mut self, scenario: &Scenario, packet: usize) -> Option<(Scenario, Difference)> {
        let mut smallest = Scenario { packets: vec![scenario.packets[packet].clone()], ..scenario.clone() };
        let Outcome::Differs(mut difference) = self.play(&smallest) else {
            return None;
        };
        for index in (0..scenario.flows.len()).rev() {
            let mut smaller = smallest.clone();
            smaller.flows.remove(index);
            if let Outcome::Differs(still) = self.play(&smaller) {
                (smallest, difference) = (smaller, still);
            }
        }
        Some((smallest, difference))
    }

    /// Has OVS make the actions for a frame out of an OpenFlow rule, and plays them to the software NIC: in this way also
    /// what OVS writes and does not read. The actions of all chains come with the outcome.
    pub(crate) fn play_rule(&mut self, rule: &str, mut matching: Match, frame: &[u8]) -> (String, Outcome) {
        self.wires.clear();
        self.vswitchd.set_rule(rule);
        let lists = self.vswitchd.datapath_actions(1, frame);
        let mut scenario = Scenario::new(rule).packet(1, frame.to_vec());
        // What comes behind a hash is not told; rules with one send to port 2.
        for list in lists.iter().map(String::as_str).chain(["2"]) {
            let list = actions(list);
            let next = jumps(&list).first().copied();
            scenario = scenario.flow(matching, list);
            let Some(chain) = next else { break };
            matching.set_exact(Field::RecircId, chain.0.into());
        }
        let outcome = match Soft::set_up(&self.ports, &scenario) {
            Ok(soft) => self.compare(&scenario, &soft),
            Err(refusal) => Outcome::RefusedByOurs(refusal),
        };
        (lists.join("; "), outcome)
    }

    /// Plays a scenario.
    pub(crate) fn play(&mut self, scenario: &Scenario) -> Outcome {
        let soft = Soft::set_up(&self.ports, scenario);
        self.wires.clear();
        self.wires.forget_connections();
        for (matching, actions) in &scenario.flows {
            if let Err(reason) = self.wires.add(&text::key(matching), &text::actions(actions)) {
                return Outcome::RefusedByOvs(reason, soft.map(drop));
            }
        }
        let soft = match soft {
            Ok(soft) => soft,
            Err(refusal) => return Outcome::RefusedByOurs(refusal),
        };
        self.compare(scenario, &soft)
    }

    fn compare(&mut self, scenario: &Scenario, soft: &Soft) -> Outcome {
        let (mut packets, mut frames) = (0, 0);
        for (packet, (port, frame)) in scenario.packets.iter().enumerate() {
            if frame.len() < SHORTEST {
                continue;
            }
            let mut ovs = Sent::new();
            let Some(sent) = self.wires.play(port.0, frame) else {
                self.vswitchd = Vswitchd::start();
                self.wires = Wires::new(&self.vswitchd);
                return Outcome::EndOfOvs { packet };
            };
            for (port, frame) in sent {
                ovs.entry(port).or_default().push(frame);
            }
            let ours = soft.inject(*port, frame);
            if masked(&ovs) != masked(&ours) {
                return Outcome::Differs(Difference { packet, ovs, ours });
            }
            packets += 1;
            frames += ours.values().map(Vec::len).sum::<usize>();
        }
        Outcome::Equal { packets, frames }
    }
}

/// The port of the software NIC under its tunnels.
const UNDERLAY: u32 = 60_000;

fn masked(sent: &Sent) -> Sent {
    sent.iter().map(|(port, frames)| (*port, frames.iter().map(|frame| mask(frame)).collect())).collect()
}

/// Both outputs in hexadecimal, a line for each frame.
impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (who, sent) in [("OVS", &self.ovs), ("ours", &self.ours)] {
            if sent.is_empty() {
                writeln!(out, "  packet {}: {who:4} sent nothing", self.packet)?;
            }
            for (port, frame) in sent.iter().flat_map(|(port, frames)| frames.iter().map(move |frame| (port, frame))) {
                writeln!(out, "  packet {}: {who:4} sent out of {port}: {}", self.packet, hex(frame))?;
            }
        }
        Ok(())
    }
}
