//! A flow as a rule of flower, apart from priority and handle, which are given to it.

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
    /// Which of two flows of the chain wins.
    pub priority: Priority,
    /// The Ethernet type of the packets that are looked at, 3 for all; of a tagged packet the outermost.
    pub protocol: u16,
    /// What it matches and does.
    pub flower: Flower,
    /// In what it does not say what the flow says, because the configuration allows it.
    pub caveats: Vec<Caveat>,
}

/// Something of a flow that its rule does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Caveat {
    /// The rule matches packets of either kind.
    #[error(
        "the rule is wider than its flow: tunnel flag {flag} is not matched, as in OVS, for this kernel does not know it"
    )]
    NotMatched {
        /// The flag.
        flag: &'static str,
    },
    /// A helper of connections is asked for.
    #[error(
        "connections that the helper tells of are +rel until they are answered, and then +est alone, unlike in OVS"
    )]
    RelatedIsForgotten,
    /// Packets have tags, and the rule is for those of all types, so that nothing tells that the outermost was taken off.
    #[error("the bytes that software counts are without the outermost tag, which no vlan() tells of")]
    TagIsNotCounted,
    /// Packets go out without it.
    #[error("tunnel flag {flag} is not set, as in OVS, for this kernel does not know it")]
    NotSet {
        /// The flag.
        flag: &'static str,
    },
}
