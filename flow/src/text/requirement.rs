//! What an attribute requires, in words.

use crate::field::{Attribute, ETH_P_IP, Requirement};

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
