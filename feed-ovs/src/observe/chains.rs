//! Which chains packets would come to: a flow of a later chain is of use only if a flow that leads there is taken, too.

use std::collections::{HashMap, HashSet};

use sluice_flow::chain::ChainId;
use sluice_flow::flow::Flow;
use sluice_flow::text::Statistics;

use super::report::Count;

/// The label of flows that no packet would come to.
pub(super) const CHAIN: &str = "chain";
/// Chains that are kept apart. Flows of others count as flows that packets come to.
const CHAINS: usize = 1 << 16;
/// Jumps that are kept.
const JUMPS: usize = 1 << 18;

/// The chain in which every packet starts.
const FIRST: ChainId = ChainId(0);

/// What a backend would take of the chains of a datapath.
#[derive(Default)]
pub(super) struct Chains {
    taken: HashMap<ChainId, Taken>,
    jumps: HashMap<(ChainId, ChainId), Jump>,
    is_full: bool,
}

/// Flows of a chain that would be taken.
pub(super) struct Taken {
    pub(super) count: Count,
    /// Those of them behind which a packet cannot [begin again](Flow::lets_begin_again).
    changing: Count,
    /// The one with the most packets.
    pub(super) example: (Flow, Statistics),
}

/// Flows that lead from one chain to another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Jump {
    /// All of them change the packet.
    Changed,
    /// One leaves the packet as it came.
    Unchanged,
}

/// What the end of a datapath shows of its chains.
#[derive(Default)]
pub(super) struct Reached {
    /// Chains that no taken flow leads to, from the first on.
    pub(super) unreached: Vec<Taken>,
    /// Taken flows that are of use only if a packet that misses in a later chain goes on in Open vSwitch from there.
    pub(super) needs_recirc_sharing: Count,
}

impl Chains {
    /// Adds a flow that the backend takes.
    pub(super) fn add(&mut self, flow: &Flow, statistics: &Statistics) {
        let (chain, jumps) = (flow.chain(), flow.jumps());
        let is_changing = !flow.lets_begin_again();
        if self.taken.len() < CHAINS || self.taken.contains_key(&chain) {
            let example = || (flow.clone(), *statistics);
            let new = || Taken { count: Count::default(), changing: Count::default(), example: example() };
            let taken = self.taken.entry(chain).or_insert_with(new);
            taken.count += Count::one(statistics);
            if is_changing {
                taken.changing += Count::one(statistics);
            }
            if statistics.packets > taken.example.1.packets {
                taken.example = example();
            }
        } else {
            self.is_full = true;
        }
        for to in jumps {
            if self.jumps.len() >= JUMPS && !self.jumps.contains_key(&(chain, to)) {
                self.is_full = true;
                continue;
            }
            let jump = self.jumps.entry((chain, to)).or_insert(Jump::Changed);
            if !is_changing {
                *jump = Jump::Unchanged;
            }
        }
    }

    /// Ends a datapath. `targets` are the chains that some flow leads to: where none does, the flow that does is not in the dump.
    pub(super) fn end(self, targets: &Targets) -> Reached {
        let mut reached = Reached::default();
        if self.is_full || targets.is_full {
            return reached;
        }
        let by_all = self.reached(targets, &|_| true);
        let by_unchanged = self.reached(targets, &|jump| jump == Jump::Unchanged);
        for (chain, taken) in self.taken {
            if !by_all.contains(&chain) {
                reached.unreached.push(taken);
            } else if by_unchanged.contains(&chain) {
                reached.needs_recirc_sharing += taken.changing;
            } else {
                reached.needs_recirc_sharing += taken.count;
            }
        }
        reached
    }

    /// Returns the chains with taken flows that some jumps lead to, from the first one and from those that no flow leads to.
    fn reached(&self, targets: &Targets, is_followed: &dyn Fn(Jump) -> bool) -> HashSet<ChainId> {
        let mut next: HashMap<ChainId, Vec<ChainId>> = HashMap::new();
        for ((from, to), _) in self.jumps.iter().filter(|(_, jump)| is_followed(**jump)) {
            next.entry(*from).or_default().push(*to);
        }
        let is_start = |chain: &ChainId| *chain == FIRST || !targets.chains.contains(chain);
        let mut open: Vec<_> = self.taken.keys().copied().filter(is_start).collect();
        let mut reached: HashSet<_> = open.iter().copied().collect();
        while let Some(chain) = open.pop() {
            open.extend(next.get(&chain).into_iter().flatten().copied().filter(|to| reached.insert(*to)));
        }
        reached
    }
}

/// The chains that flows lead to, taken or not.
#[derive(Default)]
pub(super) struct Targets {
    chains: HashSet<ChainId>,
    is_full: bool,
}

impl Targets {
    /// Adds a flow, taken or not. Returns whether it is in a later chain or leads to one.
    pub(super) fn add(&mut self, flow: &Flow) -> bool {
        let jumps = flow.jumps();
        let recirculates = flow.chain() != FIRST || !jumps.is_empty();
        for chain in jumps {
            if self.chains.len() < CHAINS {
                self.chains.insert(chain);
            } else {
                self.is_full = true;
            }
        }
        recirculates
    }
}
