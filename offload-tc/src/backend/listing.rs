//! Listings of hooks.

use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::failure::{device_refusal, socket_refusal};
use super::read_back::collector::Collector;
use super::read_back::rule::ShownRule;
use crate::dump::{Detail, Lister, Listing};
use crate::label::Label;
use crate::marks::AgentId;
use crate::wire::filter::{FilterId, FilterView, Hook};
use crate::wire::rule_view::RuleView;

/// How often a listing is repeated because the rules changed meanwhile.
const TRIES: usize = 8;

impl Core {
    /// This agent's rules among some names, in full.
    pub(super) fn own_rules(
        &self,
        hooks: &[Hook],
        is_wanted: &dyn Fn(&FilterId) -> bool,
    ) -> Result<Vec<ShownRule>, Refusal> {
        self.rules_of_agents(hooks, &|id, agent| agent == self.agent && is_wanted(id))
    }

    /// Rules of flows, of the names and agents that are wanted, in full.
    pub(super) fn rules_of_agents(
        &self,
        hooks: &[Hook],
        is_wanted: &dyn Fn(&FilterId, AgentId) -> bool,
    ) -> Result<Vec<ShownRule>, Refusal> {
        std::thread::scope(|scope| {
            let mut collector = Collector::new(scope, &self.ports);
            for hook in hooks {
                list(*hook, Detail::Full, &mut |view| {
                    let label = RuleView::new(view).ok().and_then(|rule| Label::read(rule.cookies));
                    let agent =
                        label.map(|label| label.agent).or_else(|| self.ledger.is_damaged(view).then_some(self.agent));
                    if agent.is_some_and(|agent| is_wanted(&view.id, agent)) {
                        collector.take(view);
                    }
                })?;
            }
            Ok(collector.finish())
        })
    }
}

/// Lists a hook, again if it changed meanwhile; then some filters are shown twice.
pub(super) fn list(hook: Hook, detail: Detail, see: &mut dyn FnMut(&FilterView<'_>)) -> Result<(), Refusal> {
    let mut lister = Lister::open().map_err(socket_refusal)?;
    for _ in 0..TRIES {
        let listed = lister.list_any(hook, detail, &mut |view| {
            see(view);
            Ok(())
        });
        match listed {
            Ok(Listing::Whole) => return Ok(()),
            Ok(Listing::Interrupted) => {}
            Err(error) if error.is_absence() => return Ok(()),
            Err(error) => return Err(socket_refusal(error)),
        }
    }
    Err(device_refusal("the rules changed during each listing"))
}
