//! Flows of several rules: what each rule is, and at which level.

use sluice_flow::refusal::Refusal;

use super::connections::TABLES_TO_CONNECTIONS;
use super::continuations::{Continuation, Continued, Of};
use super::core::{Switch, no_connections};
use super::installed::Installed;
use super::kinds::actions_of;
use super::meters::MeterActions;
use super::refusal::{explain, refuse};
use super::rule_id::RuleId;
use super::tables::MatcherId;
use crate::mlx5::Action;
use crate::translate::registers::{CONTINUATION, CT_ZONE, GREEN, RED};
use crate::translate::{Instance, Plan, Template, Tracking};

impl Switch {
    /// Makes all rules of a flow that has more than one.
    pub(super) fn insert_continued(&mut self, rule: Instance, id: RuleId) -> Result<(Installed, Continued), Refusal> {
        let value = rule.value();
        let Instance { flow, template } = rule;
        self.capabilities.check(&template.plan)?;
        if self.continuations.must_settle() {
            self.wait_for_packets()?;
        }
        let mut continuation = self.continuations.begin()?;
        let made = self.rules_behind(&template, &mut continuation, id).and_then(|actions| {
            let (matcher, of) = self.tables.matcher(&template)?;
            let rule = self.before_first(matcher).and_then(|()| {
                // Packets whose connection is not found are not counted.
                let count = template.plan.tracking.is_none().then(|| self.counters.counter(id));
                of.shape(actions).rule(&value, count).map_err(refuse)
            });
            rule.map(|rule| (rule, matcher)).inspect_err(|_| self.tables.release(matcher))
        });
        match made {
            Ok((rule, matcher)) => Ok((Installed { rule, flow, kind: None }, Continued { matcher, continuation })),
            Err(refusal) => {
                self.continuations.give_up(continuation);
                self.prune();
                Err(explain(refusal, &template))
            }
        }
    }

    /// Makes the rules behind the first, and returns what that does besides counting.
    fn rules_behind(
        &mut self,
        template: &Template,
        continuation: &mut Continuation,
        id: RuleId,
    ) -> Result<Box<[Action]>, Refusal> {
        let (plan, table) = (&template.plan, template.table());
        let to_connections = if plan.tracking.is_some() { TABLES_TO_CONNECTIONS } else { 0 };
        let between = plan.rules_behind() + to_connections;
        let end = self.tables.level(template.next_table())?;
        self.tables.keep_before(&table, end, between, format_args!("its rules behind the first"))?;
        let level = end - between;
        let note = CONTINUATION.set(continuation.number);
        let Some(tracking) = plan.tracking else {
            return self.actions_before(template, plan, level, continuation, &[note]);
        };
        let level = level + to_connections;
        let actions = self.actions_before(template, plan, level, continuation, &[])?;
        let count = self.counters.action(id)?;
        let found = Of { level: level - 1, vport: template.from(), color: None };
        self.continuations.add(continuation, found, actions, Some(count))?;
        self.lead_to_connections(tracking, level - TABLES_TO_CONNECTIONS, note)
    }

    /// Makes the rules behind one that does what `plan` says, from a level on, and returns what that one does besides counting. It
    /// rewrites with `note`, too.
    fn actions_before(
        &mut self,
        template: &Template,
        plan: &Plan,
        mut level: u32,
        continuation: &mut Continuation,
        note: &[u64],
    ) -> Result<Box<[Action]>, Refusal> {
        let meter = plan.meter.map(|id| self.meters.actions(id, &self.counters)).transpose()?;
        let mut behind = Vec::new();
        for next in &plan.behind {
            let actions = self.actions_before(template, next, level + 1, continuation, &[])?;
            let of = Of { level, vport: template.from(), color: meter.is_some().then_some(GREEN) };
            let count = meter.as_ref().map(|meter| meter.passed.clone());
            self.continuations.add(continuation, of, actions, count)?;
            behind.push((level, self.continuations.jump(level)?));
            if let Some(MeterActions { dropped, .. }) = &meter {
                let drop = self.actions.drop_all()?;
                self.continuations.add(continuation, Of { color: Some(RED), ..of }, drop, Some(dropped.clone()))?;
            }
            level += 1 + next.rules_behind();
        }
        let Self { tables, next_hops, actions, .. } = self;
        let list = actions_of(plan, &template.table(), &behind, note, tables, next_hops, actions)?;
        // Packets are colored last, and then go on.
        let mut list = list.into_vec();
        let end = list.len().saturating_sub(1);
        list.splice(end..end, meter.map(|meter| meter.color));
        Ok(list.into())
    }

    /// Returns the actions of a first rule that leads to the connections of a zone, in a table of a level.
    fn lead_to_connections(&mut self, tracking: Tracking, level: u32, note: u64) -> Result<Box<[Action]>, Refusal> {
        let found = self.continuations.jump(level + 1)?;
        let connections = self.connections.as_mut().ok_or_else(no_connections)?;
        let jump = connections.open_stage(tracking, level, found)?;
        let note = Action::modify_header(&self.domain, &[CT_ZONE.set(tracking.zone.into()), note]).map_err(refuse)?;
        Ok([note, jump].into())
    }

    /// Makes sure that the rules behind are in the device before the first one: libmlx5 writes those of a fixed layout by other rings.
    fn before_first(&self, matcher: MatcherId) -> Result<(), Refusal> {
        if self.tables.has_fixed_layout(matcher) { self.sync() } else { Ok(()) }
    }

    /// Waits until no packet is under rules that are gone, and frees what they had.
    pub(super) fn wait_for_packets(&mut self) -> Result<(), Refusal> {
        self.domain.sync().map_err(refuse)?;
        self.continuations.settle();
        if let Some(connections) = &mut self.connections {
            connections.settle(&mut self.counters);
        }
        self.counters.rest(self.unsettled.drain(..));
        Ok(())
    }
}
