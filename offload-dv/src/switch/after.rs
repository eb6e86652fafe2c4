//! What flows have in tables of packets whose changes are deferred.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_flow::refusal::Refusal;

use super::installed::{Installed, Rules};
use super::rule_id::RuleId;
use crate::translate::{TableId, Templates, Vports};

/// The rules, by the flows.
#[derive(Default)]
pub(super) struct AfterChanges {
    pub(super) rules: HashMap<RuleId, Vec<After>>,
    /// Tables to which nothing leads yet.
    pub(super) begun: Vec<TableId>,
    pub(super) templates: Templates,
    /// `None` until it is known which vports ports are.
    pub(super) vports: Option<Arc<dyn Vports + Send + Sync>>,
}

/// A rule in one of these tables.
pub(super) struct After {
    pub(super) table: TableId,
    pub(super) rules: Rules,
}

/// All that a flow has.
pub(super) struct Everywhere {
    pub(super) first: Rules,
    pub(super) after: Vec<After>,
}

/// Why a flow has no rules.
pub(super) struct Refused {
    pub(super) refusal: Refusal,
    /// Whether it had some for a moment, which may have counted packets.
    pub(super) had_rules: bool,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, had_rules: false }
    }
}

impl AfterChanges {
    /// Puts down what a flow has, and returns what it had.
    pub(super) fn put(&mut self, id: RuleId, rules: Vec<After>) -> Vec<After> {
        if rules.is_empty() { self.take(id) } else { self.rules.insert(id, rules).unwrap_or_default() }
    }

    /// Takes what a flow has.
    pub(super) fn take(&mut self, id: RuleId) -> Vec<After> {
        if self.rules.is_empty() { Vec::new() } else { self.rules.remove(&id).unwrap_or_default() }
    }

    /// Returns all rules, each with its flow's name and its place among those of the flow.
    pub(super) fn rules(&self) -> impl Iterator<Item = (RuleId, usize, &Installed)> {
        let of_flow = |(id, rules): (&RuleId, &'_ Vec<After>)| (*id, rules.len());
        let places = self.rules.iter().map(of_flow).flat_map(|(id, rules)| (0..rules).map(move |place| (id, place)));
        places.filter_map(|(id, place)| Some((id, place, &self.rules.get(&id)?.get(place)?.rules.0)))
    }

    /// Returns one of them.
    pub(super) fn rule_mut(&mut self, id: RuleId, place: usize) -> Option<&mut Installed> {
        Some(&mut self.rules.get_mut(&id)?.get_mut(place)?.rules.0)
    }
}
