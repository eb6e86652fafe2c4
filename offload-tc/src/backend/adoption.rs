//! Taking over what an earlier run left in the kernel.

use std::collections::HashSet;

use sluice_flow::backend::{Adoption, InstalledRule};
use sluice_flow::chain::ChainId;
use sluice_flow::flow::Flow;
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::refusal::Refusal;

use super::books::{Counted, Place, Record};
use super::chains::owner_of_end;
use super::core::Core;
use super::failure;
use super::listing::{Fit, Found, placement_with};
use super::taken_apart::Said;
use crate::install::Request;

impl Core {
    /// Takes over what an earlier run left. A rule without its guard, or with another one, is taken out, so that its flow gets
    /// both anew.
    pub(super) fn adopt(
        &self,
        claim: &mut dyn FnMut(&InstalledRule) -> Option<(FlowId, Generation)>,
    ) -> Result<Adoption, Refusal> {
        let mut adoption = Adoption::default();
        let mut jumps = HashSet::new();
        let hooks = self.hooks_everywhere()?;
        let wanted = self.mirrors.rules();
        let mut orphans = Vec::new();
        // All in one listing: the kernel takes as long for it as everything else here.
        let rules = self.own_rules_among(&hooks, &mut |hook, rule| {
            let note = rule.cookies[0];
            if owner_of_end(note) == Some(self.agent) {
                self.chains.add_end(hook, ChainId(rule.id.chain));
            } else if self.mirrors.is_ours(note) && !wanted.contains(&rule.id) {
                orphans.push(rule.id);
            }
        })?;
        orphans.sort_unstable();
        orphans.dedup();
        let (pairs, mut guards) = Found::pairs(rules);
        for mut found in pairs {
            let fit = self.fit(&found);
            if fit == Fit::Spare {
                guards.extend(found.guard.take());
            }
            let id = found.rule.id();
            let adopted = match fit {
                Fit::Whole | Fit::Spare => found.rule.said.take().and_then(|said| self.adopt_one(&found, said, claim)),
                Fit::Bare | Fit::Odd => None,
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
        self.books.all_are_adopted();
        orphans.extend(guards.into_iter().map(|guard| guard.id()));
        adoption.orphans = orphans.len();
        orphans.extend(self.chains.take_unused(|hook, chain| jumps.contains(&(hook, chain))));
        let requests: Vec<_> = orphans.into_iter().map(Request::Delete).collect();
        for result in self.installer.lock().submit(&requests) {
            if let Err(refusal) = result
                && !failure::is_absence(&refusal)
            {
                return Err(refusal);
            }
        }
        for meter in self.meters.left() {
            // One that an adopted rule uses stays.
            let _ = self.meters.remove(meter);
        }
        Ok(adoption)
    }

    fn adopt_one(
        &self,
        found: &Found,
        said: Said,
        claim: &mut dyn FnMut(&InstalledRule) -> Option<(FlowId, Generation)>,
    ) -> Option<Flow> {
        let Found { rule, guard } = found;
        let place = Place::of(&rule.id());
        let nobody = FlowId { slot: u32::MAX, incarnation: u32::MAX };
        let handle = self.books.adopt(&rule.id(), Record::new(nobody, Generation::NONE, place))?;
        if !self.adopt_priority(place) {
            self.books.forget(handle);
            return None;
        }
        let Said { flow, is_named, .. } = said;
        let (placement, rules) = (placement_with(rule, guard.as_ref()), 1 + usize::from(guard.is_some()));
        let installed = InstalledRule { handle, flow, is_named, rules, placement };
        match claim(&installed) {
            Some((flow, generation)) => {
                self.books.give(handle, flow, generation);
                let by_guard = guard.as_ref().map(|_| Counted::default());
                self.books.settle(handle, place, Counted::default(), by_guard);
                Some(installed.flow)
            }
            None => {
                self.forget(handle, place);
                None
            }
        }
    }
}
