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
    /// Where it differs from its flow because the configuration allows it, and why hardware does not get it.
    pub caveats: Vec<Caveat>,
}

/// What hardware would do with packets of a tunnel against the kernel's policies of IPsec, which it does not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exposure {
    /// It would send what is to be encrypted as it is.
    #[error("a policy of IPsec is for the packets of the tunnel, and hardware would send them in the clear")]
    Sent,
    /// It would take what is to come encrypted also if it does not.
    #[error(
        "a policy of IPsec lets packets of the tunnel in only if they come encrypted, and hardware would take those that do not"
    )]
    Taken,
    /// Nobody knows.
    #[error("the policies of IPsec cannot be read, and there may be one for the packets of the tunnel")]
    Unknown,
}

/// Something of a flow that its rule does not express, or that is not done with it.
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
    /// The rule is in software only.
    #[error("the rule is kept out of hardware: {0}")]
    OutOfHardware(Exposure),
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
