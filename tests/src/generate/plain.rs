//! Plain flows: what a NIC has words for, and for packets that come in at wires.

use std::sync::Arc;

use sluice_flow::ChainId;
use sluice_flow::action::ActionKind;
use sluice_flow::field::{ATTRIBUTES, Attribute, Field};

use super::{Feature, Form, Packets, Profile, collect, fields_of};
use crate::scenario::Scenario;

/// What flows look at.
const MATCHED: &[Attribute] = &[
    Attribute::RecircId,
    Attribute::InPort,
    Attribute::Ethernet,
    Attribute::Vlan,
    Attribute::Cvlan,
    Attribute::EthType,
    Attribute::Ipv4,
    Attribute::Ipv6,
    Attribute::Tcp,
    Attribute::TcpFlags,
    Attribute::Udp,
    Attribute::Icmp,
    Attribute::Icmpv6,
];

/// What flows do.
const DONE: &[ActionKind] = &[
    ActionKind::Output,
    ActionKind::Set,
    ActionKind::DecTtl,
    ActionKind::PushVlan,
    ActionKind::PopVlan,
    ActionKind::Drop,
];

/// Flows without what most NICs have no words for, so that most of them are taken.
pub fn plain_profile() -> Profile {
    let others = ATTRIBUTES.iter().map(|spec| spec.attribute).filter(|attribute| !MATCHED.contains(attribute));
    let kinds = ActionKind::ALL.iter().copied().filter(|kind| !DONE.contains(kind));
    Profile::everything()
        .without("fields", "the device does not match them", others.flat_map(fields_of))
        .without("actions", "the device does not do them", kinds.map(Feature::Action))
        .without("types", "it looks into IP only", [Feature::Form(Form::OtherEthType), Feature::Form(Form::Rarp)])
}

/// So many flows that are in a device at the same time, each at a port and from an address of its own, and packets for them: some that
/// hit, and some that miss by a bit.
pub fn plain_flows(count: usize) -> Scenario {
    /// Of those that are drawn, most are in a later chain.
    const DRAWN: usize = 8;
    /// With the greatest packet of Ethernet in it, and no tag.
    const LONGEST: usize = 1514;
    let (sets, _) = collect(&Arc::new(plain_profile()), (count * DRAWN) as u64);
    let first =
        sets.into_iter().flatten().filter(|flow| flow.matching.is_exactly(Field::RecircId, ChainId::ROOT.0.into()));
    let mut scenario = Scenario::new(format!("{count} plain flows"));
    let mut packets = Packets::of_seed(count as u64);
    for (address, flow) in (0x0200_0000_0000_u128..).zip(first).take(count) {
        let mut full = super::flower::at_a_port(flow.matching);
        full.set_exact(Field::EthSrc, address);
        let comes_in = |(_, frame): &(_, Vec<u8>)| frame.len() <= LONGEST;
        scenario.packets.extend(packets.of(&full).into_iter().flatten().filter(comes_in));
        scenario.flows.push((full, flow.actions));
    }
    scenario
}
