//! Matches on one field, and on as little else as that needs.

use sluice_flow::field::{Attribute, Field, FieldSpec, MPLS_ENTRIES, MPLS_PRESENT, Requirement};
use sluice_flow::key::Match;

use crate::lab::{ERSPAN, GENEVE, VXLAN_GBP};

const IPV4: u16 = 0x0800;
const TAG: u16 = 0x8100;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const LLDP: u16 = 0x88cc;

/// The port of the lab that packets with the field come in at.
fn port(spec: &FieldSpec) -> u32 {
    match (spec.attribute, spec.name.split('.').next()) {
        (Attribute::Tunnel, Some("vxlan")) => VXLAN_GBP,
        (Attribute::Tunnel, Some("erspan")) => ERSPAN,
        (Attribute::Tunnel, _) => GENEVE,
        _ => 1,
    }
}

/// The least that a packet must be to have the header of a field.
pub fn with_header(spec: &FieldSpec) -> Match {
    let attribute = spec.attribute;
    let mut full = Match::default();
    full.set_exact(Field::RecircId, 0);
    full.set_exact(Field::InPort, port(spec).into());
    let (eth_type, protocol) = match attribute.spec().requires {
        Requirement::Nothing => (None, None),
        Requirement::EthType(types) => (types.first().copied(), None),
        Requirement::IpProto(protocols) => (Some(IPV4), protocols.first().copied()),
        Requirement::EthTypeAndProto(eth_type, protocol) => (Some(eth_type), Some(protocol)),
    };
    if let Some(eth_type) = eth_type {
        full.set_exact(Field::EthType, eth_type.into());
    }
    if eth_type.is_some() || attribute == Attribute::EthType {
        full.set_exact(Field::VlanPresent, 0);
    }
    if let Some(protocol) = protocol {
        full.set_exact(Field::Ipv4Proto, protocol.into());
        full.set_exact(Field::Ipv4Frag, 0);
    }
    if matches!(attribute, Attribute::Nd | Attribute::NdExt) {
        full.set_exact(Field::Icmpv6Type, NEIGHBOUR_SOLICITATION.into());
        full.set_exact(Field::Icmpv6Code, 0);
    }
    let tags = match attribute {
        Attribute::Vlan | Attribute::NumOfVlans => &[(Field::VlanPresent, Field::VlanTpid)][..],
        Attribute::Cvlan => &[(Field::VlanPresent, Field::VlanTpid), (Field::CvlanPresent, Field::CvlanTpid)],
        _ => &[],
    };
    for (present, protocol) in tags {
        full.set_exact(*present, 1);
        full.set_exact(*protocol, TAG.into());
    }
    // An entry of a label stack is behind others, none of which is the last.
    for (present, entry) in MPLS_PRESENT.iter().zip(&MPLS_ENTRIES).filter(|_| attribute == Attribute::Mpls) {
        if *present == spec.field {
            break;
        }
        full.set_exact(*present, 1);
        if entry.contains(&spec.field) {
            break;
        }
        full.set_exact(entry[3], 0);
    }
    full
}

/// The same with a match on one field more, `None` for one that is matched already.
pub fn with_field(spec: &FieldSpec) -> Option<(Match, Match)> {
    let without = with_header(spec);
    let mut with = without;
    // Below 0x600 it is a length.
    with.set_exact(spec.field, if spec.field == Field::EthType { LLDP.into() } else { 1 });
    (without.mask.get(spec.field) == 0).then_some((without, with))
}
