//! What is in the kernel, this agent's and others', for an audit.

use sluice_flow::backend::{Handle, InstalledRule};
use sluice_flow::id::FlowId;
use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::failure::{self, socket_refusal};
use super::ledger::record::{Place, State};
use super::listing::list;
use super::read_back::rule::{GuardCheck, ShownFlow, ShownRule, placement_with, unknown_flow};
use super::text;
use crate::dump::Detail;
use crate::install::Request;
use crate::label::Label;
use crate::marks::Mark;
use crate::wire::filter::{Filter, FilterId, FilterView};
use crate::wire::rule_view::RuleView;

impl Core {
    /// Shows this agent's rules at the ports. A rule without its guard counts as missing; if the guard is wrong, the guard
    /// is shown.
    pub(super) fn installed(&self, visit: &mut dyn FnMut(InstalledRule)) -> Result<(), Refusal> {
        self.ledger.strays.lock().begin_listing();
        let (pairs, alone) = ShownFlow::pairs(
            self.rules_of_agents(&self.ports.load().hooks(), &|id, owner| self.ledger.owns(owner, id))?,
        );
        for found in pairs {
            self.show(&found, &mut |_, rule| visit(rule));
        }
        for guard in &alone {
            self.show_alone(Some(guard), visit);
        }
        Ok(())
    }

    /// Shows rules of the ledger as the kernel has them.
    pub(super) fn read_back(
        &self,
        rules: &[Handle],
        visit: &mut dyn FnMut(FlowId, InstalledRule),
    ) -> Result<(), Refusal> {
        let entries: Vec<_> = rules.iter().filter_map(|handle| self.ledger.find(*handle)).collect();
        let names: Vec<_> = entries.iter().flat_map(|entry| entry.guard_id().into_iter().chain([entry.id()])).collect();
        let mut found = Vec::new();
        let mut take = |view: &FilterView<'_>| {
            let label = RuleView::new(view).ok().and_then(|rule| Label::read(rule.cookies));
            if label.is_some_and(|label| self.ledger.owns(label.agent, &view.id)) || self.ledger.is_damaged(view) {
                found.push(ShownRule::parse(&self.ports, view.id, view.bytes_of_options()));
            }
        };
        self.sockets.inspector.lock().read_all(&names, &mut take).map_err(socket_refusal)?;
        let (pairs, _) = ShownFlow::pairs(found);
        for found in pairs {
            self.show(&found, &mut |flow, rule| {
                if let Some(flow) = flow {
                    visit(flow, rule);
                }
            });
        }
        Ok(())
    }

    /// Shows the rules of a flow, and the flow if the ledger has it.
    fn show(&self, found: &ShownFlow, visit: &mut dyn FnMut(Option<FlowId>, InstalledRule)) {
        let known = match self.ledger.by_id(&found.rule.id()) {
            Some((_, State::Vacant | State::Arriving | State::Leaving)) => return,
            known => known.map(|(entry, _)| entry),
        };
        let flow = known.as_ref().map(|entry| entry.record.flow);
        let handle = known.map_or_else(|| self.ledger.strays.lock().handle(found.rule.id()), |entry| entry.handle);
        match found.check_guard(&self.ports) {
            GuardCheck::Missing if flow.is_some() => {}
            GuardCheck::Wrong => {
                visit(flow, self.as_installed(found.guard.as_ref().unwrap_or(&found.rule), None, handle))
            }
            GuardCheck::Right | GuardCheck::Missing => {
                visit(flow, self.as_installed(&found.rule, found.guard.as_ref(), handle))
            }
            GuardCheck::Unneeded => {
                visit(flow, self.as_installed(&found.rule, None, handle));
                self.show_alone(found.guard.as_ref(), &mut |rule| visit(None, rule));
            }
        }
    }

    /// Shows a guard without a rule, unless it is being installed or deleted.
    fn show_alone(&self, guard: Option<&ShownRule>, visit: &mut dyn FnMut(InstalledRule)) {
        if let Some(guard) = guard.filter(|guard| self.ledger.by_id(&guard.id()).is_none()) {
            visit(self.as_installed(guard, None, self.ledger.strays.lock().handle(guard.id())));
        }
    }

    /// Shows other people's filters at the ports.
    pub(super) fn foreign(&self, visit: &mut dyn FnMut(String)) -> Result<(), Refusal> {
        let ports = self.ports.load();
        for hook in ports.hooks() {
            let mut found = Vec::new();
            // A terse listing has flower's filters only.
            list(hook, Detail::Full, &mut |view| {
                let rule = RuleView::new(view).ok().filter(|_| view.is_flower());
                let mark = rule.as_ref().and_then(|rule| Mark::of_rule(rule.cookies));
                let is_ours = mark.is_some_and(|mark| self.ledger.owns(mark.agent, &view.id) && mark.format.is_known());
                // A priority that exists shows as a filter with handle 0.
                if !is_ours && view.id.handle != 0 {
                    found.push(text::foreign(view, ports.name_at(hook), mark));
                }
            })?;
            found.into_iter().for_each(&mut *visit);
        }
        Ok(())
    }

    /// Deletes a rule of ours that no flow has.
    pub(super) fn remove_stray(&self, handle: Handle) -> Result<(), Refusal> {
        let gone = || Refusal::Device { reason: "there is no such stray rule".into() };
        let id = self.ledger.strays.lock().get(handle).ok_or_else(gone)?;
        if self.ledger.by_id(&id).is_some() {
            return Err(Refusal::Device { reason: "the rule belongs to a flow".into() });
        }
        let guard = Place::of(&id).in_front().map(|place| FilterId { priority: place.priority, ..id });
        let guard = guard.filter(|guard| self.ledger.by_id(guard).is_none());
        let mut installer = self.sockets.installer.lock();
        let is_ours = |found: &Filter| Label::of(&found.flower).is_some_and(|label| label.agent == self.agent);
        for id in [Some(id), guard].into_iter().flatten() {
            let found = installer.find(id).map_err(socket_refusal)?;
            if found.as_ref().is_some_and(is_ours)
                && let Some(Err(refusal)) = installer.submit(&[Request::Delete(id)]).pop()
                && !failure::is_absence(&refusal)
            {
                return Err(refusal);
            }
        }
        self.ledger.strays.lock().remove(&id);
        Ok(())
    }

    fn as_installed(&self, rule: &ShownRule, guard: Option<&ShownRule>, handle: Handle) -> InstalledRule {
        let placement = placement_with(rule, guard);
        let ufid = Label::of(&rule.filter.flower).and_then(|label| label.ufid);
        let flow = rule.content.as_ref().map_or_else(|| unknown_flow(ufid), |content| content.flow.clone());
        let rules = 1 + usize::from(guard.is_some());
        let is_current = self.is_current(rule, guard);
        InstalledRule { handle, flow, is_named: ufid.is_some(), rules, placement, is_current }
    }
}
