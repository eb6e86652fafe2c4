//! A flow as what libmlx5 takes: mask and value of a rule, and what it does. Nothing here asks the device.
//!
//! Each bit of a match is taken or refused by the name of its field, and so is each action.

mod actions;
mod connection;
mod describe;
mod headers;
mod matching;
mod modify;
mod places;
pub mod registers;
mod templates;
mod tracking;
mod tunnel;
mod vports;

pub use self::actions::{Plan, Tag};
pub use self::connection::{
    ConnectionRule, Way, continuation, is_for_hardware, is_translated, restoration, rule as connection_rule,
    translated_mask,
};
pub use self::headers::{Hop, Wrapping};
pub use self::matching::{Guarantees, Matched};
pub use self::modify::address_words;
pub use self::templates::{Instance, Template, Templates};
pub use self::tracking::Tracking;
pub use self::tunnel::{Entrance, Protocol, without_unseen_flags};
pub use self::vports::{UPLINK, Vports};

use sluice_flow::refusal::Refusal;
use sluice_flow::{ChainId, Flow};

/// Where a rule is: packets that come through a tunnel have tables of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId {
    /// The chain.
    pub chain: ChainId,
    /// The tunnel.
    pub entrance: Option<Entrance>,
}

/// A rule by itself, as `explain` tells it; rules that are made come by [`Templates`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The table that it is in.
    pub table: TableId,
    /// What it looks at, and for.
    pub matched: Matched,
    /// What it does.
    pub plan: Plan,
}

/// Translates a flow, or says which field or action is not possible.
pub fn translate(flow: &Flow, vports: &dyn Vports) -> Result<Rule, Refusal> {
    let matched = matching::translate(&flow.matching().expand(), vports)?;
    let plan = actions::translate(&flow.actions, &matched.guarantees, vports)?;
    let table = TableId { chain: flow.chain(), entrance: matched.guarantees.entrance };
    Ok(Rule { table, matched, plan })
}
