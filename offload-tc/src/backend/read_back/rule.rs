//! Rules of ours as the kernel shows them, and what they mean.

use std::collections::BTreeMap;

use sluice_flow::action::ActionList;
use sluice_flow::backend::Placement;
use sluice_flow::flow::{Expiry, Flow};
use sluice_flow::key::{MaskedKey, Match};
use sluice_flow::priority::Priority;
use sluice_flow::ufid::{Seed, Ufid};

use crate::backend::ledger::record::Place;
use crate::backend::placement;
use crate::backend::ports::Ports;
use crate::label::{Label, Spelling};
use crate::translate;
use crate::wire::filter::{Filter, FilterId, FilterView};
use crate::wire::flower::Flower;
use crate::wire::rule_view::RuleView;

/// A rule of ours as the kernel shows it.
pub(crate) struct ShownRule {
    pub(crate) filter: Filter,
    /// What it means; `None` if it is no flow's.
    pub(crate) content: Option<Content>,
}

/// What a rule means.
pub(crate) struct Content {
    pub(crate) flow: Flow,
    /// Whether the notes name the UFID.
    pub(crate) is_named: bool,
    /// Match and actions of the guard that the flow needs, if it needs one.
    pub(crate) guard: Option<Box<(Match, ActionList)>>,
}

impl ShownRule {
    pub(crate) fn new(ports: &Ports, filter: Filter) -> Self {
        Self { content: Content::read(ports, &filter), filter }
    }

    pub(crate) const fn id(&self) -> FilterId {
        self.filter.id
    }

    pub(crate) fn is_guard(&self) -> bool {
        Label::of(&self.filter.flower).is_some_and(|label| label.spelling.has(Spelling::GUARD))
    }

    /// Parses the options of a rule.
    pub(crate) fn parse(ports: &Ports, id: FilterId, options: &[u8]) -> Self {
        let view = FilterView::of_flower(id, options);
        // We write only rules that parse: of another one just notes and flags are known.
        let filter = view.parse().unwrap_or_else(|_| Filter { id, flower: unparsed(&view) });
        Self::new(ports, filter)
    }
}

impl Content {
    fn read(ports: &Ports, filter: &Filter) -> Option<Self> {
        let (label, matching, actions) = read(ports, filter)?;
        // If the guard cannot be determined, neither can the flow.
        let guard = translate::guard(&matching, &actions).ok().flatten().map(Box::new);
        Some(Self { flow: flow_of(&label, &matching, actions), is_named: label.ufid.is_some(), guard })
    }
}

/// The rules of a flow as the kernel shows them.
pub(crate) struct ShownFlow {
    pub(crate) rule: ShownRule,
    pub(crate) guard: Option<ShownRule>,
}

/// A rule's notes, match and actions.
pub(crate) type ReadBack = (Label, Match, ActionList);

/// Whether a flow has the guard that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardCheck {
    /// It has the right guard, or neither has nor needs one.
    Right,
    /// It has a guard and needs none.
    Unneeded,
    /// It needs a guard and has none.
    Missing,
    /// It has another guard than it needs.
    Wrong,
}

impl ShownFlow {
    /// Puts rules and their guards together. Returns separately the guards without a rule.
    pub(crate) fn pairs(rules: Vec<ShownRule>) -> (Vec<Self>, Vec<ShownRule>) {
        let (guards, rules): (Vec<_>, Vec<_>) = rules.into_iter().partition(ShownRule::is_guard);
        let mut guards: BTreeMap<_, _> = guards.into_iter().map(|guard| (guard.id(), guard)).collect();
        let pair = |rule: ShownRule| {
            let id = rule.id();
            let name = Place::of(&id).in_front().map(|place| FilterId { priority: place.priority, ..id });
            Self { guard: name.and_then(|name| guards.remove(&name)), rule }
        };
        let pairs = rules.into_iter().map(pair).collect();
        (pairs, guards.into_values().collect())
    }

    /// Checks the guard of a flow. A rule that is no flow's needs none.
    pub(crate) fn check_guard(&self, ports: &Ports) -> GuardCheck {
        let needed = self.rule.content.as_ref().and_then(|content| content.guard.as_deref());
        match (needed, &self.guard) {
            (None, None) => GuardCheck::Right,
            (None, Some(_)) => GuardCheck::Unneeded,
            (Some(_), None) => GuardCheck::Missing,
            (Some(needed), Some(guard)) => match read(ports, &guard.filter) {
                Some((_, matching, actions)) if (&matching, &actions) == (&needed.0, &needed.1) => GuardCheck::Right,
                _ => GuardCheck::Wrong,
            },
        }
    }
}

/// Reads a rule of ours back.
pub(crate) fn read(ports: &Ports, filter: &Filter) -> Option<ReadBack> {
    let label = Label::of(&filter.flower)?;
    let (matching, actions) = translate::flow(filter, &label, &**ports.load()).ok()?;
    Some((label, matching, actions))
}

/// The placement of a flow by its rules.
pub(crate) fn placement_with(rule: &ShownRule, guard: Option<&ShownRule>) -> Placement {
    let of = |rule: &ShownRule| placement::of_flags(rule.filter.flower.flags);
    guard.map_or(of(rule), |guard| placement::of_both(of(guard), of(rule)))
}

/// The UFIDs that are made with this seed are never used: those of flows come from their notes.
const SEED: Seed = Seed([0; 16]);

pub(crate) fn flow_of(label: &Label, matching: &Match, actions: ActionList) -> Flow {
    Flow::new(label.ufid, MaskedKey::new(matching), actions, label.priority, Expiry::default(), &SEED)
}

/// What stands for a rule that is no flow's: a flow with its UFID that does nothing.
pub(crate) fn unknown_flow(ufid: Option<Ufid>) -> Flow {
    let key = MaskedKey::new(&Match::default());
    Flow::new(ufid, key, [].into(), Priority::default(), Expiry::default(), &SEED)
}

/// Notes and flags of a rule that cannot be parsed.
fn unparsed(view: &FilterView<'_>) -> Flower {
    use crate::wire::action::{Action, Control, Cookie, Operation};
    let Ok(rule) = RuleView::new(view) else { return Flower::default() };
    let noted =
        |note: &[u8]| Action { cookie: Cookie::new(note), ..Action::new(Operation::Generic, Control::Other(i32::MIN)) };
    Flower { actions: rule.cookies.map(noted).into(), flags: rule.flags, ..Flower::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::Room;
    use crate::marks::{AgentId, Format};
    use crate::wire::action::{Action, Control, Operation};
    use crate::wire::filter::Hook;

    #[test]
    fn a_guard_belongs_to_the_rule_of_its_number_behind_it_and_else_to_none() {
        let filter = |priority, handle, spelling| {
            let mut actions = vec![Action::new(Operation::Generic, Control::Shot)];
            let (ufid, priority_of_flow, digest) = Default::default();
            let (agent, format) = (AgentId(1), Format::CURRENT);
            let label = Label { ufid, agent, format, priority: priority_of_flow, spelling, digest };
            label.put(&mut actions, Room::Found);
            let id = FilterId { hook: Hook::Ingress { interface: 3 }, chain: 0, priority, protocol: 0x0800, handle };
            let filter = Filter { id, flower: Flower { actions, ..Flower::default() } };
            ShownRule { filter, content: None }
        };
        let (rule, guard) =
            (|handle| filter(61_004, handle, Spelling::default()), |handle| filter(61_000, handle, Spelling::GUARD));
        let (pairs, alone) = ShownFlow::pairs(vec![guard(7), guard(8), rule(7), rule(9)]);
        let numbers =
            pairs.iter().map(|found| (found.rule.id().handle, found.guard.as_ref().map(|guard| guard.id().handle)));
        assert_eq!(numbers.collect::<Vec<_>>(), [(7, Some(7)), (9, None)]);
        assert_eq!(alone.iter().map(|guard| guard.id().handle).collect::<Vec<_>>(), [8]);
        // A rule at a guard's priority without a guard's notes is a flow's own.
        let (pairs, alone) = ShownFlow::pairs(vec![filter(61_000, 7, Spelling::default()), rule(7)]);
        assert_eq!((pairs.len(), pairs.iter().all(|found| found.guard.is_none()), alone.len()), (2, true, 0));
    }
}
