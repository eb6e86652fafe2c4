//! From a flow to what the device does with it, or to the reason why it cannot.
//!
//! [`check`] looks at the whole flow and changes nothing, which with [`describe`] is all that `explain` needs; [`link`]
//! then takes hold of the meters, timeout policies and chains that the flow names.

mod approvals;
mod encapsulation;
mod matching;
mod program;
mod programs;
mod validate;

use std::fmt::Write as _;

use sluice_flow::action::Action;
use sluice_flow::chain::ChainId;
use sluice_flow::field::Field;
use sluice_flow::flow::Flow;
use sluice_flow::key::Match;
use sluice_flow::refusal::Refusal;

use crate::conntrack::Policies;
use crate::meters::Meters;
use crate::packet::ETH_TYPE_NONE;
use crate::ports::PortTable;

pub(crate) use approvals::{Approvals, Question};
pub(crate) use encapsulation::{Encapsulation, EncapsulationOptions, POLICY_FLAGS, tunnel_flag};
pub(crate) use program::{List, Program, Step, link};
pub(crate) use programs::Programs;

/// Octets of an Ethernet header: nothing is cut shorter than that (`ETH_HLEN`).
pub(crate) const MIN_FRAME: usize = 14;

/// What the classifier matches of a flow: everything but the chain.
pub(crate) fn matching(flow: &Flow) -> Match {
    without_chain(flow.matching().expand())
}

/// The same, of the match in full.
pub(crate) fn without_chain(mut matching: Match) -> Match {
    matching.set(Field::RecircId, 0, 0);
    // `eth_type(0/0xffff)` is how OVS writes a match on frames without an Ethernet type.
    if matching.is_exactly(Field::EthType, 0) {
        matching.set_exact(Field::EthType, ETH_TYPE_NONE.into());
    }
    matching
}

/// Whether the device can take a flow, whose match in full is `full`.
pub(crate) fn check(
    flow: &Flow,
    full: &Match,
    ports: &PortTable,
    meters: &Meters,
    policies: &Policies,
) -> Result<(), Refusal> {
    check_entrance(full, ports)?;
    let guarantees = matching::consume(&approvals::shown(full))?;
    validate::actions(flow, &guarantees, ports, meters, policies)
}

/// The part of [`check`] that no approval speaks of.
pub(crate) fn check_entrance(full: &Match, ports: &PortTable) -> Result<(), Refusal> {
    matching::entrance(full, ports)
}

/// What the device refuses by design: the packet would go to a process, or by a table that is not in the datapath.
fn is_refused(action: &Action) -> Refusal {
    let reason = match action {
        Action::Userspace(_) => "there is no process behind the software NIC that takes packets",
        Action::LbOutput(_) => "the members of the bond are known to ovs-vswitchd alone",
        _ => "the software NIC cannot do it",
    };
    Refusal::Action { action: action.kind(), reason: reason.into() }
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
