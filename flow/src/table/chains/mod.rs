//! The order between chains: children before parents, and the other way round on the way out.
//!
//! A rule that jumps to chain N goes in only after N is open, which means that it ends in the backend's miss policy for
//! every packet, and after every flow of N that was accepted before it. A rule of chain N goes out only after every
//! rule that jumps to N and whose deletion, or whose modification to jump there no more, was accepted before. Cycles, and more
//! chains one after the other than the device can walk, are refused when the flow is offered.
//!
//! Nobody waits in a circle. Each acceptance has a number, and others wait for a flow under [one](Member::since): that of the
//! first of its acceptances that the device has yet to answer. Whoever waits does so for lower numbers than its own. Where there
//! is none left of these, but one between its own and that of its [last](Member::wished) acceptance, a flow takes the last one for its
//! own, and nobody who was accepted before it waits for it any more. So the order is given up only for a flow that was accepted
//! anew while it waited: packets may miss there until the device has it, which waits for the others. It cannot be kept in all
//! cases. Let the rule of A jump to chain N, and the first flow of chain M be yet to come. A is modified to jump to M; a flow of N
//! is deleted and added again; that of M is modified to jump to N. Then A would wait for that of M, that for the new flow of N, that for the
//! end of the old one, and that for A.
//!
//! A flow jumps to where it is wanted to, to where its rule does, and to where the change does that is with the device. Each
//! life that concerns chains has this as its [`Member`], under the lock of its slot, and what is known of a chain follows from
//! its members in the same critical section. Of a chain that is under the lock of a shard; which chains lead to which is under
//! one of its own, that is taken for the first jump from one chain to another and for the last. A flow that is in the first
//! chain and jumps nowhere has no member and takes none of these.

mod graph;

use std::collections::{BTreeSet, HashMap};

use self::graph::Graph;
use super::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};
use crate::chain::ChainId;
use crate::flow::Flow;
use crate::id::FlowId;
use crate::refusal::Refusal;

const SHARDS: usize = if cfg!(feature = "model") { 2 } else { 64 };

/// See the [module](self). Locks, in order: a shard, the graph. No two shards are locked at a time.
pub(super) struct Chains {
    /// Counts acceptances, wishes and departures.
    order: AtomicU64,
    depth: AtomicUsize,
    shards: [Mutex<HashMap<ChainId, Chain>>; SHARDS],
    graph: Mutex<Graph>,
}

/// What one flow has set free for others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Flows that waited for it, to be [looked at again](super::FlowTable::look_again).
    pub flows: Vec<FlowId>,
    /// Chains that its rule jumped to, and that perhaps [no rule needs](super::FlowTable::is_chain_held) any more.
    pub chains: Vec<ChainId>,
}

/// Flows by their numbers.
type InOrder = BTreeSet<(u64, FlowId)>;

/// A chain.
#[derive(Default)]
struct Chain {
    /// How many flows of each other chain jump here.
    sources: HashMap<ChainId, usize>,
    /// Rules that jump here, or are about to.
    holders: usize,
    /// Flows of this chain that the device has yet to take or to refuse, and that are not withheld, by the order since when others wait for
    /// them.
    arriving: InOrder,
    /// Flows that jump here and wait for some of those.
    waiting_in: InOrder,
    /// Flows whose rule jumps here, or is about to, and that are not wanted to any more, by the order since when others wait for them.
    leaving: InOrder,
    /// Flows of this chain whose removal waits for some of those.
    waiting_out: InOrder,
}

/// What a life is to chains.
pub(super) struct Member {
    chain: ChainId,
    /// Where it jumps, in order.
    jumps: Vec<Jump>,
    /// When what is wanted of it was last changed.
    wished: u64,
    /// Since when others wait for it, if they do: for its arrival, or for the end of its jumps. At most `wished`.
    since: u64,
    /// Others wait for what becomes of it.
    is_arriving: bool,
    /// Its deletion was accepted.
    has_departed: bool,
    waits: Option<Waits>,
}

/// A jump to another chain, and why it counts.
#[derive(Clone, Copy)]
struct Jump {
    to: ChainId,
    because: Reasons,
    /// It is counted at the chain. One that an adopted rule does and that closes a cycle is not.
    is_linked: bool,
    /// It is among those that leave the chain.
    is_leaving: bool,
}

/// Why a jump counts.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Reasons {
    is_wanted: bool,
    /// By the change that is with the device.
    is_asked: bool,
    is_installed: bool,
}

impl Reasons {
    fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Whether a rule needs the chain.
    fn holds(self) -> bool {
        self.is_asked || self.is_installed
    }

    /// Whether a rule needs the chain, and what is wanted does not.
    fn is_unwanted(self) -> bool {
        self.holds() && !self.is_wanted
    }
}

/// A place among those that wait at a chain.
struct Waits {
    at: ChainId,
    order: u64,
    for_way: Way,
}

#[derive(Clone, Copy)]
enum Way {
    In,
    Out,
}

impl Chains {
    pub(super) fn new() -> Self {
        Self {
            order: AtomicU64::new(1),
            depth: AtomicUsize::new(usize::MAX),
            shards: std::array::from_fn(|_| Mutex::default()),
            graph: Mutex::default(),
        }
    }

    pub(super) fn set_depth(&self, depth: usize) {
        self.depth.store(depth, Ordering::Relaxed);
    }

    /// How many chains a packet passes, at the most, before it comes to this one.
    pub(super) fn level(&self, chain: ChainId) -> usize {
        self.graph.lock().level(chain)
    }

    /// Whether a rule jumps to a chain, or is about to.
    pub(super) fn is_held(&self, chain: ChainId) -> bool {
        self.shard(chain).get(&chain).is_some_and(|chain| chain.holders > 0)
    }

    /// A flow is offered. Refuses it if its jumps would close a cycle or go too deep; `None` if it concerns no chain.
    pub(super) fn offer(&self, flow: &Flow) -> Result<Option<Box<Member>>, Refusal> {
        let chain = flow.chain();
        let jumps = jumps_of(flow);
        if chain == ChainId::ROOT && jumps.is_empty() {
            return Ok(None);
        }
        let mut member = Box::new(Member::new(chain));
        self.want(&mut member, &jumps)?;
        member.ask(self.next_order());
        member.is_arriving = chain != ChainId::ROOT;
        Ok(Some(member))
    }

    /// The flow was turned away.
    pub(super) fn withdraw(&self, mut member: Box<Member>) {
        member.count(&[], |because| because.is_wanted = false, |because| because.is_wanted = true);
        self.drop_unused(&mut member);
    }

    /// The flow was accepted under this name.
    pub(super) fn arrive(&self, id: FlowId, member: &Member) {
        if member.is_arriving {
            self.shard(member.chain).entry(member.chain).or_default().arriving.insert((member.since, id));
        }
    }

    /// Something else is wanted of a flow. Refuses it, and changes nothing, if that would close a cycle or go too deep.
    pub(super) fn wish(&self, id: FlowId, member: &mut Option<Box<Member>>, flow: &Flow) -> Result<(), Refusal> {
        let jumps = jumps_of(flow);
        if member.is_none() && jumps.is_empty() {
            // One in a later chain has a member.
            return Ok(());
        }
        let member = member.get_or_insert_with(|| Box::new(Member::new(flow.chain())));
        self.want(member, &jumps)?;
        member.ask(self.next_order());
        self.begin_leaving(id, member);
        self.drop_unused(member);
        Ok(())
    }

    /// The deletion of a flow is accepted.
    pub(super) fn depart(&self, id: FlowId, member: &mut Member) {
        member.count(&[], |because| because.is_wanted = false, |because| because.is_wanted = true);
        member.ask(self.next_order());
        member.has_departed = true;
        self.begin_leaving(id, member);
        self.drop_unused(member);
    }

    /// Whether a rule may be put in or changed as it is wanted now. If so, it holds the chains open that it jumps to; if not,
    /// the flow is [freed](Freed) by one of those that it waits for, or at once.
    pub(super) fn may_enter(&self, id: FlowId, member: &mut Member, freed: &mut Freed) -> bool {
        self.wait_no_more(id, member);
        let is_wanted = |jump: &Jump| jump.because.is_wanted;
        let wanted: Vec<_> = member.jumps.iter().copied().filter(is_wanted).map(|jump| jump.to).collect();
        if wanted.into_iter().any(|to| self.must_wait(id, member, to, Way::In, freed)) {
            return false;
        }
        for jump in member.jumps.iter_mut().filter(|jump| jump.because.is_wanted) {
            if !jump.because.holds() {
                self.shard(jump.to).entry(jump.to).or_default().holders += 1;
            }
            jump.because.is_asked = true;
        }
        true
    }

    /// Whether a rule may be taken out. If not, the flow is [freed](Freed) by one of those that it waits for, or at once.
    pub(super) fn may_leave(&self, id: FlowId, member: &mut Member, freed: &mut Freed) -> bool {
        self.wait_no_more(id, member);
        !(member.has_departed && self.must_wait(id, member, member.chain, Way::Out, freed))
    }

    /// Whether a flow must wait at a chain: until it is freed by those that are older than what keeps others waiting for it, or,
    /// if there are only others, until it is looked at again.
    fn must_wait(&self, id: FlowId, member: &mut Member, at: ChainId, for_way: Way, freed: &mut Freed) -> bool {
        let mut shard = self.shard(at);
        let Some(chain) = shard.get_mut(&at) else { return false };
        let (awaited, waiting) = chain.on_way(for_way);
        let Some((first, _)) = awaited.first().filter(|(first, _)| *first < member.wished) else { return false };
        if *first < member.since {
            waiting.insert((member.since, id));
            member.waits = Some(Waits { at, order: member.since, for_way });
        } else {
            drop(shard);
            self.step_back(id, member, freed);
            freed.flows.push(id);
        }
        true
    }

    /// A flow keeps nobody waiting any more who was accepted before what is wanted of it now.
    fn step_back(&self, id: FlowId, member: &mut Member, freed: &mut Freed) {
        let since = std::mem::replace(&mut member.since, member.wished);
        let arriving = member.is_arriving.then_some((member.chain, Way::In));
        let leaving = member.jumps.iter().filter(|jump| jump.is_leaving).map(|jump| (jump.to, Way::Out));
        for (at, for_way) in arriving.into_iter().chain(leaving) {
            let mut shard = self.shard(at);
            let chain = shard.entry(at).or_default();
            let (awaited, _) = chain.on_way(for_way);
            awaited.remove(&(since, id));
            awaited.insert((member.since, id));
            chain.free(for_way, freed);
        }
    }

    /// This is what the device has of the flow now, and what is wanted of it, if anything. No change is with the device.
    pub(super) fn settle(
        &self,
        id: FlowId,
        member: &mut Member,
        rule: Option<&Flow>,
        wanted: Option<&Flow>,
        freed: &mut Freed,
    ) {
        let held: Vec<_> = member.held().collect();
        member.jumps.iter_mut().for_each(|jump| jump.because.is_asked = false);
        let installed = rule.map(jumps_of).unwrap_or_default();
        member.count(&installed, |because| because.is_installed = false, |because| because.is_installed = true);
        let wanted = wanted.map(jumps_of).unwrap_or_default();
        member.count(&wanted, |because| because.is_wanted = false, |because| because.is_wanted = true);
        self.let_go(member, &held, freed);
        self.begin_leaving(id, member);
        self.end_leaving(id, member, freed);
        self.drop_unused(member);
        self.arrived(id, member, freed);
    }

    /// A rule of an earlier run is a flow's; it holds open what it jumps to.
    pub(super) fn adopt(&self, id: FlowId, member: &mut Option<Box<Member>>, rule: &Flow, is_as_wanted: bool) {
        let jumps = jumps_of(rule);
        if member.is_none() && jumps.is_empty() {
            return;
        }
        let member = member.get_or_insert_with(|| Box::new(Member::new(rule.chain())));
        member.count(&jumps, |because| because.is_installed = false, |because| because.is_installed = true);
        for jump in &mut member.jumps {
            // The rule is there, whatever it does.
            jump.is_linked = jump.is_linked || self.link(member.chain, jump.to).is_ok();
            if jump.because.is_installed {
                self.shard(jump.to).entry(jump.to).or_default().holders += 1;
            }
        }
        self.begin_leaving(id, member);
        if is_as_wanted {
            // Nobody waits before there are workers.
            self.arrived(id, member, &mut Freed::default());
        }
    }

    /// A flow is gone from the device and the table.
    pub(super) fn leave(&self, id: FlowId, mut member: Box<Member>, freed: &mut Freed) {
        self.wait_no_more(id, &mut member);
        let held: Vec<_> = member.held().collect();
        member.jumps.iter_mut().for_each(|jump| jump.because = Reasons::default());
        self.let_go(&member, &held, freed);
        self.end_leaving(id, &mut member, freed);
        self.drop_unused(&mut member);
        self.arrived(id, &mut member, freed);
    }

    /// Has a flow be wanted to jump to these chains. Changes nothing if it cannot; what it does not want any more is still
    /// counted.
    fn want(&self, member: &mut Member, jumps: &[ChainId]) -> Result<(), Refusal> {
        let known = |member: &Member, to| member.jumps.iter().any(|jump| jump.to == to && jump.is_linked);
        let new: Vec<_> = jumps.iter().copied().filter(|to| !known(member, *to)).collect();
        for (number, to) in new.iter().enumerate() {
            if let Err(refusal) = self.link(member.chain, *to) {
                new[..number].iter().for_each(|to| self.unlink(member.chain, *to));
                return Err(refusal);
            }
        }
        member.count(jumps, |because| because.is_wanted = false, |because| because.is_wanted = true);
        member.jumps.iter_mut().filter(|jump| new.contains(&jump.to)).for_each(|jump| jump.is_linked = true);
        Ok(())
    }

    /// Rules jump no longer to chains that the flow held open before, and does not now.
    fn let_go(&self, member: &Member, held: &[ChainId], freed: &mut Freed) {
        for to in held.iter().copied().filter(|to| !member.held().any(|held| held == *to)) {
            let mut shard = self.shard(to);
            let Some(chain) = shard.get_mut(&to) else { continue };
            chain.holders -= 1;
            if chain.holders == 0 {
                freed.chains.push(to);
            }
            forget_if_unused(&mut shard, to);
        }
    }

    /// Has others wait for the end of jumps that a rule does, or is about to do, and that are not wanted any more.
    fn begin_leaving(&self, id: FlowId, member: &mut Member) {
        for jump in member.jumps.iter_mut().filter(|jump| jump.because.is_unwanted() && !jump.is_leaving) {
            jump.is_leaving = true;
            self.shard(jump.to).entry(jump.to).or_default().leaving.insert((member.since, id));
        }
    }

    /// Nobody waits any more for the end of jumps that no rule does, or that are wanted again.
    fn end_leaving(&self, id: FlowId, member: &mut Member, freed: &mut Freed) {
        for jump in member.jumps.iter_mut().filter(|jump| jump.is_leaving && !jump.because.is_unwanted()) {
            jump.is_leaving = false;
            let mut shard = self.shard(jump.to);
            if let Some(chain) = shard.get_mut(&jump.to) {
                chain.leaving.remove(&(member.since, id));
                chain.free(Way::Out, freed);
            }
            forget_if_unused(&mut shard, jump.to);
        }
    }

    /// Takes out the jumps that count for nothing any more.
    fn drop_unused(&self, member: &mut Member) {
        member.jumps.retain(|jump| {
            if !jump.because.is_any() && jump.is_linked {
                self.unlink(member.chain, jump.to);
            }
            jump.because.is_any()
        });
    }

    /// A flow of a chain keeps nobody waiting any more.
    fn arrived(&self, id: FlowId, member: &mut Member, freed: &mut Freed) {
        if !std::mem::take(&mut member.is_arriving) {
            return;
        }
        let mut shard = self.shard(member.chain);
        if let Some(chain) = shard.get_mut(&member.chain) {
            chain.arriving.remove(&(member.since, id));
            chain.free(Way::In, freed);
        }
        forget_if_unused(&mut shard, member.chain);
    }

    fn wait_no_more(&self, id: FlowId, member: &mut Member) {
        let Some(Waits { at, order, for_way }) = member.waits.take() else { return };
        let mut shard = self.shard(at);
        if let Some(chain) = shard.get_mut(&at) {
            chain.on_way(for_way).1.remove(&(order, id));
        }
        forget_if_unused(&mut shard, at);
    }

    fn link(&self, from: ChainId, to: ChainId) -> Result<(), Refusal> {
        let mut shard = self.shard(to);
        let known = shard.get_mut(&to).and_then(|chain| chain.sources.get_mut(&from));
        match known {
            Some(flows) => *flows += 1,
            None => {
                self.graph.lock().add(from, to, self.depth.load(Ordering::Relaxed))?;
                shard.entry(to).or_default().sources.insert(from, 1);
            }
        }
        Ok(())
    }

    fn unlink(&self, from: ChainId, to: ChainId) {
        let mut shard = self.shard(to);
        let Some(chain) = shard.get_mut(&to) else { return };
        let Some(flows) = chain.sources.get_mut(&from) else { return };
        *flows -= 1;
        if *flows == 0 {
            chain.sources.remove(&from);
            self.graph.lock().remove(from, to);
            forget_if_unused(&mut shard, to);
        }
    }

    fn next_order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed)
    }

    fn shard(&self, chain: ChainId) -> MutexGuard<'_, HashMap<ChainId, Chain>> {
        self.shards[chain.0 as usize % SHARDS].lock()
    }
}

impl Chain {
    /// Those for whom others wait here on their way, and those others.
    fn on_way(&mut self, way: Way) -> (&mut InOrder, &mut InOrder) {
        match way {
            Way::In => (&mut self.arriving, &mut self.waiting_in),
            Way::Out => (&mut self.leaving, &mut self.waiting_out),
        }
    }

    /// Has those go on that have nobody to wait for any more.
    fn free(&mut self, way: Way, freed: &mut Freed) {
        let (awaited, waiting) = self.on_way(way);
        let until = awaited.first().map_or(u64::MAX, |(first, _)| *first);
        while let Some(first) = waiting.first().copied().filter(|(order, _)| *order < until) {
            waiting.remove(&first);
            freed.flows.push(first.1);
        }
    }
}

impl Member {
    fn new(chain: ChainId) -> Self {
        let (jumps, waits) = Default::default();
        Self { chain, jumps, wished: 0, since: 0, is_arriving: false, has_departed: false, waits }
    }

    /// Something else is wanted of it. Whoever waits for it goes on to do so.
    fn ask(&mut self, order: u64) {
        let is_awaited = self.is_arriving || self.jumps.iter().any(|jump| jump.is_leaving);
        self.wished = order;
        if !is_awaited {
            self.since = order;
        }
    }

    /// That of a flow whose rule is as wanted, and about which nobody waits; `None` if it concerns no chain.
    pub(super) fn of_settled(flow: &Flow) -> Option<Box<Self>> {
        let (chain, jumps) = (flow.chain(), jumps_of(flow));
        let because = Reasons { is_wanted: true, is_asked: false, is_installed: true };
        let jump = |to| Jump { to, because, is_linked: true, is_leaving: false };
        let is_concerned = chain != ChainId::ROOT || !jumps.is_empty();
        is_concerned.then(|| Box::new(Self { jumps: jumps.into_iter().map(jump).collect(), ..Self::new(chain) }))
    }

    /// Whether it says no more than [`Member::of_settled`] would.
    pub(super) fn is_settled(&self) -> bool {
        let is_plain = |jump: &Jump| {
            let Reasons { is_wanted, is_asked, is_installed } = jump.because;
            is_wanted && is_installed && jump.is_linked && !is_asked && !jump.is_leaving
        };
        !self.is_arriving && !self.has_departed && self.waits.is_none() && self.jumps.iter().all(is_plain)
    }

    fn held(&self) -> impl Iterator<Item = ChainId> {
        self.jumps.iter().filter(|jump| jump.because.holds()).map(|jump| jump.to)
    }

    /// Has jumps count for one reason: these, and no others.
    fn count(&mut self, jumps: &[ChainId], clear: impl Fn(&mut Reasons), set: impl Fn(&mut Reasons)) {
        self.jumps.iter_mut().for_each(|jump| clear(&mut jump.because));
        for to in jumps.iter().copied() {
            let place = self.jumps.binary_search_by_key(&to, |jump| jump.to).unwrap_or_else(|place| {
                let because = Reasons::default();
                self.jumps.insert(place, Jump { to, because, is_linked: false, is_leaving: false });
                place
            });
            set(&mut self.jumps[place].because);
        }
    }
}

/// The chains that a flow jumps to, each once and in order.
fn jumps_of(flow: &Flow) -> Vec<ChainId> {
    let mut jumps = flow.jumps();
    jumps.sort_unstable();
    jumps.dedup();
    jumps
}

fn forget_if_unused(shard: &mut MutexGuard<'_, HashMap<ChainId, Chain>>, id: ChainId) {
    let is_unused = |chain: &Chain| {
        chain.sources.is_empty()
            && chain.holders == 0
            && chain.arriving.is_empty()
            && chain.waiting_in.is_empty()
            && chain.leaving.is_empty()
            && chain.waiting_out.is_empty()
    };
    if shard.get(&id).is_some_and(is_unused) {
        shard.remove(&id);
    }
}
