//! Adopts what an earlier run left in the kernel.

use std::collections::HashSet;

use sluice_flow::backend::{Adoption, Claims, Holding, InstalledRule};
use sluice_flow::chain::ChainId;
use sluice_flow::flow::Flow;
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::counted::Counted;
use super::failure::{self, socket_refusal};
use super::ledger::chains::EndKind;
use super::ledger::record::{Place, Record, UNCLAIMED};
use super::read_back::rule::{Content, GuardCheck, ShownFlow, ShownRule, placement_with};
use super::survey::Survey;
use crate::install::Request;
use crate::label::Label;
use crate::marks::AgentId;
use crate::wire::filter::{FilterId, FilterView, Hook};
use crate::wire::rule_view::RuleView;

/// At most this many rules are read one by one; more are listed.
const MOST_LOOKED_FOR: usize = 256;

impl Core {
    /// Adopts what an earlier run left. A rule is read in full if it is not what its flow would be given now, or if its flow
    /// has two. A rule without its guard, or with a wrong one, is deleted, so that its flow gets both anew.
    pub(super) fn adopt(&self, claims: &mut dyn Claims) -> Result<Adoption, Refusal> {
        let hooks = self.hooks_everywhere()?;
        let mut survey = Survey::of(self, &hooks)?;
        self.add_meters(&mut survey.others)?;
        let is_inherited = |holding: &Holding| claims.inherits(holding);
        let inherited: Vec<_> = survey.others.holdings().into_iter().filter(is_inherited).collect();
        let adopted = survey.adopt(self, claims);
        let rules = self.doubtful_rules(&hooks, &adopted.doubtful)?;
        let mut adoption = Adoption { adopted: adopted.count, orphans: 0 };
        let mut jumps: HashSet<_> = adopted.jumps.iter().copied().collect();
        let mut orphans = survey.orphans.clone();
        *self.ledger.first_readings.lock() = survey.first_readings(adopted);
        let (pairs, mut guards) = ShownFlow::pairs(rules);
        for mut found in pairs {
            let fit = found.check_guard(&self.ports);
            if fit == GuardCheck::Unneeded {
                guards.extend(found.guard.take());
            }
            let id = found.rule.id();
            let adopted = match fit {
                GuardCheck::Right | GuardCheck::Unneeded => found
                    .rule
                    .content
                    .take()
                    .and_then(|content| self.adopt_one(&found, content, &mut |rule| claims.claim(rule))),
                GuardCheck::Missing | GuardCheck::Wrong => None,
            };
            match adopted {
                Some(flow) => {
                    adoption.adopted += 1;
                    jumps.extend(flow.jumps().into_iter().map(|chain| (id.hook, chain)));
                }
                None => {
                    orphans.push(id);
                    guards.extend(found.guard);
                }
            }
        }
        for holding in inherited {
            let flows = self.inherit(&hooks, &survey, holding.mark, claims)?;
            adoption.adopted += flows.len();
            jumps.extend(
                flows.into_iter().flat_map(|(hook, flow)| flow.jumps().into_iter().map(move |chain| (hook, chain))),
            );
        }
        self.ledger.finish_adoption();
        // After our own rules have their places.
        survey.taken.iter().for_each(|(priority, protocol)| self.ledger.note_priority(*priority, *protocol));
        orphans.extend(guards.into_iter().map(|guard| guard.id()));
        adoption.orphans = orphans.len();
        let lags = self.ports.load().hooks();
        let is_used = |hook, chain| jumps.contains(&(hook, chain)) || chain == ChainId::ROOT && lags.contains(&hook);
        orphans.extend(self.ledger.chains.take_unused(is_used));
        self.renew_ends(&survey.old_ends)?;
        let requests: Vec<_> = orphans.into_iter().map(Request::Delete).collect();
        for result in self.sockets.installer.lock().submit(&requests) {
            if let Err(refusal) = result
                && !failure::is_absence(&refusal)
            {
                return Err(refusal);
            }
        }
        for meter in self.meters.left() {
            // A meter that an adopted rule uses stays.
            let _ = self.meters.remove(meter);
        }
        Ok(adoption)
    }

    /// Has flows claim the rules of another owner, each flow with all its rules or not at all, and returns these flows. What
    /// no flow claims stays with its owner.
    fn inherit(
        &self,
        hooks: &[Hook],
        survey: &Survey,
        mark: u32,
        claims: &mut dyn Claims,
    ) -> Result<Vec<(Hook, Flow)>, Refusal> {
        let names: HashSet<_> = survey.others.rules_of(mark).collect();
        let rules = self.rules_of_agents(hooks, &|id, agent| agent.0 == mark && names.contains(id))?;
        self.ledger.add_predecessor(AgentId(mark));
        let mut flows = Vec::new();
        for mut found in ShownFlow::pairs(rules).0 {
            let hook = found.rule.id().hook;
            let is_whole = found.check_guard(&self.ports) == GuardCheck::Right;
            let content = found.rule.content.take().filter(|_| is_whole);
            let flow = content.and_then(|content| self.adopt_one(&found, content, &mut |rule| claims.inherit(rule)));
            flows.extend(flow.map(|flow| (hook, flow)));
        }
        let ends: Vec<_> = survey.others.ends_of(mark).filter(|id| id.chain != ChainId::ROOT.0).collect();
        ends.iter().for_each(|id| self.ledger.chains.adopt_end(id.hook, ChainId(id.chain)));
        self.renew_ends(&ends)?;
        Ok(flows)
    }

    /// Rewrites the notes of kept chain ends: this agent, current format.
    fn renew_ends(&self, ends: &[FilterId]) -> Result<(), Refusal> {
        let kept = ends.iter().filter(|id| self.ledger.chains.ends_at(id));
        let mut installer = self.sockets.installer.lock();
        let end = |id: &FilterId| {
            let end = self.end(&installer, id.hook, ChainId(id.chain), EndKind::Plain);
            end.map(Request::Replace)
        };
        let requests: Vec<_> = kept.map(end).collect::<Result<_, _>>()?;
        let results = installer.submit(&requests);
        results.into_iter().try_for_each(|result| result.map(drop))
    }

    /// The rules with these names, in order and in full: one by one if they are few.
    fn doubtful_rules(&self, hooks: &[Hook], names: &[FilterId]) -> Result<Vec<ShownRule>, Refusal> {
        if names.len() > MOST_LOOKED_FOR {
            return self.own_rules(hooks, &|id| names.binary_search(id).is_ok());
        }
        let mut found = Vec::new();
        let mut take = |view: &FilterView<'_>| {
            let label = RuleView::new(view).ok().and_then(|rule| Label::read(rule.cookies));
            if label.is_some_and(|label| label.agent == self.agent) {
                found.push(ShownRule::parse(&self.ports, view.id, view.bytes_of_options()));
            }
        };
        self.sockets.installer.lock().read_all(names, &mut take).map_err(socket_refusal)?;
        Ok(found)
    }

    fn adopt_one(
        &self,
        found: &ShownFlow,
        content: Content,
        claim: &mut dyn FnMut(&InstalledRule) -> Option<(FlowId, Generation)>,
    ) -> Option<Flow> {
        let ShownFlow { rule, guard } = found;
        let place = Place::of(&rule.id());
        let handle = self.ledger.adopt(&rule.id(), Record::new(UNCLAIMED, Generation::NONE, place))?;
        if !self.ledger.adopt_priority(place) {
            self.ledger.vacate(handle);
            return None;
        }
        let Content { flow, is_named, .. } = content;
        let (placement, rules) = (placement_with(rule, guard.as_ref()), 1 + usize::from(guard.is_some()));
        let is_current = self.is_current(rule, guard.as_ref());
        let installed = InstalledRule { handle, flow, is_named, rules, placement, is_current };
        match claim(&installed) {
            Some((flow, generation)) => {
                self.ledger.assign(handle, flow, generation);
                let by_guard = guard.as_ref().map(|_| Counted::default());
                self.ledger.settle(handle, place, Counted::default(), by_guard);
                Some(installed.flow)
            }
            None => {
                self.ledger.forget(handle, place);
                None
            }
        }
    }
}
