//! Removes all rules of this agent.

use sluice_flow::refusal::Refusal;

use super::core::Core;
use super::failure;
use super::ledger::chains::owner_of_end;
use super::listing::list;
use crate::dump::Detail;
use crate::install::Request;
use crate::label::Label;
use crate::wire::filter::{FilterId, Hook};
use crate::wire::rule_view::RuleView;

/// How often rules are listed and deleted before giving up.
const TRIES: usize = 8;

/// A rule of this agent, as a listing shows it.
pub(super) struct OwnRule {
    pub(super) id: FilterId,
    pub(super) is_guard: bool,
    /// It is the end of a chain.
    is_end: bool,
}

impl Core {
    /// Deletes every rule of ours, wherever it is, until there is none. Returns the number of flows' and mirrors' rules.
    pub(super) fn flush(&self) -> Result<usize, Refusal> {
        self.mirrors.forget();
        let mut count = 0;
        for _ in 0..TRIES {
            let mut found = Vec::new();
            for hook in self.hooks_everywhere()? {
                self.list_own(hook, &mut found)?;
            }
            if found.is_empty() {
                return Ok(count);
            }
            // Rules are deleted before their guards.
            found.sort_by_key(|rule| rule.is_guard);
            let ends = found.iter().filter(|rule| rule.is_end).count();
            let found: Vec<_> = found.into_iter().map(|rule| rule.id).collect();
            let requests: Vec<_> = found.iter().copied().map(Request::Delete).collect();
            let results = self.sockets.installer.lock().submit(&requests);
            let done = results.iter().filter(|result| result.is_ok()).count();
            count += done.saturating_sub(ends);
            for (id, _) in found.iter().zip(&results).filter(|(_, result)| result.is_ok()) {
                self.ledger.chains.forget_end(id);
                if let Some((entry, _)) = self.ledger.by_id(id) {
                    self.ledger.forget(entry.handle, entry.record.place);
                }
            }
            if let Some(Err(refusal)) = results.into_iter().find(Result::is_err)
                && !failure::is_absence(&refusal)
            {
                return Err(refusal);
            }
        }
        Err(Refusal::Busy { reason: "new rules appeared while they were deleted".into() })
    }

    /// Appends the rules of flows and mirrors and the ends of chains that this agent has at a hook.
    pub(super) fn list_own(&self, hook: Hook, found: &mut Vec<OwnRule>) -> Result<(), Refusal> {
        list(hook, Detail::Terse, &mut |view| {
            let Ok(rule) = RuleView::new(view) else { return };
            let is_end = owner_of_end(rule.cookies[0]) == Some(self.agent);
            let label = Label::read(rule.cookies);
            let is_rule = label.is_some_and(|label| self.ledger.owns(label.agent, &rule.id));
            if is_end || is_rule || self.mirrors.is_ours(rule.cookies[0]) {
                found.push(OwnRule { id: rule.id, is_guard: Label::is_of_guard(rule.cookies), is_end });
            }
        })
    }
}
