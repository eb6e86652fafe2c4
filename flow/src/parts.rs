//! What flows have in common, kept once for all flows of a table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::action::{Action, ActionList};
use crate::flow::{Flow, Terms};
use crate::intern::Interner;
use crate::key::Mask;

/// The terms of all flows of a table, and the masks and lists of actions in them, each kept once.
///
/// A flow whose terms are not those that are kept here is made anew with them when the table takes it on. Who makes many flows for a table has
/// them made with the right ones: [`LineReader::sharing`](crate::text::LineReader::sharing), [`FlowMaker::sharing`](crate::FlowMaker::sharing).
pub struct SharedParts {
    /// Tells it apart from all others of the process.
    number: u32,
    terms: Interner<Terms>,
    masks: Interner<Mask>,
    action_lists: Interner<[Action]>,
}

/// The next number.
static NUMBERS: AtomicU32 = AtomicU32::new(1);

impl SharedParts {
    pub(crate) fn new() -> Self {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Self { number, terms: Interner::new(), masks: Interner::new(), action_lists: Interner::new() }
    }

    /// The flow, with the terms that are kept here.
    pub(crate) fn share(&self, flow: Flow) -> Flow {
        if flow.is_kept_by(self.number) { flow } else { flow.with_terms_of(|terms| self.keep(terms)) }
    }

    /// The terms that are kept here of equal ones.
    pub(crate) fn keep(&self, terms: &Arc<Terms>) -> Arc<Terms> {
        let make = || {
            let share_mask = |mask: &Arc<Mask>| self.masks.share(mask.clone());
            let share_actions = |actions: &ActionList| self.action_lists.share(actions.clone());
            terms.with_parts(share_mask, share_actions)
        };
        let kept = self.terms.share_or_make(terms, make);
        kept.note_keeper(self.number);
        kept
    }

    /// Different masks that are in use.
    pub fn masks(&self) -> usize {
        self.masks.len()
    }

    /// Different lists of actions that are in use.
    pub fn action_lists(&self) -> usize {
        self.action_lists.len()
    }
}
