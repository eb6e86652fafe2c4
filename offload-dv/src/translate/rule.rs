//! A flow by itself as one rule.

use sluice_flow::Flow;
use sluice_flow::refusal::Refusal;

use super::actions::{self, Plan};
use super::matching::{self, Matched};
use super::table_id::TableId;
use super::vports::Vports;

/// A rule by itself, as `explain` tells it; rules that are made come by [`Templates`](super::Templates).
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
    let matched = matching::translate(&flow.matching().expand(), actions::need_whole(&flow.actions), false, vports)?;
    matched.guarantees.check(flow.priority)?;
    let plan = actions::translate(&flow.actions, &matched.guarantees, None, vports)?;
    let table = TableId { chain: flow.chain(), entrance: matched.guarantees.entrance, deferred: None };
    Ok(Rule { table, matched, plan })
}
