//! The tables that packets pass from the first rule of a flow to those behind, and the one that takes translations back.

use std::collections::HashMap;

use super::tables::{END, lead_rest_to};
use crate::mlx5::{Action, CallError, Domain, MatchParameter, Matcher, Rule, Table};
use crate::translate::{ConnectionRule, continuation, translated_mask};

/// The level of the table that takes translations back: above those of all rules of flows.
const RESTORATION_LEVEL: u32 = END;
/// The level of a table without rules. libmlx5 takes no default miss behind a rewrite, and a miss in that table is one.
const END_LEVEL: u32 = RESTORATION_LEVEL + 1;

/// A table whose rules are of few masks, and where the packets that match nothing are led on.
pub(super) struct Stage {
    matchers: HashMap<MatchParameter, Matcher>,
    table: Table,
    /// Leads here.
    pub(super) jump: Action,
    _rest: Option<Rule>,
}

/// The table that gives translated packets back what they came in with, and lets them go where those go that match nothing.
pub(super) struct Restoration {
    matcher: Matcher,
    /// Leads here.
    pub(super) jump: Action,
    end: Action,
    domain: Domain,
}

impl Stage {
    pub(super) fn open(domain: &Domain, level: u32, rest: Option<&Action>) -> Result<Self, CallError> {
        let table = domain.table(level)?;
        let jump = Action::to_table(&table)?;
        let rest = rest.map(|rest| lead_rest_to(&table, rest)).transpose()?;
        Ok(Self { matchers: HashMap::new(), table, jump, _rest: rest })
    }

    /// Makes a rule.
    pub(super) fn rule(
        &mut self,
        mask: &MatchParameter,
        value: &MatchParameter,
        actions: Box<[Action]>,
        count: Option<Action>,
    ) -> Result<Rule, CallError> {
        if !self.matchers.contains_key(mask) {
            self.matchers.insert(*mask, self.table.matcher(0, mask)?);
        }
        let actions = count.into_iter().chain(actions).collect();
        self.matchers[mask].rule(value, actions)
    }

    /// Makes a rule of the flow with a number, which packets carry that come from `vport`, if that is known, and have a color, if a meter
    /// gave one.
    pub(super) fn follow(
        &mut self,
        number: u32,
        vport: Option<u16>,
        color: Option<u32>,
        actions: Box<[Action]>,
        count: Option<Action>,
    ) -> Result<Rule, CallError> {
        let (mask, value) = continuation(number, vport, color);
        self.rule(&mask, &value, actions, count)
    }
}

impl Restoration {
    pub(super) fn open(domain: &Domain) -> Result<Self, CallError> {
        let table = domain.table(RESTORATION_LEVEL)?;
        Ok(Self {
            matcher: table.matcher(0, &translated_mask())?,
            jump: Action::to_table(&table)?,
            end: Action::to_table(&domain.table(END_LEVEL)?)?,
            domain: domain.clone(),
        })
    }

    /// Makes the rule that takes a translation back.
    pub(super) fn rule(&self, restoration: &ConnectionRule) -> Result<Rule, CallError> {
        let change = Action::modify_header(&self.domain, &restoration.modifications)?;
        self.matcher.shape([change, self.end.clone()].into()).rule(&restoration.value, None)
    }
}
