//! Chains that rules jump to, and the rule at the end of each that takes what no other one does.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use sluice_flow::action::ActionKind;
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::refusal::Refusal;

use crate::config::OffloadPolicy;
use crate::install;
use crate::marks;
use crate::rule::AgentId;
use crate::wire::action::{Action, Control, Cookie, Operation};
use crate::wire::filter::{ANY_PROTOCOL, Filter, FilterId, Hook};
use crate::wire::flower::Flower;

/// Chains that a packet may pass one after the other: it is dropped at the jump after the sixteenth (`max_reclassify_loop` in
/// `net/sched/cls_api.c`).
pub(super) const MAX_DEPTH: usize = 17;
/// After all of ours.
const LAST_PRIORITY: u16 = 65_100;
const SHARDS: usize = 16;

/// The chains that are open, in several parts so that nobody waits for a chain that is not theirs.
#[derive(Default)]
pub(super) struct Chains([Mutex<HashMap<ChainId, Chain>>; SHARDS]);

#[derive(Default)]
struct Chain {
    is_open: bool,
    /// Where it has its end.
    ends: HashSet<Hook>,
}

impl Chains {
    /// It may be jumped to.
    pub(super) fn open(&self, chain: ChainId) {
        self.shard(chain).lock().entry(chain).or_default().is_open = true;
    }

    /// Nobody jumps to it any more. Gives the ends that can go.
    pub(super) fn close(&self, chain: ChainId) -> Vec<FilterId> {
        let closed = self.shard(chain).lock().remove(&chain).unwrap_or_default();
        closed.ends.into_iter().map(|hook| end_id(hook, chain.0)).collect()
    }

    /// Whether packets of a hook may be sent to a chain: it has its end there.
    pub(super) fn has_end(&self, hook: Hook, chain: ChainId) -> Result<bool, Refusal> {
        if chain == ChainId::ROOT {
            return Ok(true);
        }
        match self.shard(chain).lock().get(&chain).filter(|chain| chain.is_open) {
            Some(chain) => Ok(chain.ends.contains(&hook)),
            None => {
                let reason = format!("chain {chain} is not open").into();
                Err(Refusal::Action { action: ActionKind::Recirc, reason }.until(Cause::Chain))
            }
        }
    }

    /// A chain has its end at a hook.
    pub(super) fn add_end(&self, hook: Hook, chain: ChainId) {
        self.shard(chain).lock().entry(chain).or_default().ends.insert(hook);
    }

    /// What was at a hook is gone.
    pub(super) fn forget(&self, hook: Hook) {
        self.take_at(hook);
    }

    /// Whether a rule is what a chain has for its end.
    pub(super) fn ends_at(&self, id: &FilterId) -> bool {
        let chain = ChainId(id.chain);
        *id == end_id(id.hook, id.chain)
            && self.shard(chain).lock().get(&chain).is_some_and(|chain| chain.ends.contains(&id.hook))
    }

    /// A rule is gone, which may be the end of a chain.
    pub(super) fn forget_end(&self, id: &FilterId) {
        if *id == end_id(id.hook, id.chain)
            && let Some(chain) = self.shard(ChainId(id.chain)).lock().get_mut(&ChainId(id.chain))
        {
            chain.ends.remove(&id.hook);
        }
    }

    /// Chains no longer have their ends at a hook. Gives those that can go.
    pub(super) fn take_at(&self, hook: Hook) -> Vec<FilterId> {
        let mut taken = Vec::new();
        for shard in &self.0 {
            for (number, chain) in shard.lock().iter_mut() {
                if chain.ends.remove(&hook) {
                    taken.push(end_id(hook, number.0));
                }
            }
        }
        taken
    }

    /// Ends that are there for chains nobody jumps to: those that were adopted and never opened.
    pub(super) fn take_unused(&self, is_used: impl Fn(Hook, ChainId) -> bool) -> Vec<FilterId> {
        let mut unused = Vec::new();
        for shard in &self.0 {
            for (number, chain) in shard.lock().iter_mut().filter(|(_, chain)| !chain.is_open) {
                chain.ends.retain(|hook| {
                    let is_kept = is_used(*hook, *number);
                    if !is_kept {
                        unused.push(end_id(*hook, number.0));
                    }
                    is_kept
                });
            }
        }
        unused
    }

    fn shard(&self, chain: ChainId) -> &Mutex<HashMap<ChainId, Chain>> {
        &self.0[chain.0 as usize % SHARDS]
    }
}

/// The rule at the end of a chain: packets go on as if there had been no rules.
pub(super) fn end(hook: Hook, chain: ChainId, agent: AgentId, policy: OffloadPolicy) -> Filter {
    let mut pass = Action::new(Operation::Generic, Control::Ok);
    pass.cookie = Some(Cookie::from(mark(agent)));
    let flower = Flower { actions: vec![pass], flags: install::flags(policy), ..Flower::default() };
    Filter { id: end_id(hook, chain.0), flower }
}

/// Whose end of a chain a rule is, by the note on its first action; `None` if it is none.
pub(super) fn owner_of_end(note: &[u8]) -> Option<AgentId> {
    let (magic, agent) = note.split_first_chunk::<8>()?;
    (*magic == marks::CHAIN_END).then_some(())?;
    marks::known_agent(agent)
}

const fn end_id(hook: Hook, chain: u32) -> FilterId {
    FilterId { hook, chain, priority: LAST_PRIORITY, protocol: ANY_PROTOCOL, handle: 1 }
}

fn mark(agent: AgentId) -> [u8; 16] {
    let mut mark = [0; 16];
    mark[..8].copy_from_slice(&marks::CHAIN_END);
    mark[8..].copy_from_slice(&marks::write_agent(agent));
    mark
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priorities::Priorities;

    const HOOK: Hook = Hook::Ingress { interface: 3 };

    #[test]
    fn a_chain_that_is_not_open_cannot_be_jumped_to_and_the_first_always_can() {
        let chains = Chains::default();
        assert_eq!(chains.has_end(HOOK, ChainId::ROOT), Ok(true));
        assert_eq!(chains.has_end(HOOK, ChainId(5)).unwrap_err().label(), "action");
        chains.open(ChainId(5));
        assert_eq!(chains.has_end(HOOK, ChainId(5)), Ok(false));
        chains.add_end(HOOK, ChainId(5));
        assert_eq!(chains.has_end(HOOK, ChainId(5)), Ok(true));
        chains.forget(HOOK);
        assert_eq!(chains.has_end(HOOK, ChainId(5)), Ok(false));
    }

    #[test]
    fn a_closed_chain_gives_its_ends_back_once() {
        let chains = Chains::default();
        chains.open(ChainId(21));
        chains.add_end(HOOK, ChainId(21));
        chains.add_end(Hook::Block { number: 3 }, ChainId(21));
        assert_eq!(chains.close(ChainId(21)).len(), 2);
        assert!(chains.close(ChainId(21)).is_empty());
    }

    #[test]
    fn an_end_comes_after_all_rules_and_says_whose_it_is() {
        assert!(!Priorities::has(LAST_PRIORITY) && !Priorities::has(LAST_PRIORITY + 1));
        let filter = end(HOOK, ChainId(21), AgentId(77), OffloadPolicy::SkipHardware);
        let note = filter.flower.actions[0].cookie.unwrap();
        assert_eq!(owner_of_end(note.octets()), Some(AgentId(77)));
        assert_eq!(owner_of_end(&note.octets()[..15]), None);
        assert_eq!(owner_of_end(&[0; 16]), None);
    }
}
