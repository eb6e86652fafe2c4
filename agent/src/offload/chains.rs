//! The order between chains: children before parents, and the other way round on the way out.
//!
//! A rule that jumps to chain N goes in only after N is open, which means that it ends in the backend's miss policy for
//! every packet, and after every flow of N that was accepted before it. A rule of chain N goes out only after every
//! rule that jumps to N and whose deletion was accepted before. Cycles, and more chains one after the other than the
//! device can walk, are refused when the flow is offered.
//!
//! What is known of chains lies under one lock, which is taken only for flows that jump or that are in a later chain, and
//! never while the device is asked for something. Whether a flow is one of those is asked of one of many small locks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sluice_flow::backend::Operation;
use sluice_flow::{ActionKind, Backend, ChainId, Flow, FlowId, Refusal};

/// See the [module](self).
pub(super) struct Chains {
    backend: Arc<dyn Backend>,
    max_depth: usize,
    /// The flows that are in `state`, by slot.
    concerned: [Mutex<HashSet<FlowId>>; SHARDS],
    state: Mutex<State>,
}

const SHARDS: usize = 64;

/// A flow that concerns chains has been offered and waits to be accepted or turned away.
pub(super) struct Announced(Option<Links>);

/// Which chain a flow is in, and which it jumps to.
#[derive(Clone)]
struct Links {
    chain: ChainId,
    jumps: Vec<ChainId>,
    order: u64,
}

#[derive(Default)]
struct State {
    /// Counts acceptances and departures.
    order: u64,
    /// Flows that concern chains, by life.
    flows: HashMap<FlowId, Member>,
    /// How many flows of a chain jump to another.
    edges: BTreeMap<(ChainId, ChainId), usize>,
    /// The same the other way round: (to, from).
    edges_back: BTreeSet<(ChainId, ChainId)>,
    chains: HashMap<ChainId, Chain>,
}

#[derive(Default)]
struct Member {
    chain: ChainId,
    /// Every chain that it has ever jumped to: they count as edges until its end.
    jumps: Vec<ChainId>,
    /// Chains that its rule holds open.
    holds: Vec<ChainId>,
    /// When it was accepted, in the order of all that concerns chains.
    accepted: u64,
    /// When what it does was last changed.
    wished: u64,
    /// When its deletion was accepted.
    departed: Option<u64>,
}

#[derive(Default)]
struct Chain {
    /// Rules that jump here, or are about to.
    holders: usize,
    door: Arc<Door>,
    /// Flows of this chain that the device has yet to take or to refuse, by order of acceptance.
    arriving: BTreeSet<(u64, FlowId)>,
    /// Flows that jump here and wait for some of those.
    waiting_in: BTreeSet<(u64, FlowId)>,
    /// Flows that jump here and are to be deleted, by order of departure.
    departing: BTreeSet<(u64, FlowId)>,
    /// Flows of this chain whose removal waits for some of those.
    waiting_out: BTreeSet<(u64, FlowId)>,
}

/// Whether the device has a chain open. Locked while the device opens or closes it, and always before the state.
type Door = Mutex<bool>;

impl Chains {
    pub(super) fn new(backend: Arc<dyn Backend>, depth: usize) -> Self {
        let max_depth = backend.capabilities().max_chain_depth.min(depth);
        let concerned = std::array::from_fn(|_| Mutex::default());
        Self { backend, max_depth, concerned, state: Mutex::default() }
    }

    /// A flow is offered. Refuses it if its jumps would close a cycle or go too deep.
    pub(super) fn announce(&self, flow: &Flow) -> Result<Announced, Refusal> {
        let chain = flow.chain();
        let jumps: Vec<_> = flow.jumps().into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        if chain == ChainId::ROOT && jumps.is_empty() {
            return Ok(Announced(None));
        }
        let mut state = self.state.lock();
        for target in &jumps {
            state.check_jump(chain, *target, self.max_depth)?;
        }
        for target in &jumps {
            *state.edges.entry((chain, *target)).or_default() += 1;
            state.edges_back.insert((*target, chain));
        }
        state.order += 1;
        Ok(Announced(Some(Links { chain, jumps, order: state.order })))
    }

    /// The flow was turned away.
    pub(super) fn withdraw(&self, announced: Announced) {
        if let Some(links) = announced.0 {
            self.state.lock().drop_edges(links.chain, &links.jumps);
        }
    }

    /// The flow was accepted as a new life.
    pub(super) fn arrive(&self, announced: Announced, id: FlowId) {
        let Some(links) = announced.0 else { return };
        self.concerned(id).insert(id);
        let mut state = self.state.lock();
        if links.chain != ChainId::ROOT {
            state.chains.entry(links.chain).or_default().arriving.insert((links.order, id));
        }
        let Links { chain, jumps, order } = links;
        state.flows.insert(id, Member { chain, jumps, accepted: order, wished: order, ..Member::default() });
    }

    /// A modification is about to be accepted for a life that there is, with the same match and so in the same chain. Its
    /// jumps come on top of those before; one that the flow had already is counted once.
    pub(super) fn adjust(&self, announced: Announced, id: FlowId) {
        let Some(Links { chain, jumps, order }) = announced.0 else { return };
        self.concerned(id).insert(id);
        let mut state = self.state.lock();
        let member = state.flows.entry(id).or_default();
        member.chain = chain;
        member.wished = order;
        let (known, new): (Vec<_>, Vec<_>) = jumps.into_iter().partition(|jump| member.jumps.contains(jump));
        member.jumps.extend(new);
        state.drop_edges(chain, &known);
    }

    /// Whether a flow jumps to a chain, or is in a later one.
    pub(super) fn concern(&self, id: FlowId) -> bool {
        self.concerned(id).contains(&id)
    }

    /// How many chains a packet passes, at the most, before it comes to this one.
    pub(super) fn depth(&self, chain: ChainId) -> usize {
        let state = self.state.lock();
        state.longest(chain, &mut HashMap::new(), &|state, chain| state.sources(chain))
    }

    /// The deletion of a flow is about to be accepted.
    pub(super) fn depart(&self, id: FlowId) {
        if !self.concerned(id).contains(&id) {
            return;
        }
        let mut state = self.state.lock();
        let order = state.order + 1;
        let Some(member) = state.flows.get_mut(&id).filter(|member| member.departed.is_none()) else { return };
        member.departed = Some(order);
        let jumps = member.jumps.clone();
        state.order = order;
        for target in jumps {
            state.chains.entry(target).or_default().departing.insert((order, id));
        }
    }

    /// Whether a change may begin now. If not, the flow is given back by [`Chains::settled`] or [`Chains::gone`] of those
    /// that it waits for.
    pub(super) fn may_begin(&self, id: FlowId, operation: &Operation, flow: &Flow) -> bool {
        if !self.concerned(id).contains(&id) {
            return true;
        }
        let mut state = self.state.lock();
        let Some(member) = state.flows.get(&id) else { return true };
        match operation {
            Operation::Install(_) | Operation::Modify(..) => {
                let order = member.wished;
                for target in flow.jumps() {
                    let chain = state.chains.entry(target).or_default();
                    if chain.arriving.first().is_some_and(|(first, _)| *first < order) {
                        chain.waiting_in.insert((order, id));
                        return false;
                    }
                }
                true
            }
            Operation::Move(..) => true,
            Operation::Remove(_) => {
                let (Some(order), chain) = (member.departed, member.chain) else { return true };
                let Some(chain) = state.chains.get_mut(&chain) else { return true };
                let free = chain.departing.first().is_none_or(|(first, _)| *first >= order);
                if !free {
                    chain.waiting_out.insert((order, id));
                }
                free
            }
        }
    }

    /// Opens the chains that a rule is about to jump to. May wait for the device.
    pub(super) fn open(&self, id: FlowId, flow: &Flow) -> Result<(), Refusal> {
        for target in flow.jumps() {
            let Some(door) = self.hold(id, target) else { continue };
            let mut is_open = door.lock();
            if !*is_open {
                if let Err(refusal) = self.backend.open_chain(target) {
                    drop(is_open);
                    self.let_go(id, target);
                    return Err(refusal);
                }
                *is_open = true;
            }
        }
        Ok(())
    }

    /// Notes that a rule needs a chain; gives its door unless the rule holds it open already.
    fn hold(&self, id: FlowId, target: ChainId) -> Option<Arc<Door>> {
        let mut state = self.state.lock();
        let member = state.flows.get_mut(&id)?;
        if member.holds.contains(&target) {
            return None;
        }
        member.holds.push(target);
        let chain = state.chains.entry(target).or_default();
        chain.holders += 1;
        Some(chain.door.clone())
    }

    fn let_go(&self, id: FlowId, target: ChainId) {
        if let Some(member) = self.state.lock().flows.get_mut(&id) {
            member.holds.retain(|held| *held != target);
        }
        self.release(vec![target]);
    }

    /// A change is done, or refused; `rule` is the flow as the device has it now, if at all. Gives the flows that waited.
    pub(super) fn settled(&self, id: FlowId, rule: Option<&Flow>) -> Vec<FlowId> {
        if !self.concerned(id).contains(&id) {
            return Vec::new();
        }
        let mut state = self.state.lock();
        let Some(member) = state.flows.get_mut(&id) else { return Vec::new() };
        let jumps: Vec<_> = rule.map(|flow| flow.jumps()).unwrap_or_default();
        let (kept, released) = member.holds.drain(..).partition(|chain| jumps.contains(chain));
        member.holds = kept;
        let (chain, accepted) = (member.chain, member.accepted);
        let free = state.arrived(chain, accepted, id);
        drop(state);
        self.release(released);
        free
    }

    /// A flow is gone from the device and the table. Gives the flows that waited.
    pub(super) fn gone(&self, id: FlowId) -> Vec<FlowId> {
        if !self.concerned(id).remove(&id) {
            return Vec::new();
        }
        let mut state = self.state.lock();
        let Some(member) = state.flows.remove(&id) else { return Vec::new() };
        state.drop_edges(member.chain, &member.jumps);
        let mut free = state.arrived(member.chain, member.accepted, id);
        if let Some(order) = member.departed {
            for target in &member.jumps {
                let Some(chain) = state.chains.get_mut(target) else { continue };
                chain.departing.remove(&(order, id));
                let until = chain.departing.first().map_or(u64::MAX, |(first, _)| *first);
                free.extend(take_below(&mut chain.waiting_out, until));
            }
        }
        for chain in member.jumps.into_iter().chain([member.chain]) {
            state.forget_if_unused(chain);
        }
        drop(state);
        self.release(member.holds);
        free
    }

    /// Rules need these chains no longer; those that no rule needs are closed. May wait for the device.
    fn release(&self, chains: Vec<ChainId>) {
        for target in chains {
            let door = {
                let mut state = self.state.lock();
                let Some(chain) = state.chains.get_mut(&target) else { continue };
                chain.holders -= 1;
                chain.door.clone()
            };
            let mut is_open = door.lock();
            let is_held = |state: &State| state.chains.get(&target).is_some_and(|chain| chain.holders > 0);
            // Somebody who needs it by now waits at the door and finds it as it is left here.
            if *is_open && !is_held(&self.state.lock()) {
                self.backend.close_chain(target);
                *is_open = false;
            }
            drop(is_open);
            self.state.lock().forget_if_unused(target);
        }
    }

    fn concerned(&self, id: FlowId) -> MutexGuard<'_, HashSet<FlowId>> {
        self.concerned[id.slot as usize % SHARDS].lock()
    }
}

impl State {
    fn check_jump(&self, from: ChainId, to: ChainId, max_depth: usize) -> Result<(), Refusal> {
        if self.edges.contains_key(&(from, to)) {
            return Ok(());
        }
        let below = self.longest(to, &mut HashMap::new(), &|state, chain| state.targets(chain));
        if self.reaches(to, from, &mut HashSet::new()) {
            let reason = format!("recirc({to}) from chain {from} would close a cycle").into();
            return Err(Refusal::Action { action: ActionKind::Recirc, reason });
        }
        let above = self.longest(from, &mut HashMap::new(), &|state, chain| state.sources(chain));
        // So many jumps one after the other pass one chain more.
        if above + 1 + below >= max_depth {
            let what = format!("recirc({to}) from chain {from} makes packets pass too many chains").into();
            return Err(Refusal::Limit { what, limit: max_depth as u64 });
        }
        Ok(())
    }

    fn reaches(&self, from: ChainId, to: ChainId, seen: &mut HashSet<ChainId>) -> bool {
        from == to || seen.insert(from) && self.targets(from).into_iter().any(|next| self.reaches(next, to, seen))
    }

    /// Jumps on the longest way from a chain. Ends because there are no cycles, and goes no deeper than the limit allows.
    fn longest(
        &self,
        chain: ChainId,
        known: &mut HashMap<ChainId, usize>,
        neighbours: &dyn Fn(&Self, ChainId) -> Vec<ChainId>,
    ) -> usize {
        if let Some(length) = known.get(&chain) {
            return *length;
        }
        let next = neighbours(self, chain);
        let length = next.into_iter().map(|next| 1 + self.longest(next, known, neighbours)).max().unwrap_or(0);
        known.insert(chain, length);
        length
    }

    fn targets(&self, chain: ChainId) -> Vec<ChainId> {
        self.edges.range((chain, ChainId(0))..=(chain, ChainId(u32::MAX))).map(|((_, to), _)| *to).collect()
    }

    fn sources(&self, chain: ChainId) -> Vec<ChainId> {
        self.edges_back.range((chain, ChainId(0))..=(chain, ChainId(u32::MAX))).map(|(_, from)| *from).collect()
    }

    fn drop_edges(&mut self, from: ChainId, jumps: &[ChainId]) {
        for to in jumps {
            if let Some(count) = self.edges.get_mut(&(from, *to)) {
                *count -= 1;
                if *count == 0 {
                    self.edges.remove(&(from, *to));
                    self.edges_back.remove(&(*to, from));
                }
            }
        }
    }

    /// A flow of `chain` keeps nobody waiting any more.
    fn arrived(&mut self, chain: ChainId, accepted: u64, id: FlowId) -> Vec<FlowId> {
        let Some(chain) = self.chains.get_mut(&chain) else { return Vec::new() };
        chain.arriving.remove(&(accepted, id));
        let until = chain.arriving.first().map_or(u64::MAX, |(first, _)| *first);
        take_below(&mut chain.waiting_in, until)
    }

    fn forget_if_unused(&mut self, id: ChainId) {
        let unused = |chain: &Chain| {
            chain.holders == 0
                && chain.arriving.is_empty()
                && chain.waiting_in.is_empty()
                && chain.departing.is_empty()
                && chain.waiting_out.is_empty()
                // Whoever opens or closes it holds the lock.
                && chain.door.try_lock().is_some_and(|is_open| !*is_open)
        };
        if self.chains.get(&id).is_some_and(unused) {
            self.chains.remove(&id);
        }
    }
}

/// Takes out those whose order is below `until`.
fn take_below(waiting: &mut BTreeSet<(u64, FlowId)>, until: u64) -> Vec<FlowId> {
    let mut free = Vec::new();
    while let Some(first) = waiting.first().copied().filter(|(order, _)| *order < until) {
        waiting.remove(&first);
        free.push(first.1);
    }
    free
}
