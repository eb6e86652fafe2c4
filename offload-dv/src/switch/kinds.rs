//! What the rules of a template need of the device: their matcher, and the actions that they share.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_flow::refusal::Refusal;
use sluice_flow::{ChainId, Flow};

use super::actions::Actions;
use super::next_hops::NextHops;
use super::refusal::refuse;
use super::tables::{MatcherId, Tables};
use crate::mlx5::{Action, Counts, MatchParameter, Matcher, Rule, Shape};
use crate::translate::{Plan, TableId, Template};

/// One for each template that has rules. A template remembers its place, so that no rule but the first looks up masks and actions.
#[derive(Default)]
pub(super) struct Kinds {
    kinds: Vec<Option<Kind>>,
    free: Vec<u32>,
}

/// The place of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KindId(u32);

pub(super) struct Kind {
    pub(super) template: Arc<Template>,
    pub(super) shape: Shape,
    pub(super) matcher: MatcherId,
    /// What the rule that was made last looks for.
    value: MatchParameter,
    rules: u32,
}

impl Kinds {
    /// Returns the kind of a template's rules, made if need be, and counts one more rule.
    pub(super) fn enter(
        &mut self,
        template: &Arc<Template>,
        tables: &mut Tables,
        next_hops: &mut NextHops,
        actions: &mut Actions,
    ) -> Result<KindId, Refusal> {
        let id = KindId(template.place());
        if let Some(Some(kind)) = self.kinds.get_mut(id.0 as usize)
            && Arc::ptr_eq(&kind.template, template)
        {
            // What others do already is no reason to lead there, if there is no way now.
            if let Some(wrapping) = &template.plan.wraps {
                next_hops.jump(wrapping.hop, actions)?;
            }
            kind.rules += 1;
            return Ok(id);
        }
        let kind = Kind::make(template, tables, next_hops, actions)?;
        let id = match self.free.pop() {
            Some(index) => {
                self.kinds[index as usize] = Some(kind);
                index
            }
            None => {
                self.kinds.push(Some(kind));
                u32::try_from(self.kinds.len() - 1).unwrap_or(u32::MAX)
            }
        };
        template.set_place(id);
        Ok(KindId(id))
    }

    /// Returns whether a template has rules.
    pub(super) fn has(&self, template: &Arc<Template>) -> bool {
        self.get(KindId(template.place())).is_some_and(|kind| Arc::ptr_eq(&kind.template, template))
    }

    /// Makes the rule of a flow that has the template of a kind. It counts with `count`.
    pub(super) fn rule(&mut self, id: KindId, flow: &Flow, count: (&Counts, usize)) -> Result<Rule, Refusal> {
        let Some(Some(kind)) = self.kinds.get_mut(id.0 as usize) else {
            return Err(Refusal::Device { reason: "the rule's matcher is gone".into() });
        };
        kind.template.fill(flow, &mut kind.value);
        kind.shape.rule(&kind.value, Some(count)).map_err(refuse)
    }

    pub(super) fn get(&self, id: KindId) -> Option<&Kind> {
        self.kinds.get(id.0 as usize)?.as_ref()
    }

    /// Has rules of a matcher be made of the one that takes its place from now on.
    pub(super) fn move_to(&mut self, id: MatcherId, matcher: &Matcher) {
        for kind in self.kinds.iter_mut().flatten().filter(|kind| kind.matcher == id) {
            kind.shape = kind.shape.under(matcher);
        }
    }

    /// Returns the chains of rules that lead to a chain.
    pub(super) fn leading_to(&self, chain: ChainId) -> BTreeSet<ChainId> {
        self.that_lead_to(chain).iter().map(|(_, template)| template.chain()).collect()
    }

    /// Returns the kinds of rules that lead to a chain.
    pub(super) fn that_lead_to(&self, chain: ChainId) -> Vec<(KindId, Arc<Template>)> {
        let kinds = (0..).map(KindId).zip(&self.kinds);
        let kinds = kinds.filter_map(|(id, kind)| Some((id, &kind.as_ref()?.template)));
        kinds.filter(|(_, template)| template.plan.jump == Some(chain)).map(|(id, of)| (id, of.clone())).collect()
    }

    /// Returns how many rules are in a chain, or lead to it.
    pub(super) fn rules_around(&self, chain: ChainId) -> usize {
        let is_near = |kind: &&Kind| kind.template.chain() == chain || kind.template.plan.jump == Some(chain);
        self.kinds.iter().flatten().filter(is_near).map(|kind| kind.rules as usize).sum()
    }

    /// Has rules of a kind do something else from now on, and returns what they were made of.
    pub(super) fn change_actions(&mut self, id: KindId, actions: Box<[Action]>) -> Option<Shape> {
        let shape = self.get(id)?.shape.with(actions);
        self.put_shape(id, shape)
    }

    /// Has rules of a kind be made of something else from now on, and returns what they were made of.
    pub(super) fn put_shape(&mut self, id: KindId, shape: Shape) -> Option<Shape> {
        let kind = self.kinds.get_mut(id.0 as usize)?.as_mut()?;
        Some(std::mem::replace(&mut kind.shape, shape))
    }

    /// Counts one rule less. Returns whether that was the last of its kind, whose actions and tables nobody else may need.
    pub(super) fn leave(&mut self, id: KindId, tables: &mut Tables) -> bool {
        let Some(place) = self.kinds.get_mut(id.0 as usize) else { return false };
        let Some(kind) = place else { return false };
        kind.rules -= 1;
        if kind.rules > 0 {
            return false;
        }
        if let Some(Kind { shape, matcher, .. }) = place.take() {
            drop(shape);
            tables.release(matcher);
        }
        self.free.push(id.0);
        true
    }
}

impl Kind {
    fn make(
        template: &Arc<Template>,
        tables: &mut Tables,
        next_hops: &mut NextHops,
        actions: &mut Actions,
    ) -> Result<Self, Refusal> {
        let actions = actions_of(&template.plan, &template.table(), &[], &[], tables, next_hops, actions)?;
        let (matcher, of) = tables.matcher(template)?;
        let (template, shape, value) = (template.clone(), of.shape(actions), *template.base());
        Ok(Self { template, shape, matcher, value, rules: 1 })
    }
}

/// Returns the actions besides counting of a rule that does what `plan` says, rewrites with `note`, too, and leads to the rules `behind`,
/// each with the level of its table.
pub(super) fn actions_of(
    plan: &Plan,
    table: &TableId,
    behind: &[(u32, Action)],
    note: &[u64],
    tables: &mut Tables,
    next_hops: &mut NextHops,
    actions: &mut Actions,
) -> Result<Box<[Action]>, Refusal> {
    let jump = match (&plan.wraps, plan.jump) {
        (Some(wrapping), _) => Some(next_hops.jump(wrapping.hop, actions)?),
        (None, Some(to)) => Some(tables.jump(table, &table.to(to, plan.deferred.clone()))?),
        (None, None) => None,
    };
    actions.list(plan, jump, behind, note)
}
