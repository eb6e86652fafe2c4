//! A flow as a flower rule, without the tc priority and handle that it is given later.

use sluice_flow::priority::Priority;

use crate::wire::filter::Hook;
use crate::wire::flower::Flower;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it is attached.
    pub hook: Hook,
    /// The chain.
    pub chain: u32,
    /// The priority of the flow within its chain.
    pub priority: Priority,
    /// The Ethernet type of the packets that are matched, 3 for all; the outermost one for tagged packets.
    pub protocol: u16,
    /// What it matches and does.
    pub flower: Flower,
    /// Where it differs from its flow because the configuration allows it.
    pub caveats: Vec<Caveat>,
}

/// Something of a flow that its rule does not express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Caveat {
    /// The rule matches packets with and without the flag.
    #[error(
        "the rule is wider than its flow: tunnel flag {flag} is not matched, as in OVS, because this kernel does not know it"
    )]
    NotMatched {
        /// The flag.
        flag: &'static str,
    },
    /// A connection tracking helper is used.
    #[error("connections that the helper expects are +rel until they are answered, and then only +est, unlike in OVS")]
    RelatedIsForgotten,
    /// The packets have tags and the rule matches all Ethernet types, so nothing says that the outermost tag was stripped.
    #[error("the bytes that software counts lack the outermost tag, because no vlan() matches it")]
    TagIsNotCounted,
    /// Packets are sent without the flag.
    #[error("tunnel flag {flag} is not set, as in OVS, because this kernel does not know it")]
    NotSet {
        /// The flag.
        flag: &'static str,
    },
}
