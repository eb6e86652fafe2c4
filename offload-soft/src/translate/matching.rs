//! The match of a flow: what the packet parser can produce, and what a match guarantees of a packet.

use std::fmt::Write as _;

use sluice_flow::Flow;
use sluice_flow::consume::Remainder;
use sluice_flow::field::{ATTRIBUTES, Attribute, FIELDS, Field, Form, MPLS_PRESENT};
use sluice_flow::key::{Key, Match};
use sluice_flow::port::PortNumber;
use sluice_flow::refusal::Refusal;

use crate::packet::{eth_type, is_known, is_mpls};
use crate::ports::PortTable;

/// What every packet that matches has for certain.
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
    take_known(full, is_known)?;
    Ok(Guarantees::of(full))
}

/// Takes the known fields of the headers that the match asks for, and refuses what is left.
fn take_known(full: &Match, is_known: impl Fn(Field) -> bool) -> Result<(), Refusal> {
    let mut rest = Remainder::new(full);
    // The chain picks the classifier. A flow that does not say is in the first one, as `Flow::chain` has it.
    rest.take_exact(Field::RecircId)?;
    let attributes = ATTRIBUTES.iter().filter(|row| full.meets(row.requires)).map(|row| row.attribute);
    for spec in attributes.flat_map(Attribute::fields).filter(|spec| is_known(spec.field)) {
        rest.take(spec.field);
    }
    rest.refuse_left("the software NIC does not match it")?;
    without_its_header(&mut rest)?;
    rest.finish()
}

impl Guarantees {
    fn of(full: &Match) -> Self {
        let eth_type = exact(full, Field::EthType);
        let has_tag = |present, cfi| full.is_exactly(present, 1) || full.is_exactly(cfi, 1);
        let tags = if has_tag(Field::CvlanPresent, Field::CvlanCfi) {
            2
        } else {
            usize::from(has_tag(Field::VlanPresent, Field::VlanCfi))
        };
        let is_ip = matches!(eth_type, Some(eth_type::IPV4 | eth_type::IPV6));
        // IPv4 and IPv6 have the protocol and the kind of fragment in the same places of the key.
        let of_ip = |field| if is_ip { exact(full, field) } else { None };
        let is_icmpv6 = full.meets(Attribute::Icmpv6.spec().requires);
        Self {
            eth_type,
            protocol: of_ip(Field::Ipv4Proto),
            fragment: of_ip(Field::Ipv4Frag),
            tags,
            is_neighbour: is_icmpv6
                && matches!(exact(full, Field::Icmpv6Type), Some(135 | 136))
                && full.is_exactly(Field::Icmpv6Code, 0),
            is_ethernet: is_ethernet(full),
            labels: if eth_type.is_some_and(is_mpls) { labels(full) } else { 0 },
            nsh_next_protocol: if eth_type == Some(eth_type::NSH) { exact(full, Field::NshNextProto) } else { None },
        }
    }
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
        if mask == 0 || spec.form == Form::Presence || !matching.meets(spec.attribute.spec().requires) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::field::Requirement;

    /// A match on a field of a packet that has its header.
    fn matching(field: Field) -> Match {
        let mut full = Match::default();
        let (eth_type, protocol) = match field.spec().attribute.spec().requires {
            Requirement::Nothing => (None, None),
            Requirement::EthType(types) => (types.first().copied(), None),
            Requirement::IpProto(protocols) => (Some(eth_type::IPV4), protocols.first().copied()),
            Requirement::EthTypeAndProto(eth_type, protocol) => (Some(eth_type), Some(protocol)),
        };
        if let Some(eth_type) = eth_type {
            full.set_exact(Field::EthType, eth_type.into());
        }
        if let Some(protocol) = protocol {
            full.set_exact(Field::Ipv4Proto, protocol.into());
        }
        full.set_exact(field, full.key.get(field) | 1);
        full
    }

    #[test]
    fn a_field_without_a_row_is_refused_by_its_name() {
        for spec in FIELDS.iter().filter(|spec| spec.field != Field::RecircId) {
            let full = matching(spec.field);
            assert_eq!(take_known(&full, |_| true), Ok(()), "{}", spec.field);
            let refusal = take_known(&full, |field| field != spec.field).unwrap_err();
            let reason = "the software NIC does not match it".into();
            assert_eq!(refusal, Refusal::Field { field: spec.field, reason });
        }
    }
}
