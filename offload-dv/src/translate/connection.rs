//! A connection as rules: one for each of its directions, and one that takes a translation back.

use std::net::IpAddr;

use sluice_flow::action::FieldSet;
use sluice_flow::connection::{Connection, Direction, State, TcpState};
use sluice_flow::field::{Attribute, Field};
use sluice_flow::refusal::Refusal;

use super::guarantees::Guarantees;
use super::modify::Modifications;
use super::places::{
    DST_IPV4, DST_IPV6, FRAGMENT, IP_PROTOCOL, IP_VERSION, Place, SOURCE_PORT, SRC_IPV4, SRC_IPV6, TCP_DPORT,
    TCP_FLAGS, TCP_SPORT, UDP_DPORT, UDP_SPORT,
};
use super::registers::{COLOR, CONTINUATION, CT_LABEL, CT_MARK, CT_STATE, TRANSLATION};
use crate::mlx5::MatchParameter;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// FIN, SYN and RST: software must see who begins and who ends a connection.
const TCP_BEGIN_OR_END: u128 = 0x07;

/// Bits of a connection's status, by their place in [`sluice_flow::connection::STATUS`].
pub(crate) mod status {
    pub(crate) const EXPECTED: u32 = 1 << 0;
    pub(crate) const SEEN_REPLY: u32 = 1 << 1;
    pub(crate) const ASSURED: u32 = 1 << 2;
    pub(crate) const CONFIRMED: u32 = 1 << 3;
    pub(crate) const SRC_NAT: u32 = 1 << 4;
    pub(crate) const DST_NAT: u32 = 1 << 5;
    pub(crate) const SEQ_ADJUST: u32 = 1 << 6;
    pub(crate) const DYING: u32 = 1 << 9;
}

/// Bits of a packet's state, as in [`sluice_flow::field::CT_STATES`].
mod state {
    pub(super) const ESTABLISHED: u32 = 0x02;
    pub(super) const REPLY: u32 = 0x08;
    pub(super) const TRACKED: u32 = 0x20;
    pub(super) const SOURCE_NAT: u32 = 0x40;
    pub(super) const DESTINATION_NAT: u32 = 0x80;
}

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The one that it began in.
    Original,
    /// The one of the answers.
    Reply,
}

impl Way {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Original, Self::Reply];
}

/// What packets of one direction of a connection look like, and what is done to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRule {
    /// The bits that count.
    pub mask: MatchParameter,
    /// The bits of a packet of the direction.
    pub value: MatchParameter,
    /// Modify actions of the PRM.
    pub modifications: Box<[u64]>,
}

/// Returns whether packets of a connection need no software: it is TCP or UDP, packets went both ways, and nothing but addresses and
/// ports is changed in them. All of them have one state then, that of their direction.
pub fn is_for_hardware(connection: &Connection) -> bool {
    const NEEDED: u32 = status::CONFIRMED | status::SEEN_REPLY;
    const IN_SOFTWARE: u32 = status::EXPECTED | status::SEQ_ADJUST | status::DYING;
    let is_running = match (&connection.state, connection.original.protocol) {
        (State::Tcp { state, .. }, TCP) => *state == TcpState::Established && connection.status & status::ASSURED != 0,
        (_, UDP) => true,
        _ => false,
    };
    let is_one_family = connection.original.source.is_ipv4() == connection.reply.source.is_ipv4();
    is_running
        && is_one_family
        && connection.status & (NEEDED | IN_SOFTWARE) == NEEDED
        && connection.helper.is_none()
        && connection.label <= u32::MAX.into()
}

/// Returns whether packets of a connection get other addresses or ports.
pub fn is_translated(connection: &Connection) -> bool {
    connection.status & (status::SRC_NAT | status::DST_NAT) != 0
}

/// Makes the rule of a direction, whose packets are as they are or inside a tunnel. It writes what later flows match; with `translation`,
/// under which the change is known, it translates the packet, if no earlier rule has.
pub fn rule(
    connection: &Connection,
    way: Way,
    is_inside: bool,
    translation: Option<u32>,
) -> Result<ConnectionRule, Refusal> {
    let (own, other) = directions(connection, way);
    let (mut mask, mut value) = matched(own, is_inside);
    let mut modifications = Modifications::default();
    let mut bits = state::TRACKED | state::ESTABLISHED | if way == Way::Reply { state::REPLY } else { 0 };
    if let Some(id) = translation {
        TRANSLATION.place().put(&mut mask, TRANSLATION.place().full_mask());
        TRANSLATION.place().put(&mut value, 0);
        rewrite(own, &inverse(other), &mut modifications)?;
        modifications.push(&[TRANSLATION.set(id)]);
        bits |= translated_state(connection, way);
    }
    let label = u32::try_from(connection.label).unwrap_or_default();
    modifications.push(&[CT_STATE.set(bits), CT_MARK.set(connection.mark), CT_LABEL.set(label)]);
    Ok(ConnectionRule { mask, value, modifications: modifications.into_words() })
}

/// Makes the rule that gives packets of a direction back what they came in with, wherever they are after a translation.
pub fn restoration(connection: &Connection, way: Way, translation: u32) -> Result<ConnectionRule, Refusal> {
    let (own, other) = directions(connection, way);
    let mut value = MatchParameter::default();
    TRANSLATION.place().put(&mut value, translation.into());
    let mut modifications = Modifications::default();
    rewrite(&inverse(other), own, &mut modifications)?;
    Ok(ConnectionRule { mask: translated_mask(), value, modifications: modifications.into_words() })
}

/// Returns mask and value of packets that carry the number of a flow, and have a color if a meter gave one. The vport tells libmlx5 which
/// way they go.
pub fn continuation(number: u32, vport: Option<u16>, color: Option<u32>) -> (MatchParameter, MatchParameter) {
    let (mut mask, mut value) = (MatchParameter::default(), MatchParameter::default());
    let found = [
        (CONTINUATION.place(), Some(number.into())),
        (SOURCE_PORT, vport.map(u128::from)),
        (COLOR.place(), color.map(u128::from)),
    ];
    for (place, found) in found.into_iter().filter_map(|(place, found)| Some((place, found?))) {
        place.put(&mut mask, place.full_mask());
        place.put(&mut value, found);
    }
    (mask, value)
}

/// Returns the bits that restorations look at.
pub fn translated_mask() -> MatchParameter {
    let mut mask = MatchParameter::default();
    TRANSLATION.place().put(&mut mask, TRANSLATION.place().full_mask());
    mask
}

/// What a translation adds to the state of a packet (`ovs_ct_nat` in `net/openvswitch/conntrack.c` of Linux 6.1): the side that is
/// changed. Where the destination is, the source of the original direction is looked at, too, and counts as changed.
fn translated_state(connection: &Connection, way: Way) -> u32 {
    let has = |status| connection.status & status != 0;
    match (has(status::SRC_NAT), has(status::DST_NAT), way) {
        (true, true, _) | (false, true, Way::Original) => state::SOURCE_NAT | state::DESTINATION_NAT,
        (true, false, Way::Original) | (false, true, Way::Reply) => state::SOURCE_NAT,
        (true, false, Way::Reply) => state::DESTINATION_NAT,
        (false, false, _) => 0,
    }
}

fn directions(connection: &Connection, way: Way) -> (&Direction, &Direction) {
    match way {
        Way::Original => (&connection.original, &connection.reply),
        Way::Reply => (&connection.reply, &connection.original),
    }
}

/// What the answers to a direction look like.
fn inverse(of: &Direction) -> Direction {
    Direction {
        source: of.destination,
        destination: of.source,
        protocol: of.protocol,
        source_port: of.destination_port,
        destination_port: of.source_port,
    }
}

fn matched(direction: &Direction, is_inside: bool) -> (MatchParameter, MatchParameter) {
    let (mut mask, mut value) = (MatchParameter::default(), MatchParameter::default());
    let mut put = |place: Place, bits: u128, found: u128| {
        // All of these are found there, too.
        let place = place.inside().filter(|_| is_inside).unwrap_or(place);
        place.put(&mut mask, bits);
        place.put(&mut value, found);
    };
    let mut exact = |place: Place, found: u128| put(place, place.full_mask(), found);
    exact(FRAGMENT, 0);
    exact(IP_PROTOCOL, direction.protocol.into());
    let (source, destination) = ports_of(direction.protocol);
    exact(source, direction.source_port.into());
    exact(destination, direction.destination_port.into());
    match (direction.source, direction.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            exact(SRC_IPV4, from.to_bits().into());
            exact(DST_IPV4, to.to_bits().into());
            // libmlx5 wants the version as its own mask.
            put(IP_VERSION, 4, 4);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            exact(SRC_IPV6, from.to_bits());
            exact(DST_IPV6, to.to_bits());
            put(IP_VERSION, 6, 6);
        }
        // Not for hardware.
        _ => {}
    }
    if direction.protocol == TCP {
        put(TCP_FLAGS, TCP_BEGIN_OR_END, 0);
    }
    (mask, value)
}

fn ports_of(protocol: u8) -> (Place, Place) {
    if protocol == TCP { (TCP_SPORT, TCP_DPORT) } else { (UDP_SPORT, UDP_DPORT) }
}

fn rewrite(from: &Direction, to: &Direction, modifications: &mut Modifications) -> Result<(), Refusal> {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let (network, [source, destination], eth_type) = match from.source {
        IpAddr::V4(_) => (Attribute::Ipv4, [Field::Ipv4Src, Field::Ipv4Dst], 0x0800),
        IpAddr::V6(_) => (Attribute::Ipv6, [Field::Ipv6Src, Field::Ipv6Dst], 0x86dd),
    };
    let (transport, [source_port, destination_port]) = match from.protocol {
        TCP => (Attribute::Tcp, [Field::TcpSrc, Field::TcpDst]),
        _ => (Attribute::Udp, [Field::UdpSrc, Field::UdpDst]),
    };
    let guarantees =
        Guarantees { eth_type: Some(eth_type), protocol: Some(from.protocol), is_whole: true, ..Guarantees::default() };
    let changes = [
        (network, source, bits(from.source), bits(to.source)),
        (network, destination, bits(from.destination), bits(to.destination)),
        (transport, source_port, from.source_port.into(), to.source_port.into()),
        (transport, destination_port, from.destination_port.into(), to.destination_port.into()),
    ];
    for (attribute, field, _, new) in changes.into_iter().filter(|(.., old, new)| old != new) {
        let set = FieldSet { attribute, fields: [(field, new, field.full_mask())].into() };
        modifications.set(&set, &guarantees)?;
    }
    Ok(())
}
