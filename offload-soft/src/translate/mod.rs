//! From a flow to what the device does with it, or to the reason why it cannot.
//!
//! [`check`] looks at the whole flow and changes nothing, which with [`describe`] is all that `explain` needs; [`link`]
//! then takes hold of the meters, timeout policies and chains that the flow names.

mod actions;
mod approvals;
mod matching;
mod program;
mod validate;

use std::fmt::Write as _;

use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::key::{Key, Match};
use sluice_flow::refusal::Refusal;

use crate::conntrack::Policies;
use crate::meters::Meters;
use crate::packet::ETH_TYPE_NONE;
use crate::ports::PortTable;

pub(crate) use actions::link;
pub(crate) use approvals::{Approvals, Question};
pub(crate) use program::{List, Program, Step};

/// What the classifier matches of a flow: everything but the chain.
pub(crate) fn matching(flow: &Flow) -> Match {
    let mut matching = flow.matching().expand();
    matching.set(Field::RecircId, 0, 0);
    Match { key: matched_key(flow, matching.key), mask: matching.mask }
}

/// The key of that, made of the flow's. The mask leaves the chain out.
pub(crate) fn matched_key(flow: &Flow, mut key: Key) -> Key {
    // `eth_type(0/0xffff)` is how OVS writes a match on frames without an Ethernet type.
    if flow.matching().get(Field::EthType) == (0, Field::EthType.full_mask()) {
        key.set(Field::EthType, ETH_TYPE_NONE.into());
    }
    key
}

/// Whether the device can take a flow.
pub(crate) fn check(flow: &Flow, ports: &PortTable, meters: &Meters, policies: &Policies) -> Result<(), Refusal> {
    check_entrance(flow, ports)?;
    let guarantees = matching::consume(&approvals::shown(&flow.matching().expand()))?;
    actions::check(flow, &guarantees, ports, meters, policies)
}

/// The part of [`check`] that no approval speaks of.
pub(crate) fn check_entrance(flow: &Flow, ports: &PortTable) -> Result<(), Refusal> {
    matching::entrance(flow, ports)
}

/// The fields that a flow matches, besides the chain.
pub(crate) fn fields_of(flow: &Flow) -> String {
    matching::names(&matching(flow))
}

/// The rule in words.
pub(crate) fn describe(flow: &Flow) -> String {
    let mut text = String::from("subtable ");
    let names = fields_of(flow);
    text.push_str(if names.is_empty() { "of no field" } else { &names });
    let _ = write!(text, " at priority {}", flow.priority);
    if flow.chain() != ChainId::ROOT {
        let _ = write!(text, " of chain {}", flow.chain());
    }
    let _ = match flow.actions.len() {
        0 => write!(text, "; drop"),
        1 => write!(text, "; 1 action"),
        count => write!(text, "; {count} actions"),
    };
    text
}
