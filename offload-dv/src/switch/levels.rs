//! Chains come to lower levels when others are found to follow them: tables are entered by ascending levels only, and libmlx5 keeps a table
//! where it was made.
//!
//! All tables of the chain are made anew, with all rules; then those that lead to them are made anew; then the old ones go. A packet meets
//! one of the two, and both count with the same counter. Chains that lead to it are brought below it first.

use std::collections::BTreeSet;

use sluice_flow::ChainId;
use sluice_flow::action::jumps;
use sluice_flow::refusal::Refusal;

use super::connections::TABLES_TO_CONNECTIONS;
use super::core::Switch;
use super::kinds::{Kind, KindId, actions_of};
use super::rule_id::RuleId;
use super::tables::Moved;
use crate::mlx5::{Rule, Shape};
use crate::translate::{TableId, Template};

/// Rules at most that are made anew for a new jump: the thread of the device has other work, too.
const MOST_MADE_ANEW: usize = 4_096;

/// A rule that is made anew, and whose it is: that of a flow, or one of those after changes that are deferred, by its place among them.
struct Anew {
    id: RuleId,
    after: Option<usize>,
    rule: Rule,
}

impl Switch {
    /// Makes sure that the tables of a template's chain come before those of the chain that it leads to. Fails if these lead back, or if
    /// there are more chains one behind the other than levels.
    pub(super) fn order_chains(&mut self, template: &Template, to: &TableId) -> Result<(), Refusal> {
        let to_connections = if template.plan.tracking.is_some() { TABLES_TO_CONNECTIONS } else { 0 };
        let between = template.plan.rules_behind() + to_connections;
        let most = self.tables.level_of(to.chain).saturating_sub(between + 1);
        let chain = template.chain();
        if self.is_at(chain, most) {
            return Ok(());
        }
        if chain == to.chain {
            return refuse(format!("chain {chain} leads to itself"));
        }
        if self.leads(to.chain, chain) {
            return refuse(format!("chain {} leads to chain {chain} already", to.chain));
        }
        self.bring_down(chain, most, to.chain)
    }

    /// Whether the tables of a chain are at a level, or below, or may come there as they are.
    fn is_at(&self, chain: ChainId, most: u32) -> bool {
        self.tables.level_of(chain) <= most || !self.tables.has_rules_or_ways(chain)
    }

    /// Whether packets of one chain may come to another one.
    fn leads(&self, from: ChainId, to: ChainId) -> bool {
        let (mut seen, mut rest) = (BTreeSet::from([to]), vec![to]);
        while let Some(chain) = rest.pop() {
            rest.extend(self.kinds.leading_to(chain).into_iter().filter(|before| seen.insert(*before)));
        }
        seen.contains(&from)
    }

    /// Has the tables of a chain be at a level, or below, so that it may lead to `target`.
    fn bring_down(&mut self, chain: ChainId, most: u32, target: ChainId) -> Result<(), Refusal> {
        if self.is_at(chain, most) {
            return Ok(());
        }
        if !self.tables.can_be_at(chain, most) {
            return refuse(format!(
                "more chains lead to chain {target}, one behind the other, than the device has levels"
            ));
        }
        if self.has_several_rules(chain) {
            let reason = "would have to come to another level, and flows of several rules are in it or lead to it";
            return refuse(format!("chain {chain} {reason}"));
        }
        let number = self.kinds.rules_around(chain);
        if number > MOST_MADE_ANEW {
            let limit = format!("and {MOST_MADE_ANEW} at most are");
            return refuse(format!(
                "{number} rules of chain {chain}, or that lead to it, would have to be made anew, {limit}"
            ));
        }
        for before in self.kinds.leading_to(chain) {
            self.bring_down(before, most - 1, target)?;
        }
        self.move_chain(chain, most)
    }

    /// Whether flows of several rules are in a chain, or lead to it.
    fn has_several_rules(&self, chain: ChainId) -> bool {
        let flows = self.continued.keys().filter_map(|id| self.flow(*id));
        flows.into_iter().any(|flow| flow.chain() == chain || jumps(&flow.actions).contains(&chain))
    }

    fn move_chain(&mut self, chain: ChainId, level: u32) -> Result<(), Refusal> {
        let old = self.tables.move_chain(chain, level)?;
        for (id, _) in &old.matchers {
            if let Some(matcher) = self.tables.matcher_of(*id) {
                self.kinds.move_to(*id, &matcher);
            }
        }
        let mut shapes = Vec::new();
        match self.make_anew(chain, &mut shapes) {
            Ok((of_chain, leading)) => {
                leading.into_iter().for_each(|anew| self.put(anew));
                // Packets that are on their way to the old tables still meet the rules there.
                self.domain.sync().unwrap_or_else(|error| tracing::warn!("packets in flight may miss: {error}"));
                of_chain.into_iter().for_each(|anew| self.put(anew));
                drop((shapes, old));
                Ok(())
            }
            Err(refusal) => {
                self.take_back(old, shapes);
                Err(refusal)
            }
        }
    }

    /// Makes the rules of a chain anew, and then those that lead to it. Notes what these had been made of.
    fn make_anew(
        &mut self,
        chain: ChainId,
        shapes: &mut Vec<(KindId, Shape)>,
    ) -> Result<(Vec<Anew>, Vec<Anew>), Refusal> {
        let of_chain = self.rules_anew(|kind| kind.template.chain() == chain)?;
        self.sync()?;
        for (id, template) in self.kinds.that_lead_to(chain) {
            let Self { tables, next_hops, actions, .. } = self;
            let actions = actions_of(&template.plan, &template.table(), &[], &[], tables, next_hops, actions)?;
            shapes.extend(self.kinds.change_actions(id, actions).map(|shape| (id, shape)));
        }
        let leading = self.rules_anew(|kind| kind.template.plan.jump == Some(chain))?;
        self.sync()?;
        Ok((of_chain, leading))
    }

    /// Makes all rules of some kinds once more.
    fn rules_anew(&mut self, is_wanted: impl Fn(&Kind) -> bool) -> Result<Vec<Anew>, Refusal> {
        let Self { rules, after, kinds, counters, .. } = self;
        let first = rules.iter().filter_map(|(id, rule)| Some((id, None, rule.as_ref()?)));
        let after = after.rules().map(|(id, place, rule)| (id, Some(place), rule));
        let wanted = first.chain(after).filter_map(|(id, after, rule)| {
            let kind_id = rule.kind?;
            kinds.get(kind_id).filter(|kind| is_wanted(kind))?;
            let made = kinds.rule(kind_id, &rule.flow, counters.counter(id));
            Some(made.map(|rule| Anew { id, after, rule }))
        });
        wanted.collect()
    }

    fn put(&mut self, Anew { id, after, rule }: Anew) {
        let place = match after {
            None => self.rules.get_mut(id).as_mut(),
            Some(place) => self.after.rule_mut(id, place),
        };
        if let Some(installed) = place {
            installed.rule = rule;
        }
    }

    fn take_back(&mut self, old: Moved, shapes: Vec<(KindId, Shape)>) {
        for (id, shape) in shapes {
            self.kinds.put_shape(id, shape);
        }
        for (id, matcher) in &old.matchers {
            self.kinds.move_to(*id, matcher);
        }
        self.tables.take_back(old);
    }
}

fn refuse(reason: String) -> Result<(), Refusal> {
    Err(Refusal::Combination { reason: reason.into() })
}
