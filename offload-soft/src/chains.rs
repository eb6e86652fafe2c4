//! Chains, and which jumps to which.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use sluice_flow::action::ActionKind;
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::refusal::Refusal;

use crate::classifier::Classifier;
use crate::jumps::Jumps;

/// One chain.
pub(crate) struct Chain {
    pub(crate) id: ChainId,
    pub(crate) rules: Classifier,
    misses: AtomicU64,
    /// Whether it may be jumped to.
    open: AtomicBool,
}

impl Chain {
    fn new(id: ChainId) -> Self {
        Self { id, rules: Classifier::new(), misses: AtomicU64::new(0), open: AtomicBool::new(id == ChainId::ROOT) }
    }

    pub(crate) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Closed and empty.
    pub(crate) fn is_unused(&self) -> bool {
        !self.open.load(Ordering::SeqCst) && self.rules.is_empty()
    }
}

/// All chains. Flows in the root chain that jump nowhere take none of the locks.
pub(crate) struct Chains {
    root: Arc<Chain>,
    others: RwLock<HashMap<ChainId, Arc<Chain>, foldhash::fast::RandomState>>,
    jumps: Mutex<Jumps>,
}

impl Chains {
    pub(crate) fn new() -> Self {
        Self { root: Arc::new(Chain::new(ChainId::ROOT)), others: RwLock::default(), jumps: Mutex::default() }
    }

    pub(crate) fn root(&self) -> &Arc<Chain> {
        &self.root
    }

    pub(crate) fn get(&self, id: ChainId) -> Option<Arc<Chain>> {
        if id == ChainId::ROOT { Some(Arc::clone(&self.root)) } else { self.others.read().get(&id).cloned() }
    }

    /// The chain of this number, made if need be. It stays at least as long as it is held.
    pub(crate) fn get_or_make(&self, id: ChainId) -> Arc<Chain> {
        if let Some(chain) = self.get(id) {
            return chain;
        }
        Arc::clone(self.others.write().entry(id).or_insert_with(|| Arc::new(Chain::new(id))))
    }

    /// A chain that may be jumped to.
    pub(crate) fn target(&self, id: ChainId) -> Result<Arc<Chain>, Refusal> {
        self.get(id).filter(|chain| chain.open.load(Ordering::SeqCst)).ok_or_else(|| {
            let reason = format!("chain {id} is not open").into();
            Refusal::Action { action: ActionKind::Recirc, reason }.until(Cause::Chain)
        })
    }

    pub(crate) fn open(&self, id: ChainId) {
        let mut others = self.others.write();
        let chain =
            if id == ChainId::ROOT { &self.root } else { others.entry(id).or_insert_with(|| Arc::new(Chain::new(id))) };
        chain.open.store(true, Ordering::SeqCst);
    }

    pub(crate) fn close(&self, id: ChainId) {
        if id != ChainId::ROOT
            && let Some(chain) = self.get(id)
        {
            chain.open.store(false, Ordering::SeqCst);
            drop(chain);
            self.forget_if_unused(id);
        }
    }

    /// Frees a chain that is closed, has no rules and is not held.
    pub(crate) fn forget_if_unused(&self, id: ChainId) {
        if id == ChainId::ROOT {
            return;
        }
        let mut others = self.others.write();
        // Under the lock nobody else can get hold of it.
        if others.get(&id).is_some_and(|chain| Arc::strong_count(chain) == 1 && chain.is_unused()) {
            others.remove(&id);
        }
    }

    /// Shows all chains, and frees those that were held when they came out of use, by a packet or by a call of this.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Chain)) {
        visit(&self.root);
        let others: Vec<_> = self.others.read().values().cloned().collect();
        others.iter().for_each(|chain| visit(chain));
        let unused: Vec<_> = others.iter().filter(|chain| chain.is_unused()).map(|chain| chain.id).collect();
        drop(others);
        unused.into_iter().for_each(|id| self.forget_if_unused(id));
    }

    /// Notes jumps of a rule, or says which of them cannot be.
    pub(crate) fn add_jumps(&self, from: ChainId, to: &[ChainId]) -> Result<(), Refusal> {
        if to.is_empty() {
            return Ok(());
        }
        let mut jumps = self.jumps.lock();
        for (index, target) in to.iter().enumerate() {
            if let Err(refusal) = jumps.add(from, *target) {
                to[..index].iter().for_each(|added| jumps.remove(from, *added));
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Takes jumps of a rule back.
    pub(crate) fn remove_jumps(&self, from: ChainId, to: &[ChainId]) {
        if !to.is_empty() {
            let mut jumps = self.jumps.lock();
            to.iter().for_each(|target| jumps.remove(from, *target));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_list_of_jumps_leaves_no_trace() {
        let chains = Chains::new();
        chains.add_jumps(ChainId(1), &[ChainId(2)]).unwrap();
        assert!(chains.add_jumps(ChainId(2), &[ChainId(3), ChainId(1)]).is_err());
        chains.add_jumps(ChainId(3), &[ChainId(2)]).unwrap();
    }

    #[test]
    fn a_chain_that_is_closed_and_empty_is_forgotten() {
        let chains = Chains::new();
        chains.open(ChainId(3));
        assert!(chains.target(ChainId(3)).is_ok());
        chains.close(ChainId(3));
        assert!(chains.get(ChainId(3)).is_none());
        assert!(chains.target(ChainId(3)).is_err());
    }

    #[test]
    fn a_chain_that_was_held_when_it_was_closed_is_forgotten_when_all_are_looked_at() {
        let chains = Chains::new();
        chains.open(ChainId(3));
        chains.open(ChainId(4));
        let held = chains.get(ChainId(3));
        chains.close(ChainId(3));
        assert!(chains.get(ChainId(3)).is_some(), "who holds it may use it");
        drop(held);
        chains.for_each(|_| {});
        assert!(chains.get(ChainId(3)).is_none());
        chains.for_each(|chain| chains.close(chain.id));
        assert!(chains.get(ChainId(4)).is_none(), "it was closed while all were looked at");
    }
}
