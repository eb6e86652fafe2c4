//! The flows of one direction of a connection.

use std::net::IpAddr;
use std::sync::Arc;

use sluice_ctnetlink::wire::TCP;
use sluice_flow::action::{self, Action, ActionList, FieldSet};
use sluice_flow::connection::Direction;
use sluice_flow::field::{Attribute, FRAGMENT_NO, Field};
use sluice_flow::key::Match;
use sluice_flow::port::PortNumber;
use sluice_netdev::{MacAddress, VlanTag};

/// What the headers of a family of addresses are called.
struct Family {
    eth_type: u16,
    attribute: Attribute,
    source: Field,
    destination: Field,
    protocol: Field,
    ttl: Field,
    fragment: Field,
}

const IPV4: Family = Family {
    eth_type: 0x0800,
    attribute: Attribute::Ipv4,
    source: Field::Ipv4Src,
    destination: Field::Ipv4Dst,
    protocol: Field::Ipv4Proto,
    ttl: Field::Ipv4Ttl,
    fragment: Field::Ipv4Frag,
};
const IPV6: Family = Family {
    eth_type: 0x86dd,
    attribute: Attribute::Ipv6,
    source: Field::Ipv6Src,
    destination: Field::Ipv6Dst,
    protocol: Field::Ipv6Proto,
    ttl: Field::Ipv6Hlimit,
    fragment: Field::Ipv6Frag,
};

/// FIN, SYN and RST: packets by which the kernel follows the state of a connection.
const TCP_STATE_FLAGS: u128 = 0x07;

/// The values of the TTL, or of the hop limit, that flows match: together 32 and above. The kernel answers a packet whose TTL is 1, and nothing
/// may decrement 0, so that no flow may be for any TTL; and a flow matches bits, not a range. Packets of one sender have one TTL as a rule,
/// so that one of these counts them and the others need not stay.
pub const TTLS: [Ttl; VARIANTS] =
    [Ttl { value: 0x40, mask: 0x60 }, Ttl { value: 0x20, mask: 0x20 }, Ttl { value: 0x80, mask: 0xe0 }];
/// Flows of a direction, at most.
pub(crate) const VARIANTS: usize = 3;

/// Some values of the TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl {
    /// What the bits that count must be.
    value: u8,
    /// The bits that count.
    mask: u8,
}

/// Tags of VLANs that packets have at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags([Option<VlanTag>; TAGS.len()]);

/// What a flow matches of a tag, the outer one first: whether it is there, TPID, the CFI bit, which stands for the tag, and the VLAN.
const TAGS: [[Field; 4]; 2] = [
    [Field::VlanPresent, Field::VlanTpid, Field::VlanCfi, Field::VlanVid],
    [Field::CvlanPresent, Field::CvlanTpid, Field::CvlanCfi, Field::CvlanVid],
];

impl Tags {
    /// No tag.
    pub const NONE: Self = Self([None; TAGS.len()]);

    /// These around which there is another one; `None` if a flow could not match that many.
    pub fn within(self, outer: VlanTag) -> Option<Self> {
        let Self([before, None]) = self else { return None };
        Some(Self([Some(outer), before]))
    }

    /// The outer one first.
    fn iter(&self) -> impl DoubleEndedIterator<Item = VlanTag> {
        self.0.into_iter().flatten()
    }
}

/// What the kernel's way makes of the packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The port that they come in at.
    pub ingress: PortNumber,
    /// The tags that they have there.
    pub ingress_tags: Tags,
    /// The Ethernet address of the kernel's device, to which they are sent.
    pub ingress_mac: MacAddress,
    /// The port that they leave by.
    pub egress: PortNumber,
    /// The tags that they have there.
    pub egress_tags: Tags,
    /// The Ethernet address of the kernel's device, from which they are sent.
    pub egress_mac: MacAddress,
    /// That of the next hop.
    pub next_hop: MacAddress,
}

/// A flow by what it matches and does.
pub type Planned = (Match, ActionList);

/// Returns the flow of a direction for some values of the TTL, of which 1 is not among them.
///
/// `received` is the direction as its packets come in, `answers` the other one as its packets come in: what this one is translated to.
pub fn plan(received: &Direction, answers: &Direction, side: &Side, ttl: Ttl) -> Planned {
    (matching(received, side, ttl), actions(received, answers, side))
}

fn matching(received: &Direction, side: &Side, Ttl { value, mask }: Ttl) -> Match {
    let mut found = Match::default();
    found.set_exact(Field::RecircId, 0);
    found.set_exact(Field::InPort, side.ingress.0.into());
    found.set_exact(Field::EthDst, number(side.ingress_mac));
    let mut tags = side.ingress_tags.iter();
    for [is_there, protocol, cfi, id] in TAGS {
        let Some(tag) = tags.next() else {
            // No other one is behind those that it has.
            found.set_exact(is_there, 0);
            break;
        };
        found.set_exact(is_there, 1);
        found.set_exact(protocol, tag.protocol.into());
        found.set_exact(cfi, 1);
        found.set_exact(id, tag.id.into());
    }
    let family = family(received);
    found.set_exact(Field::EthType, family.eth_type.into());
    found.set_exact(family.source, bits(received.source));
    found.set_exact(family.destination, bits(received.destination));
    found.set_exact(family.protocol, received.protocol.into());
    found.set(family.ttl, value.into(), mask.into());
    found.set_exact(family.fragment, FRAGMENT_NO.into());
    let [source, destination] = ports(received.protocol).1;
    found.set_exact(source, received.source_port.into());
    found.set_exact(destination, received.destination_port.into());
    if received.protocol == TCP {
        found.set(Field::TcpFlags, 0, TCP_STATE_FLAGS);
    }
    found
}

fn actions(received: &Direction, answers: &Direction, side: &Side) -> ActionList {
    let (protocol, [source_port, destination_port]) = ports(received.protocol);
    // An answer goes to where the packet that it answers has come from.
    let family = family(received);
    let addresses = changed(&[
        (family.source, bits(received.source), bits(answers.destination)),
        (family.destination, bits(received.destination), bits(answers.source)),
    ]);
    let ports = changed(&[
        (source_port, received.source_port.into(), answers.destination_port.into()),
        (destination_port, received.destination_port.into(), answers.source_port.into()),
    ]);
    let ethernet = [(Field::EthSrc, number(side.egress_mac)), (Field::EthDst, number(side.next_hop))];
    let ethernet = ethernet.map(|(field, value)| (field, value, field.full_mask()));
    let sets = [(Attribute::Ethernet, ethernet.into()), (family.attribute, addresses), (protocol, ports)];
    let sets = sets.into_iter().filter(|(_, fields)| !fields.is_empty());
    let sets = sets.map(|(attribute, fields): (_, Box<[_]>)| Action::Set(FieldSet { attribute, fields }));
    // As the kernel does: what comes by a device of a VLAN loses its tag before all else, and has one again when it leaves by another.
    let pops = side.ingress_tags.iter().map(|_| Action::PopVlan);
    // Nothing is in the list of `dec_ttl`: no packet that matches has a TTL of 1.
    let changes = pops.chain(sets).chain([Action::DecTtl(Arc::default())]);
    let pushes = side.egress_tags.iter().rev();
    let pushes = pushes.map(|VlanTag { protocol: tpid, id: vid }| action::VlanTag { tpid, vid, pcp: 0, cfi: true });
    changes.chain(pushes.map(Action::PushVlan)).chain([Action::Output(side.egress)]).collect()
}

/// The fields that are to have another value, with their masks.
fn changed(fields: &[(Field, u128, u128)]) -> Box<[(Field, u128, u128)]> {
    let changed = fields.iter().filter(|(_, before, after)| before != after);
    changed.map(|(field, _, after)| (*field, *after, field.full_mask())).collect()
}

const fn family(direction: &Direction) -> &'static Family {
    if direction.source.is_ipv4() { &IPV4 } else { &IPV6 }
}

/// The header that has the ports, and its fields for them.
const fn ports(protocol: u8) -> (Attribute, [Field; 2]) {
    if protocol == TCP {
        (Attribute::Tcp, [Field::TcpSrc, Field::TcpDst])
    } else {
        (Attribute::Udp, [Field::UdpSrc, Field::UdpDst])
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn number(mac: MacAddress) -> u128 {
    mac.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}
