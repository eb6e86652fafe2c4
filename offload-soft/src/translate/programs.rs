//! Programs that rules share: most of a great many flows do one of a few things.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_flow::chain::ChainId;
use sluice_flow::flow::Flow;

use super::Program;

/// Lists of programs, so that workers do not meet at one lock.
const LISTS: usize = 16;
/// Programs in a list before it is looked through for those that are gone.
const MANY: usize = 64;

/// The programs of installed rules that can be shared: by chain, and by where the actions are, since flows share them.
#[derive(Default)]
pub(crate) struct Programs([Mutex<List>; LISTS]);

#[derive(Default)]
struct List {
    programs: HashMap<(ChainId, usize), Weak<Program>>,
    /// Look for those that are gone at this length.
    clean_at: usize,
}

impl Programs {
    /// The program of a flow, if a rule has it. `hint` spreads callers over the lists.
    pub(crate) fn get(&self, hint: usize, flow: &Flow) -> Option<Arc<Program>> {
        let program = self.0[hint % LISTS].lock().programs.get(&key(flow))?.upgrade()?;
        // A program keeps its actions, so that while it is there no others can be in their place.
        Arc::ptr_eq(&program.actions, &flow.actions).then_some(program)
    }

    /// Lets rules of other flows have it, too.
    pub(crate) fn share(&self, hint: usize, flow: &Flow, program: &Arc<Program>) {
        let mut list = self.0[hint % LISTS].lock();
        if list.programs.len() >= list.clean_at {
            list.programs.retain(|_, program| program.strong_count() > 0);
            list.clean_at = (list.programs.len() * 2).max(MANY);
        }
        list.programs.insert(key(flow), Arc::downgrade(program));
    }
}

fn key(flow: &Flow) -> (ChainId, usize) {
    (flow.chain(), flow.actions.as_ptr().addr())
}
