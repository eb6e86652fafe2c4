//! What rules do, by number: a slot names its program, and most of a great many rules name one of a few.
//!
//! A slot could hold the program itself. But whoever changes what packets read must make sure that no thread is just reading it, and that
//! costs as much as there are threads. So it is done once for each program, and not for each rule.
//!
//! A number is given to another program only after every packet that could have read it is through: rules let go of their programs no
//! earlier ([`Programs::release`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;
use sluice_flow::chain::ChainId;
use sluice_flow::flow::Flow;

use crate::chunks::Chunks;
use crate::rules;
use crate::translate::Program;

const CHUNKS: Chunks = Chunks { first: 64, doubling: 65_536, further: 65_536 };
/// Lists of programs, so that workers do not meet at one lock.
const LISTS: usize = 16;
/// Programs in a list before it is looked through for those that are gone.
const MANY: usize = 64;

/// The programs of all rules.
pub(crate) struct Programs {
    chunks: Box<[OnceLock<Box<[Place]>>]>,
    /// Places from here on were never used.
    fresh: AtomicU32,
    free: Mutex<Vec<ProgramId>>,
    shared: [Mutex<List>; LISTS],
}

/// The name of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProgramId(pub(crate) u32);

#[derive(Default)]
struct Place {
    program: ArcSwapOption<Program>,
    /// Rules that have it, or are about to.
    rules: AtomicU32,
}

/// Programs that rules can share: by chain, and by where the actions are, since flows share them.
#[derive(Default)]
struct List {
    programs: HashMap<(ChainId, usize), ProgramId>,
    /// Look for those that are gone at this length.
    clean_at: usize,
}

impl Programs {
    pub(crate) fn new() -> Self {
        Self {
            chunks: (0..CHUNKS.needed(rules::CAPACITY)).map(|_| OnceLock::new()).collect(),
            fresh: AtomicU32::new(0),
            free: Mutex::default(),
            shared: Default::default(),
        }
    }

    /// A program that a rule has.
    #[inline]
    pub(crate) fn get(&self, id: ProgramId) -> Guard<Option<Arc<Program>>> {
        self.place(id).map_or_else(|| Guard::from_inner(None), |place| place.program.load())
    }

    /// Takes a program for a rule of a flow; it comes back if there are too many.
    pub(crate) fn put(&self, program: Program) -> Result<ProgramId, Program> {
        let recycled = self.free.lock().pop();
        let Some(id) = recycled.or_else(|| self.fresh_id()) else { return Err(program) };
        let Some(place) = self.place(id) else { return Err(program) };
        place.program.store(Some(Arc::new(program)));
        place.rules.store(1, Ordering::Release);
        Ok(id)
    }

    /// Holds the program of a flow for one more rule of it, if some rule has one. `hint` spreads callers over the lists.
    pub(crate) fn find(&self, hint: usize, flow: &Flow) -> Option<ProgramId> {
        let id = *self.shared[hint % LISTS].lock().programs.get(&key(flow))?;
        self.hold(id, flow).then_some(id)
    }

    /// Lets rules of other flows find it, too.
    pub(crate) fn share(&self, hint: usize, flow: &Flow, id: ProgramId) {
        let mut list = self.shared[hint % LISTS].lock();
        if list.programs.len() >= list.clean_at {
            list.programs.retain(|_, id| self.place(*id).is_some_and(|place| place.rules.load(Ordering::Relaxed) > 0));
            list.clean_at = (list.programs.len() * 2).max(MANY);
        }
        list.programs.insert(key(flow), id);
    }

    /// Holds a program for one more rule, if it is that of the flow, and not another one by now that has its number.
    pub(crate) fn hold(&self, id: ProgramId, flow: &Flow) -> bool {
        let Some(place) = self.place(id) else { return false };
        let one_more = |rules: u32| (rules > 0).then(|| rules + 1);
        if place.rules.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_err() {
            return false;
        }
        // A program keeps its actions, so that while it is there no others can be in their place.
        let is_of =
            |program: &Program| program.chain.id == flow.chain() && Arc::ptr_eq(&program.actions, &flow.actions);
        let is_it = place.program.load().as_deref().is_some_and(is_of);
        if !is_it {
            self.release(id);
        }
        is_it
    }

    /// Lets go of a program for one rule, which no packet under way has.
    pub(crate) fn release(&self, id: ProgramId) {
        let Some(place) = self.place(id) else { return };
        if place.rules.fetch_sub(1, Ordering::AcqRel) == 1 {
            place.program.store(None);
            self.free.lock().push(id);
        }
    }

    fn fresh_id(&self) -> Option<ProgramId> {
        let one_more = |fresh: u32| (fresh < rules::CAPACITY).then(|| fresh + 1);
        let number = self.fresh.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        let (chunk, _) = CHUNKS.place(number);
        self.chunks[chunk].get_or_init(|| (0..CHUNKS.length(chunk)).map(|_| Place::default()).collect());
        Some(ProgramId(number))
    }

    #[inline]
    fn place(&self, ProgramId(number): ProgramId) -> Option<&Place> {
        let (chunk, offset) = CHUNKS.place(number);
        self.chunks.get(chunk)?.get()?.get(offset)
    }
}

fn key(flow: &Flow) -> (ChainId, usize) {
    (flow.chain(), flow.actions.as_ptr().addr())
}

#[cfg(test)]
mod tests {
    use sluice_flow::key::{MaskedKey, Match};
    use sluice_flow::text::parse_actions;
    use sluice_flow::ufid::Seed;
    use sluice_flow::{ActionList, Expiry, Priority};

    use super::*;
    use crate::chains::Chains;
    use crate::conntrack::Policies;
    use crate::meters::Meters;
    use crate::translate::link;

    fn flow(actions: &ActionList) -> Flow {
        let matching = MaskedKey::new(&Match::default());
        Flow::new(None, matching, actions.clone(), Priority::default(), Expiry::default(), &Seed([0; 16]))
    }

    fn program(flow: &Flow) -> Program {
        link(flow, &Chains::new(), &Meters::default(), &Policies::default()).unwrap()
    }

    #[test]
    fn rules_that_do_the_same_share_a_program_until_the_last_lets_go() {
        let programs = Programs::new();
        let of_many = flow(&parse_actions("2", &()).unwrap());
        assert_eq!(programs.find(0, &of_many), None);
        let id = programs.put(program(&of_many)).ok().unwrap();
        programs.share(0, &of_many, id);
        assert_eq!(programs.find(0, &of_many), Some(id), "a second rule has it");
        programs.release(id);
        assert!(programs.get(id).is_some(), "one still has it");
        programs.release(id);
        assert!(programs.get(id).is_none());
        assert_eq!(programs.find(0, &of_many), None);
    }

    #[test]
    fn a_number_that_another_program_has_by_now_is_not_held_for_the_first() {
        let programs = Programs::new();
        let (first, second) = (flow(&parse_actions("2", &()).unwrap()), flow(&parse_actions("3", &()).unwrap()));
        let id = programs.put(program(&first)).ok().unwrap();
        programs.share(0, &first, id);
        programs.release(id);
        assert_eq!(programs.put(program(&second)).ok(), Some(id), "the number is used again");
        assert_eq!(programs.find(0, &first), None);
        programs.release(id);
        assert!(programs.get(id).is_none(), "the vain look has held nothing");
    }
}
