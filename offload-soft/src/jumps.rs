//! The jumps of installed rules: from which chain to which, and how deep that goes.
//!
//! How many chains there are on the longest way from each chain on, and on the longest one that leads to it, is kept up to date
//! with every jump. So what a jump that changes neither costs does not depend on how many there are.

use std::collections::{HashMap, HashSet};

use sluice_flow::chain::ChainId;
use sluice_flow::refusal::Refusal;

/// At most this many chains a packet may pass one after the other, the first included.
pub(crate) const MAX_DEPTH: usize = 8;

/// All jumps of rules.
#[derive(Default)]
pub(crate) struct Jumps {
    forward: Edges,
    backward: Edges,
}

/// The jumps in one direction.
#[derive(Default)]
struct Edges {
    /// How many rules jump from each chain to each other.
    next: HashMap<ChainId, HashMap<ChainId, usize>>,
    /// The most chains on a way in this direction, of chains that it goes on from.
    depths: HashMap<ChainId, usize>,
}

impl Jumps {
    /// Notes the jump of one more rule. Fails if it closes a circle, or if a way gets too long.
    pub(crate) fn add(&mut self, from: ChainId, to: ChainId) -> Result<(), Refusal> {
        let is_new = !self.forward.has(from, to);
        if is_new {
            if self.is_way(to, from) {
                let reason = format!("recirc({to}) from chain {from} would close a circle");
                return Err(Refusal::Combination { reason: reason.into() });
            }
            if self.forward.depth(to) + self.backward.depth(from) > MAX_DEPTH {
                return Err(Refusal::Limit { what: "chains one after the other".into(), limit: MAX_DEPTH as u64 });
            }
        }
        self.forward.add(from, to);
        self.backward.add(to, from);
        if is_new {
            self.forward.deepen(&self.backward, from, to);
            self.backward.deepen(&self.forward, to, from);
        }
        Ok(())
    }

    /// Takes the jump of a rule back.
    pub(crate) fn remove(&mut self, from: ChainId, to: ChainId) {
        self.forward.remove(from, to);
        self.backward.remove(to, from);
        if !self.forward.has(from, to) {
            self.forward.update(&self.backward, from);
            self.backward.update(&self.forward, to);
        }
    }

    /// Whether jumps lead from one chain to another. Each step of a way is less deep in what is ahead and deeper in what is behind, so
    /// that only chains between the two are looked at, and mostly none.
    fn is_way(&self, from: ChainId, to: ChainId) -> bool {
        let may_lead_there = |chain: ChainId| {
            self.forward.depth(chain) > self.forward.depth(to) && self.backward.depth(chain) < self.backward.depth(to)
        };
        let mut open = vec![from];
        let mut seen = HashSet::new();
        while let Some(chain) = open.pop() {
            if chain == to {
                return true;
            }
            if may_lead_there(chain) && seen.insert(chain) {
                open.extend(self.forward.after(chain));
            }
        }
        false
    }
}

impl Edges {
    fn has(&self, from: ChainId, to: ChainId) -> bool {
        self.next.get(&from).is_some_and(|targets| targets.contains_key(&to))
    }

    fn after(&self, chain: ChainId) -> impl Iterator<Item = ChainId> {
        self.next.get(&chain).into_iter().flat_map(HashMap::keys).copied()
    }

    fn depth(&self, chain: ChainId) -> usize {
        self.depths.get(&chain).copied().unwrap_or(1)
    }

    fn add(&mut self, from: ChainId, to: ChainId) {
        *self.next.entry(from).or_default().entry(to).or_default() += 1;
    }

    fn remove(&mut self, from: ChainId, to: ChainId) {
        let Some(targets) = self.next.get_mut(&from) else { return };
        if let Some(count) = targets.get_mut(&to) {
            *count -= 1;
            if *count == 0 {
                targets.remove(&to);
            }
        }
        if targets.is_empty() {
            self.next.remove(&from);
        }
    }

    /// A chain leads to another one from now on.
    fn deepen(&mut self, before: &Self, from: ChainId, to: ChainId) {
        if self.depth(from) <= self.depth(to) {
            self.update(before, from);
        }
    }

    /// Works out the depth of a chain anew, and of those before it, as long as that changes something.
    fn update(&mut self, before: &Self, chain: ChainId) {
        let mut stale = vec![chain];
        while let Some(chain) = stale.pop() {
            let deepest_next = self.after(chain).map(|next| self.depth(next)).max();
            let known = self.depth(chain);
            match deepest_next {
                Some(deepest) => self.depths.insert(chain, deepest + 1),
                None => self.depths.remove(&chain),
            };
            if self.depth(chain) != known {
                stale.extend(before.after(chain));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn circles_and_too_long_ways_are_refused() {
        let mut jumps = Jumps::default();
        (0..7).for_each(|number| jumps.add(ChainId(number), ChainId(number + 1)).unwrap());
        let mut refused = |from, to| jumps.add(ChainId(from), ChainId(to)).unwrap_err().label();
        assert_eq!(refused(7, 9), "limit");
        assert_eq!(refused(5, 2), "combination");
        assert_eq!(refused(5, 5), "combination");
        jumps.add(ChainId(1), ChainId(7)).unwrap();
        jumps.remove(ChainId(3), ChainId(4));
        jumps.add(ChainId(7), ChainId(9)).unwrap();
        assert_eq!(jumps.add(ChainId(3), ChainId(4)).unwrap_err().label(), "limit");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_a_look_at_all_jumps_gives(
            steps in proptest::collection::vec((any::<bool>(), 0u32..12, 0u32..12), 1..200)
        ) {
            let mut jumps = Jumps::default();
            let mut there: Vec<(ChainId, ChainId)> = Vec::new();
            for (adds, from, to) in steps {
                let jump = (ChainId(from), ChainId(to));
                if adds {
                    let with_it: Vec<_> = there.iter().copied().chain([jump]).collect();
                    let expected = match longest(&with_it) {
                        None => Err("combination"),
                        Some(depth) if depth > MAX_DEPTH => Err("limit"),
                        Some(_) => Ok(()),
                    };
                    prop_assert_eq!(jumps.add(jump.0, jump.1).map_err(|refusal| refusal.label()), expected);
                    if expected.is_ok() {
                        there = with_it;
                    }
                } else if let Some(at) = there.iter().position(|known| *known == jump) {
                    there.swap_remove(at);
                    jumps.remove(jump.0, jump.1);
                }
            }
            there.drain(..).for_each(|(from, to)| jumps.remove(from, to));
            for edges in [&jumps.forward, &jumps.backward] {
                prop_assert!(edges.next.is_empty() && edges.depths.is_empty(), "nothing is left of what is gone");
            }
        }
    }

    /// The most chains one after the other, `None` if there is a circle.
    fn longest(jumps: &[(ChainId, ChainId)]) -> Option<usize> {
        let chains: HashSet<_> = jumps.iter().flat_map(|(from, to)| [*from, *to]).collect();
        let mut level: HashSet<_> = chains.clone();
        for depth in 1..=chains.len() {
            level = jumps.iter().filter(|(from, _)| level.contains(from)).map(|(_, to)| *to).collect();
            if level.is_empty() {
                return Some(depth);
            }
        }
        None
    }
}
