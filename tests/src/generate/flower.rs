//! Flows that tc-flower can have as rules, and packets for them.

use std::sync::Arc;

use proptest::strategy::{BoxedStrategy, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sluice_flow::action::{ActionKind, ActionList};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;

use super::packet::{self, Packet};
use super::{Feature, Form, GeneratedFlow, Profile, fields_of, flows};
use crate::lab::GENEVE;
use crate::scenario::Scenario;

/// Tries to find a bit by which a packet misses.
const TRIES: u32 = 8;

/// Generated flows, the same for the same seed.
pub struct FlowerFlows {
    seed: u64,
    drawn: u64,
    played: BoxedStrategy<Vec<GeneratedFlow>>,
    sayable: BoxedStrategy<Vec<GeneratedFlow>>,
}

impl FlowerFlows {
    /// The first ones of a seed.
    pub fn new(seed: u64) -> Self {
        let [played, sayable] = [played(), for_a_kernel()].map(|profile| flows(&Arc::new(profile)).boxed());
        Self { seed, drawn: 0, played, sayable }
    }

    /// How often some were drawn.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// Flows at wires, and where their packets come from.
    pub fn scenario(&mut self) -> (Scenario, Packets) {
        let name = format!("generated {} of seed {}", self.drawn, self.seed);
        let packets = Packets(self.seed ^ self.drawn.rotate_left(32));
        let drawn = self.played.new_tree(&mut self.runner()).expect("nothing is rejected").current();
        self.drawn += 1;
        let flows = drawn.into_iter().map(|flow| (at_a_port(flow.matching), flow.actions)).collect();
        (Scenario { flows, ..Scenario::new(name) }, packets)
    }

    /// Flows for which there need not be packets.
    pub fn flows(&mut self) -> impl Iterator<Item = (Match, ActionList)> + use<> {
        let strategy = if self.drawn.is_multiple_of(4) { &self.played } else { &self.sayable };
        let drawn = strategy.new_tree(&mut self.runner()).expect("nothing is rejected").current();
        self.drawn += 1;
        drawn.into_iter().map(|flow| (at_its_port(flow.matching), flow.actions))
    }

    fn runner(&self) -> TestRunner {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.drawn.to_le_bytes());
        TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }
}

/// Packets for generated flows, out of numbers (splitmix64).
pub struct Packets(u64);

impl Packets {
    /// Others for each seed.
    pub fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// One that hits and one that misses by one bit, if such ones can come in, each with its port.
    pub fn of(&mut self, full: &Match) -> [Option<(PortNumber, Vec<u8>)>; 2] {
        let comes_in = |packet: &Packet| packet::comes_in(&packet.key);
        let hit = packet::hit(full, self.next()).filter(comes_in);
        let misses = (0..TRIES).filter_map(|_| packet::near_miss(full, self.next()));
        let miss = misses.map(|(packet, _)| packet).find(comes_in);
        [hit, miss].map(|packet| packet.map(|packet| (packet::port(&packet.key), packet.frame)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// What a wire can bring and flower can say, and what two right datapaths do not choose for themselves.
fn played() -> Profile {
    let choices = [Form::NatRange, Form::NatPortRange];
    for_a_kernel()
        .without("tunnels", "packets come in at wires", fields_of(Attribute::Tunnel))
        .without("outer headers", "packets go out of wires", [Feature::Action(ActionKind::SetTunnel)])
        .without("meters", "there are none", [Feature::Action(ActionKind::Meter)])
        .without("choices", "every datapath chooses for itself", choices.map(Feature::Form))
}

/// What a rule can say and a kernel is sure to know.
fn for_a_kernel() -> Profile {
    flower_profile().without("helpers", "a kernel knows a few by name", [Feature::Form(Form::CtHelper)])
}

/// Flows without what no rule can say, so that there are more rules among them.
pub fn flower_profile() -> Profile {
    let attributes = [
        Attribute::DpHash,
        Attribute::SkbPriority,
        Attribute::SkbMark,
        Attribute::CtTuple4,
        Attribute::CtTuple6,
        Attribute::Nd,
        Attribute::NdExt,
        Attribute::Nsh,
    ];
    let kinds = [
        ActionKind::AddMpls,
        ActionKind::Clone,
        ActionKind::Hash,
        ActionKind::LbOutput,
        ActionKind::PopEth,
        ActionKind::PopNsh,
        ActionKind::PushEth,
        ActionKind::PushNsh,
        ActionKind::TnlPop,
        ActionKind::TnlPush,
        ActionKind::Trunc,
        ActionKind::Userspace,
    ];
    let forms = [
        Form::IpPacket,
        Form::MaskedProtocol,
        Form::Rarp,
        Form::CtTimeout,
        Form::NatPersistent,
        Form::NatHash,
        Form::NatRandom,
        Form::PushTagWithoutCfi,
        Form::MoreAfterRecirc,
        Form::Cookie,
    ];
    let gtpu = [Field::GtpuPresent, Field::GtpuFlags, Field::GtpuMessageType];
    let gtpu = gtpu.into_iter().flat_map(|field| [Feature::Field(field), Feature::SetTunnel(field)]);
    Profile::everything()
        .without("fields", "flower has no key for them", attributes.into_iter().flat_map(fields_of))
        .without("GTP-U", "tc knows another part of it", gtpu)
        .without("actions", "tc has none", kinds.map(Feature::Action))
        .without("forms", "a rule cannot say them", forms.map(Feature::Form))
}

/// The same match at a port, if it is of any.
pub(super) fn at_a_port(mut full: Match) -> Match {
    if full.mask.get(Field::InPort) == 0 {
        full.set_exact(Field::InPort, 1);
    }
    full
}

/// The same match at a port that is a tunnel if it says so.
fn at_its_port(full: Match) -> Match {
    let mut full = at_a_port(full);
    if full.is_exactly(Field::TunnelPresent, 1) {
        full.set_exact(Field::InPort, GENEVE.into());
    }
    full
}
