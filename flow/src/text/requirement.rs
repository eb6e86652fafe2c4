//! What must hold in a match before an attribute may be used.

use crate::field::{Attribute, Field, Requirement};
use crate::key::Match;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

/// Whether a match fulfils what an attribute asks for.
pub fn is_met(requirement: Requirement, matching: &Match) -> bool {
    let eth_type_is_one_of =
        |types: &[u16]| types.iter().any(|wanted| matching.is_exactly(Field::EthType, u128::from(*wanted)));
    // The protocol of IPv4 and that of IPv6 are the same bits of the key.
    let proto_is = |proto: u8| matching.is_exactly(Field::Ipv4Proto, u128::from(proto));
    match requirement {
        Requirement::Nothing => true,
        Requirement::EthType(types) => eth_type_is_one_of(types),
        Requirement::IpProto(protocols) => {
            eth_type_is_one_of(&[ETH_P_IP, ETH_P_IPV6]) && protocols.iter().any(|proto| proto_is(*proto))
        }
        Requirement::EthTypeAndProto(eth_type, proto) => eth_type_is_one_of(&[eth_type]) && proto_is(proto),
    }
}

/// What an attribute asks for, in a sentence.
pub(super) fn needs(attribute: Attribute) -> String {
    let name = attribute.name();
    match attribute.spec().requires {
        Requirement::Nothing => format!("{name}() needs nothing"),
        Requirement::EthType(types) => {
            let types: Vec<_> = types.iter().map(|eth_type| format!("eth_type(0x{eth_type:04x})")).collect();
            format!("{name}() needs {}", types.join(" or "))
        }
        Requirement::IpProto(protocols) => {
            let said = |proto: &u8| format!("ipv4(proto={proto}) or ipv6(proto={proto})");
            format!("{name}() needs {}", protocols.iter().map(said).collect::<Vec<_>>().join(" or "))
        }
        Requirement::EthTypeAndProto(ETH_P_IP, proto) => format!("{name}() needs ipv4(proto={proto})"),
        Requirement::EthTypeAndProto(_, proto) => format!("{name}() needs ipv6(proto={proto})"),
    }
}
