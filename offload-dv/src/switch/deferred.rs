//! Rules of flows in tables of packets whose changes are deferred.
//!
//! A flow of a later chain has a rule in each table of its chain that it can match in, and all of them count with one counter. A table
//! begins with the first rule that leads to it with these changes: it has the rules of all flows of its chain before that one acts. It
//! ends with the last one.
//!
//! Where a flow cannot be asked for after some changes, the one that comes later is refused, be it the flow or the one that changes
//! packets and leads to it: a table never lacks a flow that could take precedence over others.

use std::sync::Arc;

use sluice_flow::refusal::Refusal;
use sluice_flow::{ChainId, Flow};

use super::after::{After, Everywhere, Refused};
use super::core::Switch;
use super::rule_id::RuleId;
use crate::translate::{Instance, TableId, Template, Vports};

/// Tables of a chain at most that differ in changes: each costs a rule of each flow.
const MOST_TABLES: usize = 64;

impl Switch {
    /// Says which vports ports are, for rules that are made of flows that are there already.
    pub fn set_vports(&mut self, vports: Arc<dyn Vports + Send + Sync>) {
        self.after.templates.clear();
        self.after.vports = Some(vports);
    }

    /// Makes all rules of a flow.
    pub(super) fn insert_everywhere(&mut self, rule: Instance, id: RuleId) -> Result<Everywhere, Refused> {
        let chain = rule.template.chain();
        let first = self.insert(rule, id)?;
        let tables = self.tables.after(chain);
        if tables.is_empty() {
            return Ok(Everywhere { first, after: Vec::new() });
        }
        let (tables, flow) = (tables.to_vec(), first.0.flow.clone());
        let mut after = Vec::new();
        for table in tables {
            match self.insert_in(table, &flow, id) {
                Ok(rule) => after.extend(rule),
                Err(refusal) => {
                    let (first, continued) = first;
                    self.release(first, continued);
                    self.release_after(after);
                    self.prune();
                    let refusal = named(refusal, |reason| {
                        format!("packets come to chain {chain} with changes that are deferred: {reason}")
                    });
                    return Err(Refused { refusal, had_rules: true });
                }
            }
        }
        Ok(Everywhere { first, after })
    }

    /// Takes rules out of these tables. Returns whether one of them was the last of its kind.
    pub(super) fn release_after(&mut self, rules: Vec<After>) -> bool {
        let mut was_last = false;
        for After { rules: (first, continued), .. } in rules {
            (self.goes_on)();
            was_last |= self.release(first, continued);
        }
        was_last
    }

    /// Makes sure that the table that rules of a template lead to can be led to, and has all rules that it needs.
    pub(super) fn prepare_jump(&mut self, template: &Template) -> Result<(), Refusal> {
        let Some(table) = template.next_table() else { return Ok(()) };
        self.order_chains(template, &table)?;
        if table.deferred.is_some() && !self.tables.is_open(&table) { self.fill(&table) } else { Ok(()) }
    }

    /// Makes a table with the rules of all flows of its chain. If one of them cannot be asked for there, the table goes again.
    fn fill(&mut self, table: &TableId) -> Result<(), Refusal> {
        if self.tables.after(table.chain).len() >= MOST_TABLES {
            let reason = format!("packets come to chain {} with {MOST_TABLES} lists of changes already", table.chain);
            return Err(Refusal::Combination { reason: reason.into() });
        }
        self.tables.open_table(table)?;
        self.after.begun.push(table.clone());
        let filled = self.flows_of(table.chain).into_iter().try_for_each(|(id, flow)| {
            (self.goes_on)();
            let rule = self.insert_in(table.clone(), &flow, id)?;
            self.after.rules.entry(id).or_default().extend(rule);
            Ok(())
        });
        self.after.begun.pop();
        // It must be there before anything leads to it.
        filled.and_then(|()| self.sync()).inspect_err(|_| self.close(table)).map_err(|refusal| {
            named(refusal, |reason| format!("a flow of chain {} cannot follow these changes: {reason}", table.chain))
        })
    }

    fn flows_of(&self, chain: ChainId) -> Vec<(RuleId, Flow)> {
        let flows = self.rules.iter().filter_map(|(id, rule)| Some((id, &rule.as_ref()?.flow)));
        flows.filter(|(_, flow)| flow.chain() == chain).map(|(id, flow)| (id, flow.clone())).collect()
    }

    /// Makes the rule of a flow in one of these tables; `None` if no packet matches that comes there.
    fn insert_in(&mut self, table: TableId, flow: &Flow, id: RuleId) -> Result<Option<After>, Refusal> {
        let Some(vports) = self.after.vports.clone() else {
            return Err(Refusal::Device { reason: "it is not known which vports ports are".into() });
        };
        let Some(instance) = self.after.templates.instance_in(&table, flow, &*vports)? else { return Ok(None) };
        Ok(Some(After { table, rules: self.insert(instance, id)? }))
    }

    /// Takes the rules out of tables that nothing leads to any more.
    pub(super) fn close_tables(&mut self) {
        let mut has_waited = false;
        while let Some(table) = self.tables.without_a_way(&self.after.begun) {
            if !std::mem::replace(&mut has_waited, true) {
                // Packets that are on their way there still meet them.
                self.domain.sync().unwrap_or_else(|error| tracing::warn!("packets in flight may miss: {error}"));
            }
            self.close(&table);
        }
    }

    fn close(&mut self, table: &TableId) {
        let mut gone = Vec::new();
        self.after.rules.retain(|_, rules| {
            gone.extend(rules.extract_if(.., |rule| rule.table == *table));
            !rules.is_empty()
        });
        self.release_after(gone);
        self.tables.prune();
    }
}

/// The same for another flow than the one that it is of.
fn named(refusal: Refusal, words: impl FnOnce(Refusal) -> String) -> Refusal {
    match refusal.cause() {
        Some(_) => refusal,
        None => Refusal::Combination { reason: words(refusal).into() },
    }
}
