//! Which chains lead to which: no cycle, and no way that is too long.
//!
//! Each chain has a level, the number of jumps on the longest way to it. So levels rise along every jump, and a new jump that
//! rises already closes no cycle. One that does not raises the levels behind it, and closes a cycle if that comes round to
//! where it began. A level rises as often as the limit says at most, so that the cost is linear in the jumps that there are.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::action::ActionKind;
use crate::chain::ChainId;
use crate::refusal::Refusal;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Graph(HashMap<ChainId, Node>);

#[derive(Default)]
struct Node {
    level: usize,
    targets: BTreeSet<ChainId>,
    /// How many chains of each level lead here.
    sources: BTreeMap<usize, usize>,
}

/// A jump cannot be: somewhere the way is too long, which it always is on a cycle.
struct TooDeep;

impl Graph {
    /// Jumps on the longest way to a chain.
    pub(super) fn level(&self, chain: ChainId) -> usize {
        self.0.get(&chain).map_or(0, |node| node.level)
    }

    /// Adds a jump that there was not. On no way a packet may pass more chains than `depth`.
    pub(super) fn add(&mut self, from: ChainId, to: ChainId, depth: usize) -> Result<(), Refusal> {
        if from == to {
            return Err(cycle(from, to));
        }
        let source = self.0.entry(from).or_default();
        source.targets.insert(to);
        let level = source.level;
        *self.0.entry(to).or_default().sources.entry(level).or_default() += 1;
        let mut raised = Vec::new();
        if self.spread(from, to, depth, &mut raised).is_ok() {
            return Ok(());
        }
        for (chain, level) in raised.into_iter().rev() {
            self.set_level(chain, level);
        }
        self.take_out(from, to);
        // Jumps one after the other pass one chain more.
        Err(if self.leads(to, from) { cycle(from, to) } else { too_deep(from, to, depth) })
    }

    /// Takes a jump out that there is.
    pub(super) fn remove(&mut self, from: ChainId, to: ChainId) {
        self.take_out(from, to);
        // Levels that fall come round to nothing and are in nobody's way.
        let _ = self.spread(to, to, usize::MAX, &mut Vec::new());
        self.forget_if_unused(to);
    }

    fn take_out(&mut self, from: ChainId, to: ChainId) {
        let Some(source) = self.0.get_mut(&from) else { return };
        source.targets.remove(&to);
        let level = source.level;
        if let Some(target) = self.0.get_mut(&to) {
            target.forget_source(level);
        }
        self.forget_if_unused(from);
        self.forget_if_unused(to);
    }

    /// Has levels follow those of their sources, from a chain on. Notes what they were. Fails where they come to the limit, or
    /// back to `origin`.
    fn spread(
        &mut self,
        origin: ChainId,
        first: ChainId,
        limit: usize,
        changed: &mut Vec<(ChainId, usize)>,
    ) -> Result<(), TooDeep> {
        let mut work = vec![first];
        while let Some(chain) = work.pop() {
            let Some(node) = self.0.get(&chain) else { continue };
            let level = node.sources.last_key_value().map_or(0, |(level, _)| level + 1);
            if level == node.level {
                continue;
            }
            if level >= limit || chain == origin && chain != first {
                return Err(TooDeep);
            }
            changed.push((chain, node.level));
            work.extend(&node.targets);
            self.set_level(chain, level);
        }
        Ok(())
    }

    fn set_level(&mut self, chain: ChainId, level: usize) {
        let Some(node) = self.0.get_mut(&chain) else { return };
        let before = std::mem::replace(&mut node.level, level);
        let targets = std::mem::take(&mut node.targets);
        for target in &targets {
            if let Some(target) = self.0.get_mut(target) {
                target.forget_source(before);
                *target.sources.entry(level).or_default() += 1;
            }
        }
        if let Some(node) = self.0.get_mut(&chain) {
            node.targets = targets;
        }
    }

    fn leads(&self, from: ChainId, to: ChainId) -> bool {
        let (mut seen, mut work) = (HashSet::from([from]), vec![from]);
        while let Some(chain) = work.pop() {
            if chain == to {
                return true;
            }
            let targets = self.0.get(&chain).into_iter().flat_map(|node| &node.targets);
            work.extend(targets.filter(|target| seen.insert(**target)));
        }
        false
    }

    fn forget_if_unused(&mut self, chain: ChainId) {
        if self.0.get(&chain).is_some_and(|node| node.targets.is_empty() && node.sources.is_empty()) {
            self.0.remove(&chain);
        }
    }
}

impl Node {
    fn forget_source(&mut self, level: usize) {
        if let Some(count) = self.sources.get_mut(&level) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&level);
            }
        }
    }
}

fn cycle(from: ChainId, to: ChainId) -> Refusal {
    let reason = format!("recirc({to}) from chain {from} would close a cycle").into();
    Refusal::Action { action: ActionKind::Recirc, reason }
}

fn too_deep(from: ChainId, to: ChainId, depth: usize) -> Refusal {
    let what = format!("recirc({to}) from chain {from} makes packets pass too many chains").into();
    Refusal::Limit { what, limit: depth as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHAINS: u32 = 9;

    /// Jumps on the longest way to each chain, found the long way; `None` if there is a cycle.
    fn levels(jumps: &BTreeSet<(ChainId, ChainId)>) -> Option<Vec<usize>> {
        let mut levels = vec![0; CHAINS as usize];
        for _ in 0..=CHAINS {
            let before = levels.clone();
            for (from, to) in jumps {
                levels[to.0 as usize] = levels[to.0 as usize].max(levels[from.0 as usize] + 1);
            }
            if before == levels {
                return Some(levels);
            }
        }
        None
    }

    proptest! {
        #[test]
        fn what_is_taken_has_no_cycle_and_is_not_too_deep_and_nothing_else_is_refused(
            changes in prop::collection::vec((0..CHAINS, 0..CHAINS), 0..200),
            depth in 2_usize..6,
        ) {
            let (mut graph, mut jumps) = (Graph::default(), BTreeSet::new());
            for (from, to) in changes {
                let jump = (ChainId(from), ChainId(to));
                if jumps.remove(&jump) {
                    graph.remove(jump.0, jump.1);
                } else {
                    let with: BTreeSet<_> = jumps.iter().copied().chain([jump]).collect();
                    let found = levels(&with);
                    let fits = found.as_ref().is_some_and(|levels| levels.iter().all(|level| *level < depth));
                    match graph.add(jump.0, jump.1, depth) {
                        Ok(()) => {
                            prop_assert!(fits);
                            jumps = with;
                        }
                        Err(refusal) => {
                            prop_assert!(!fits);
                            prop_assert_eq!(refusal.label() == "action", found.is_none(), "{}", refusal);
                        }
                    }
                }
                let exact = levels(&jumps).unwrap();
                for chain in 0..CHAINS {
                    prop_assert_eq!(graph.level(ChainId(chain)), exact[chain as usize]);
                }
            }
            for (from, to) in jumps {
                graph.remove(from, to);
            }
            prop_assert!(graph.0.is_empty());
        }
    }
}
