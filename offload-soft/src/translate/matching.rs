//! The match of a flow: what the packet parser can produce, and what a match guarantees of a packet.

use std::fmt::Write as _;

use sluice_flow::Flow;
use sluice_flow::consume::Remainder;
use sluice_flow::field::{Attribute, FIELDS, Field, Form, MPLS_PRESENT};
use sluice_flow::key::{Key, Match};
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use crate::packet::{eth_type, ip_proto, is_mpls};
use crate::ports::PortTable;

/// What every packet that matches has for certain.
#[derive(Default)]
pub(super) struct Guarantees {
    pub(super) eth_type: Option<u16>,
    pub(super) protocol: Option<u8>,
    /// Which fragment, as `frag` of IP has it.
    pub(super) fragment: Option<u8>,
    /// VLAN tags.
    pub(super) tags: usize,
    /// A neighbour solicitation or advertisement, if it is ICMPv6.
    pub(super) is_neighbour: bool,
    /// Whether it begins with an Ethernet header; `None` where the match does not say.
    pub(super) is_ethernet: Option<bool>,
    /// Entries of the label stack that are looked at.
    pub(super) labels: u32,
    /// What comes behind an NSH header.
    pub(super) nsh_next_protocol: Option<u8>,
}

/// Attributes that can be matched in any packet, in any way.
const ANYWHERE: &[Attribute] = &[
    Attribute::DpHash,
    Attribute::Tunnel,
    Attribute::PacketType,
    Attribute::SkbMark,
    Attribute::SkbPriority,
    Attribute::CtState,
    Attribute::CtZone,
    Attribute::CtMark,
    Attribute::CtLabel,
    Attribute::CtTuple4,
    Attribute::CtTuple6,
    Attribute::Ethernet,
    Attribute::NumOfVlans,
    Attribute::Vlan,
    Attribute::Cvlan,
    Attribute::EthType,
];

/// Whether the port is there that packets must come from.
pub(super) fn entrance(flow: &Flow, ports: &PortTable) -> Result<(), Refusal> {
    let (number, mask) = flow.matching().get(Field::InPort);
    let Some(number) = u32::try_from(number).ok().filter(|_| mask == Field::InPort.full_mask()) else { return Ok(()) };
    let number = PortNumber(number);
    match ports.get(number) {
        Some(_) => Ok(()),
        None => Err(Refusal::no_port(number)),
    }
}

/// Takes the match apart, or names what the device cannot match. The values are those that [`shown`](super::approvals::shown) leaves.
pub(super) fn consume(full: &Match) -> Result<Guarantees, Refusal> {
    let mut rest = Remainder::new(full);
    // The chain picks the classifier. A flow that does not say is in the first one, as `Flow::chain` has it.
    rest.take_exact(Field::RecircId)?;
    take(&mut rest, Attribute::InPort);
    ANYWHERE.iter().for_each(|attribute| take(&mut rest, *attribute));

    let mut guarantees = Guarantees { eth_type: exact(full, Field::EthType), ..Guarantees::default() };
    let has_tag = |present, cfi| full.is_exactly(present, 1) || full.is_exactly(cfi, 1);
    guarantees.tags = if has_tag(Field::CvlanPresent, Field::CvlanCfi) {
        2
    } else {
        usize::from(has_tag(Field::VlanPresent, Field::VlanCfi))
    };
    guarantees.is_ethernet = is_ethernet(full);
    match guarantees.eth_type {
        Some(ethernet_type) if is_mpls(ethernet_type) => {
            take(&mut rest, Attribute::Mpls);
            guarantees.labels = labels(full);
        }
        Some(eth_type::NSH) => {
            take(&mut rest, Attribute::Nsh);
            guarantees.nsh_next_protocol = exact(full, Field::NshNextProto);
        }
        Some(eth_type::IPV4) => {
            take(&mut rest, Attribute::Ipv4);
            guarantees.protocol = exact(full, Field::Ipv4Proto);
            guarantees.fragment = exact(full, Field::Ipv4Frag);
        }
        Some(eth_type::IPV6) => {
            take(&mut rest, Attribute::Ipv6);
            guarantees.protocol = exact(full, Field::Ipv6Proto);
            guarantees.fragment = exact(full, Field::Ipv6Frag);
        }
        Some(eth_type::ARP | eth_type::RARP) => take(&mut rest, Attribute::Arp),
        Some(eth_type::PPPOE) => take(&mut rest, Attribute::Pppoe),
        Some(eth_type::CFM) => take(&mut rest, Attribute::Cfm),
        _ => {}
    }
    match (guarantees.protocol, guarantees.eth_type) {
        (Some(ip_proto::TCP), _) => {
            take(&mut rest, Attribute::Tcp);
            take(&mut rest, Attribute::TcpFlags);
        }
        (Some(ip_proto::UDP), _) => take(&mut rest, Attribute::Udp),
        (Some(ip_proto::SCTP), _) => take(&mut rest, Attribute::Sctp),
        (Some(ip_proto::L2TPV3), _) => take(&mut rest, Attribute::L2tpv3),
        (Some(ip_proto::SECURITY | ip_proto::AUTHENTICATION), _) => take(&mut rest, Attribute::Ipsec),
        (Some(ip_proto::ICMP), Some(eth_type::IPV4)) => take(&mut rest, Attribute::Icmp),
        (Some(ip_proto::ICMPV6), Some(eth_type::IPV6)) => {
            take(&mut rest, Attribute::Icmpv6);
            take(&mut rest, Attribute::Nd);
            take(&mut rest, Attribute::NdExt);
            guarantees.is_neighbour =
                matches!(exact(full, Field::Icmpv6Type), Some(135 | 136)) && full.is_exactly(Field::Icmpv6Code, 0);
        }
        _ => {}
    }
    without_its_header(&mut rest)?;
    rest.finish()?;
    Ok(guarantees)
}

/// Whether a packet begins with an Ethernet header, as far as the match says. All ports are of Ethernet, so that
/// another packet can come only from another chain.
fn is_ethernet(full: &Match) -> Option<bool> {
    let looks_at = |field| full.mask.get(field) != 0;
    match exact::<u16>(full, Field::PacketTypeNs) {
        Some(namespace) => Some(namespace == 0),
        None if full.key.get(Field::RecircId) == 0 => Some(true),
        None if looks_at(Field::EthSrc) || looks_at(Field::EthDst) || full.is_exactly(Field::VlanPresent, 1) => {
            Some(true)
        }
        None => None,
    }
}

/// The entries of the label stack that a packet has for certain.
fn labels(full: &Match) -> u32 {
    MPLS_PRESENT.into_iter().map(|field| u32::from(full.is_exactly(field, 1))).sum()
}

/// Headers share places in the key, so what is left in them cannot be given its right name: say what is missing.
fn without_its_header(rest: &mut Remainder) -> Result<(), Refusal> {
    let mut is_left = |attributes: &[Attribute]| {
        let fields = attributes.iter().flat_map(|attribute| attribute.fields());
        fields.filter(|spec| rest.take(spec.field).is_some()).count() > 0
    };
    let missing = if is_left(&[Attribute::Ipv4, Attribute::Ipv6, Attribute::Arp, Attribute::Mpls, Attribute::Nsh]) {
        "a network header is matched without the exact eth_type that has it"
    } else if is_left(&[Attribute::Tcp, Attribute::TcpFlags, Attribute::Nd, Attribute::NdExt]) {
        "a transport header is matched without the exact eth_type and IP proto that have it"
    } else if is_left(&[Attribute::Pppoe, Attribute::Cfm, Attribute::L2tpv3, Attribute::Ipsec]) {
        "a header is matched without the exact eth_type, or eth_type and IP proto, that have it"
    } else {
        return Ok(());
    };
    Err(Refusal::Combination { reason: missing.into() })
}

fn take(rest: &mut Remainder, attribute: Attribute) {
    for spec in attribute.fields() {
        rest.take(spec.field);
    }
}

/// The value of a field that is matched on all of its bits.
fn exact<T: TryFrom<u128>>(matching: &Match, field: Field) -> Option<T> {
    if matching.mask.get(field) == field.full_mask() { T::try_from(matching.key.get(field)).ok() } else { None }
}

/// The fields of a match, each with its mask unless it is exact, as in `in_port,ipv4.dst/24`.
pub(super) fn names(matching: &Match) -> String {
    let mut names = String::new();
    // Taken out as they are named, so that headers that share a place are not both named.
    let mut left: Key = matching.mask;
    for spec in FIELDS {
        let mask = left.get(spec.field);
        if mask == 0 || spec.form == Form::Presence || !is_of(matching, spec.attribute) {
            continue;
        }
        left.set(spec.field, 0);
        let separator = if names.is_empty() { "" } else { "," };
        let _ = write!(names, "{separator}{}", spec.field);
        let prefix = (mask << (128 - spec.width)).leading_ones();
        if prefix < spec.width {
            let is_address = matches!(spec.form, Form::Ipv4 | Form::Ipv6);
            let _ = if is_address && mask.count_ones() == prefix {
                write!(names, "/{prefix}")
            } else {
                write!(names, "/{mask:#x}")
            };
        }
    }
    for (field, name) in
        [(Field::VlanPresent, "vlan"), (Field::CvlanPresent, "cvlan"), (Field::TunnelPresent, "tunnel")]
    {
        if matching.is_exactly(field, 0) {
            let separator = if names.is_empty() { "" } else { "," };
            let _ = write!(names, "{separator}no {name}");
        }
    }
    names
}

/// Whether an attribute is one of the headers that the match is about.
fn is_of(matching: &Match, attribute: Attribute) -> bool {
    use sluice_flow::field::Requirement;
    let eth_type: Option<u16> = exact(matching, Field::EthType);
    let protocol: Option<u8> = exact(matching, Field::Ipv4Proto);
    match attribute.spec().requires {
        Requirement::Nothing => true,
        Requirement::EthType(types) => eth_type.is_some_and(|is| types.contains(&is)),
        Requirement::IpProto(wanted) => {
            matches!(eth_type, Some(eth_type::IPV4 | eth_type::IPV6)) && protocol.is_some_and(|is| wanted.contains(&is))
        }
        Requirement::EthTypeAndProto(wanted_type, wanted) => eth_type == Some(wanted_type) && protocol == Some(wanted),
    }
}
