//! Chains that rules jump to, and their ends: the rule of each that takes what no other one takes.

use std::collections::{HashMap, HashSet};

use crate::config::OffloadPolicy;
use parking_lot::Mutex;
use sluice_flow::action::ActionKind;
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::refusal::Refusal;

use crate::marks::AgentId;
use crate::wire::action::{Action, Control, Cookie, Operation};
use crate::wire::filter::{ANY_PROTOCOL, Filter, FilterId, Hook};
use crate::wire::flower::Flower;
use crate::{install, marks};

/// How many chains a packet can pass: the kernel drops it at the jump after the sixteenth (`max_reclassify_loop` in
/// `net/sched/cls_api.c`).
pub(crate) const MAX_DEPTH: usize = 17;
/// Behind all priorities of flows.
const LAST_PRIORITY: u16 = 65_100;
const SHARDS: usize = 16;

/// The open chains, in shards so that chains do not wait for each other.
#[derive(Default)]
pub(crate) struct Chains([Mutex<HashMap<ChainId, Chain>>; SHARDS]);

#[derive(Default)]
struct Chain {
    is_open: bool,
    /// The hooks where it has its end.
    ends: HashSet<Hook>,
}

impl Chains {
    /// Opens a chain: rules may jump to it.
    pub(crate) fn open(&self, chain: ChainId) {
        self.shard(chain).lock().entry(chain).or_default().is_open = true;
    }

    /// Closes a chain that no rule jumps to, and returns the ends that can be deleted.
    pub(crate) fn close(&self, chain: ChainId) -> Vec<FilterId> {
        let closed = self.shard(chain).lock().remove(&chain).unwrap_or_default();
        closed.ends.into_iter().map(|hook| end_id(hook, chain.0)).collect()
    }

    /// Whether a chain has its end at a hook, so that rules there may jump to it. Fails if the chain is not open.
    pub(crate) fn has_end(&self, hook: Hook, chain: ChainId) -> Result<bool, Refusal> {
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
    pub(crate) fn add_end(&self, hook: Hook, chain: ChainId) {
        self.shard(chain).lock().entry(chain).or_default().ends.insert(hook);
    }

    /// All ends at a hook are gone.
    pub(crate) fn forget(&self, hook: Hook) {
        self.take_at(hook);
    }

    /// Whether a rule is the end of a chain.
    pub(crate) fn ends_at(&self, id: &FilterId) -> bool {
        let chain = ChainId(id.chain);
        *id == end_id(id.hook, id.chain)
            && self.shard(chain).lock().get(&chain).is_some_and(|chain| chain.ends.contains(&id.hook))
    }

    /// A rule is gone, which may have been the end of a chain.
    pub(crate) fn forget_end(&self, id: &FilterId) {
        if *id == end_id(id.hook, id.chain)
            && let Some(chain) = self.shard(ChainId(id.chain)).lock().get_mut(&ChainId(id.chain))
        {
            chain.ends.remove(&id.hook);
        }
    }

    /// Forgets all ends at a hook and returns those that can be deleted.
    pub(crate) fn take_at(&self, hook: Hook) -> Vec<FilterId> {
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

    /// Forgets ends of chains that were adopted and never opened, and returns them.
    pub(crate) fn take_unused(&self, is_used: impl Fn(Hook, ChainId) -> bool) -> Vec<FilterId> {
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

/// The end of a chain: packets go on as if there had been no rules.
pub(crate) fn end(hook: Hook, chain: ChainId, agent: AgentId, policy: OffloadPolicy) -> Filter {
    let mut pass = Action::new(Operation::Generic, Control::Ok);
    pass.cookie = Some(Cookie::from(mark(agent)));
    let flower = Flower { actions: vec![pass], flags: install::flags(policy), ..Flower::default() };
    Filter { id: end_id(hook, chain.0), flower }
}

/// The owner of a chain end, by the note on its first action; `None` if it is none.
pub(crate) fn owner_of_end(note: &[u8]) -> Option<AgentId> {
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
        assert_eq!(owner_of_end(note.bytes()), Some(AgentId(77)));
        assert_eq!(owner_of_end(&note.bytes()[..15]), None);
        assert_eq!(owner_of_end(&[0; 16]), None);
    }
}
