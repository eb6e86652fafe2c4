//! Chains that rules jump to, and their ends: the rule of each that takes what no other one takes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::OffloadPolicy;
use parking_lot::Mutex;
use sluice_flow::action::{Action as FlowAction, ActionKind};
use sluice_flow::cause::Cause;
use sluice_flow::chain::ChainId;
use sluice_flow::flow::Flow;
use sluice_flow::refusal::Refusal;

use crate::marks::AgentId;
use crate::priorities::Priorities;
use crate::wire::action::{Action, Conntrack, Control, Cookie, Operation, conntrack_bit};
use crate::wire::filter::{ANY_PROTOCOL, Filter, FilterId, Hook};
use crate::wire::flower::Flower;
use crate::{install, marks};

/// How many chains a packet can pass: the kernel drops it at the jump after the sixteenth (`max_reclassify_loop` in
/// `net/sched/cls_api.c`).
pub(crate) const MAX_DEPTH: usize = 17;
/// Behind all priorities of flows.
const LAST_PRIORITY: u16 = 65_100;
/// In front of all priorities of mirrors and flows.
const FIRST_PRIORITY: u16 = Priorities::IN_FRONT_OF_ALL;
const SHARDS: usize = 16;

/// The open chains, in shards so that chains do not wait for each other.
#[derive(Default)]
pub(crate) struct Chains {
    shards: [Mutex<HashMap<ChainId, Chain>>; SHARDS],
    /// Packets that ends have taken, as of the last listing.
    misses: AtomicU64,
    /// Those of them that did not go on, so that whoever took them next has counted them from the beginning.
    counted_twice: AtomicU64,
    /// Why an end could not be put in again the last time.
    failure: Mutex<Option<String>>,
}

#[derive(Default)]
struct Chain {
    is_open: bool,
    /// Its ends, by the hooks where it has them.
    ends: HashMap<Hook, End>,
}

/// The end of a chain at a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct End {
    kind: EndKind,
    /// The most packets that a listing has shown; `None` if nobody knows with how many it began.
    taken: Option<u64>,
    /// The last listing that began before it was put in: that one, and those before it, may show the end that was there then.
    settled: u64,
    /// The last listing that showed it.
    seen: u64,
    /// Somebody else was heard to take it away.
    is_lost: bool,
}

/// What the end of a chain does to the packets that it passes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EndKind {
    /// They go the kernel's own way, as the chain's rules have left them.
    #[default]
    Plain,
    /// They forget their connection. Open vSwitch, in which they begin again, takes the connection that a packet comes with for what an
    /// earlier flow has found (`ovs_ct_fill_key` in `net/openvswitch/conntrack.c`), and there has been none.
    Forgets,
    /// They have missed, which the kernel notes with the number of the chain (`tcf_classify` in `net/sched/cls_api.c`). Open vSwitch takes them
    /// on at that recirculation id.
    GoesOn,
}

impl End {
    /// One that is put in now; `last` is the last listing that has begun.
    const fn new(kind: EndKind, last: u64) -> Self {
        Self { kind, taken: Some(0), settled: last, seen: 0, is_lost: false }
    }
}

impl EndKind {
    /// The kind that a flow needs for the chains that it jumps to.
    pub(crate) fn of(flow: &Flow) -> Self {
        let tracks = |action: &FlowAction| matches!(action, FlowAction::Conntrack(_));
        let may_be_tracked = flow.chain() != ChainId::ROOT || flow.actions.iter().any(tracks);
        match flow.origin.is_reactive() {
            true if flow.goes_on => Self::GoesOn,
            true if may_be_tracked => Self::Forgets,
            _ => Self::Plain,
        }
    }

    /// Whether an end of this kind does for a flow that needs another.
    fn serves(self, needed: Self) -> bool {
        needed == Self::Plain || self == needed
    }
}

impl Chains {
    /// A LAG has an end of the first chain, for packets that come for the second time. It is [put in](super::super::ends) like one that is lost.
    pub(crate) fn expect_at_lag(&self, hook: Hook) {
        let mut shard = self.shard(ChainId::ROOT).lock();
        let first = shard.entry(ChainId::ROOT).or_default();
        first.is_open = true;
        first.ends.entry(hook).or_insert(End { is_lost: true, ..End::default() });
    }

    /// A LAG is to have none any more. Returns the one that it has.
    pub(crate) fn give_up_at_lag(&self, hook: Hook) -> Option<FilterId> {
        let mut shard = self.shard(ChainId::ROOT).lock();
        shard.get_mut(&ChainId::ROOT)?.ends.remove(&hook).map(|_| end_id(hook, ChainId::ROOT.0))
    }

    /// Opens a chain: rules may jump to it.
    pub(crate) fn open(&self, chain: ChainId) {
        self.shard(chain).lock().entry(chain).or_default().is_open = true;
    }

    /// Closes a chain that no rule jumps to, and returns the ends that can be deleted.
    pub(crate) fn close(&self, chain: ChainId) -> Vec<FilterId> {
        let closed = self.shard(chain).lock().remove(&chain).unwrap_or_default();
        closed.ends.into_keys().map(|hook| end_id(hook, chain.0)).collect()
    }

    /// Whether a chain has an end at a hook that does for that kind, so that rules there may jump to it. Fails if the chain is not open.
    pub(crate) fn has_end(&self, hook: Hook, chain: ChainId, kind: EndKind) -> Result<bool, Refusal> {
        if chain == ChainId::ROOT {
            return Ok(true);
        }
        match self.shard(chain).lock().get(&chain).filter(|chain| chain.is_open) {
            Some(chain) => Ok(chain.ends.get(&hook).is_some_and(|end| !end.is_lost && end.kind.serves(kind))),
            None => {
                let reason = format!("chain {chain} is not open").into();
                Err(Refusal::Action { action: ActionKind::Recirc, reason }.until(Cause::Chain))
            }
        }
    }

    /// A chain has a new end at a hook. `last` is the last listing that has begun by now.
    pub(crate) fn add_end(&self, hook: Hook, chain: ChainId, kind: EndKind, last: u64) {
        let mut shard = self.shard(chain).lock();
        let ends = &mut shard.entry(chain).or_default().ends;
        let known = ends.get(&hook).map(|end| end.kind).unwrap_or_default();
        // Two workers may have made one each: a plain one never takes the place of another.
        let kind = if known.serves(kind) { known } else { kind };
        ends.insert(hook, End::new(kind, last));
    }

    /// A chain has an end at a hook that was there before.
    pub(crate) fn adopt_end(&self, hook: Hook, chain: ChainId) {
        self.shard(chain).lock().entry(chain).or_default().ends.entry(hook).or_default().is_lost = false;
    }

    /// The ends that should be in the kernel and that a listing did not show, although it began after they were put in; and those that were
    /// heard to be taken away.
    pub(crate) fn unseen(&self, dump: u64) -> Vec<(Hook, ChainId, EndKind)> {
        let mut unseen = Vec::new();
        for shard in &self.shards {
            for (number, chain) in shard.lock().iter().filter(|(_, chain)| chain.is_open) {
                let is_unseen = |end: &End| end.is_lost || end.settled < dump && end.seen < dump;
                let ends = chain.ends.iter().filter(|(_, end)| is_unseen(end));
                unseen.extend(ends.map(|(hook, end)| (*hook, *number, end.kind)));
            }
        }
        unseen
    }

    /// An end that was missing is there again: put in anew, or found. Returns whether it is still wanted. `last` is the last listing that has
    /// begun by now.
    pub(crate) fn mended(&self, hook: Hook, chain: ChainId, is_new: bool, last: u64) -> bool {
        let mut shard = self.shard(chain).lock();
        let Some(end) = shard.get_mut(&chain).and_then(|chain| chain.ends.get_mut(&hook)) else { return false };
        *end = if is_new { End::new(end.kind, last) } else { End { is_lost: false, ..*end } };
        true
    }

    /// The kind of an end.
    pub(crate) fn kind_of(&self, id: &FilterId) -> EndKind {
        let chain = ChainId(id.chain);
        let shard = self.shard(chain).lock();
        shard.get(&chain).and_then(|chain| chain.ends.get(&id.hook)).map(|end| end.kind).unwrap_or_default()
    }

    /// Notes why an end could not be put in again; `None` if there is none of which that is so. A reason that is new is logged.
    pub(crate) fn note_failure(&self, refusal: Option<&Refusal>) {
        let reason = refusal.map(ToString::to_string);
        let before = std::mem::replace(&mut *self.failure.lock(), reason.clone());
        if before != reason
            && let Some(reason) = reason
        {
            tracing::warn!("the end of a chain is gone, and is put in another time: {reason}");
        }
    }

    /// A listing shows an end, with the packets that it has taken. Of two listings at a time, the one may show less than the other has shown.
    pub(crate) fn note_taken(&self, id: &FilterId, dump: u64, packets: u64) {
        let chain = ChainId(id.chain);
        let mut shard = self.shard(chain).lock();
        let Some(end) = shard.get_mut(&chain).and_then(|chain| chain.ends.get_mut(&id.hook)) else { return };
        end.seen = end.seen.max(dump);
        if end.settled >= dump {
            return;
        }
        if chain == ChainId::ROOT {
            return;
        }
        let before = end.taken.unwrap_or(packets);
        end.taken = Some(before.max(packets));
        let more = packets.saturating_sub(before);
        self.misses.fetch_add(more, Ordering::Relaxed);
        if end.kind != EndKind::GoesOn {
            self.counted_twice.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// How many packets have missed in later chains, as of the last listing.
    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// How many of these have been counted by flows of the chains before, and again by whoever has forwarded them.
    pub(crate) fn counted_twice(&self) -> u64 {
        self.counted_twice.load(Ordering::Relaxed)
    }

    /// All ends at a hook are gone.
    pub(crate) fn forget(&self, hook: Hook) {
        self.take_at(hook);
    }

    /// Somebody else takes away the filters of a priority in a chain, or all of them if it is 0.
    pub(crate) fn lose_priority(&self, hook: Hook, chain: u32, priority: u16) {
        let end = end_id(hook, chain);
        if priority == 0 || priority == end.priority {
            self.lose_end(&end);
        }
    }

    /// Somebody else takes away a rule, which may be the end of a chain.
    pub(crate) fn lose_end(&self, id: &FilterId) {
        let mut shard = self.shard(ChainId(id.chain)).lock();
        let chain = shard.get_mut(&ChainId(id.chain)).filter(|_| *id == end_id(id.hook, id.chain));
        if let Some(end) = chain.and_then(|chain| chain.ends.get_mut(&id.hook)) {
            end.is_lost = true;
        }
    }

    /// Whether a rule is the end of a chain.
    pub(crate) fn ends_at(&self, id: &FilterId) -> bool {
        let chain = ChainId(id.chain);
        *id == end_id(id.hook, id.chain)
            && self.shard(chain).lock().get(&chain).is_some_and(|chain| chain.ends.contains_key(&id.hook))
    }

    /// A rule is gone, which may have been the end of a chain. That of a LAG is put in again.
    pub(crate) fn forget_end(&self, id: &FilterId) {
        if id.chain == ChainId::ROOT.0 {
            return self.lose_end(id);
        }
        if *id == end_id(id.hook, id.chain)
            && let Some(chain) = self.shard(ChainId(id.chain)).lock().get_mut(&ChainId(id.chain))
        {
            chain.ends.remove(&id.hook);
        }
    }

    /// Forgets all ends at a hook and returns those that can be deleted.
    pub(crate) fn take_at(&self, hook: Hook) -> Vec<FilterId> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            for (number, chain) in shard.lock().iter_mut() {
                if chain.ends.remove(&hook).is_some() {
                    taken.push(end_id(hook, number.0));
                }
            }
        }
        taken
    }

    /// Forgets ends of chains that were adopted and never opened, and of the first chain, that are of no use, and returns them.
    pub(crate) fn take_unused(&self, is_used: impl Fn(Hook, ChainId) -> bool) -> Vec<FilterId> {
        let mut unused = Vec::new();
        for shard in &self.shards {
            let may_be_unused = |number: ChainId, chain: &Chain| !chain.is_open || number == ChainId::ROOT;
            for (number, chain) in shard.lock().iter_mut().filter(|(number, chain)| may_be_unused(**number, chain)) {
                chain.ends.retain(|hook, _| {
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
        &self.shards[chain.0 as usize % SHARDS]
    }
}

/// The end of a chain: packets go on as if there had been no rules.
pub(crate) fn end(hook: Hook, chain: ChainId, kind: EndKind, agent: AgentId, policy: OffloadPolicy) -> Filter {
    let verdict = if kind == EndKind::GoesOn { Control::Continue } else { Control::Ok };
    let mut actions = vec![Action::new(Operation::Generic, verdict)];
    // What hardware alone has seen has no connection of the kernel's.
    if kind == EndKind::Forgets && policy != OffloadPolicy::SkipSoftware {
        let forget = Conntrack { bits: conntrack_bit::CLEAR, ..Conntrack::default() };
        actions.insert(0, Action::new(Operation::Conntrack(Box::new(forget)), Control::Pipe));
    }
    // A driver has the kernel go on in the chain where hardware missed, and cannot take a verdict that is none.
    let policy = if kind == EndKind::GoesOn { OffloadPolicy::SkipHardware } else { policy };
    actions[0].cookie = Some(Cookie::from(mark(agent)));
    let flower = Flower { actions, flags: install::flags(policy), ..Flower::default() };
    Filter { id: end_id(hook, chain.0), flower }
}

/// The owner of a chain end, by the note on its first action; `None` if it is none.
pub(crate) fn owner_of_end(note: &[u8]) -> Option<AgentId> {
    let (magic, agent) = note.split_first_chunk::<8>()?;
    (*magic == marks::CHAIN_END).then_some(())?;
    marks::known_agent(agent)
}

/// The end of the first chain at a LAG. Its rules are at the members and at the LAG itself, because that holds them while there are no members:
/// what none of them has taken at a member comes to them again there, and would be copied and counted twice. A member that joins while no agent
/// runs has no rules until the next one does.
pub(crate) fn end_at_lag(hook: Hook, lag: &str, agent: AgentId) -> Filter {
    let mut go_on = Action::new(Operation::Generic, Control::Ok);
    go_on.cookie = Some(Cookie::from(mark(agent)));
    // What hardware sees comes by a member.
    let flags = install::flags(OffloadPolicy::SkipHardware);
    let flower = Flower { received_by: Some(lag.into()), actions: vec![go_on], flags, ..Flower::default() };
    Filter { id: end_id(hook, ChainId::ROOT.0), flower }
}

/// The name of the end of a chain: behind all rules of the chain, or at a LAG in front of all of the first one.
pub(crate) const fn end_id(hook: Hook, chain: u32) -> FilterId {
    let priority = if chain == ChainId::ROOT.0 { FIRST_PRIORITY } else { LAST_PRIORITY };
    FilterId { hook, chain, priority, protocol: ANY_PROTOCOL, handle: 1 }
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
    use crate::wire::filter::FilterView;
    use crate::wire::flower::flag;
    use sluice_netdev::netlink::message::HEADER;

    const HOOK: Hook = Hook::Ingress { interface: 3 };

    #[test]
    fn a_chain_that_is_not_open_cannot_be_jumped_to_and_the_first_always_can() {
        let chains = Chains::default();
        let has_end = |chain| chains.has_end(HOOK, chain, EndKind::Plain);
        assert_eq!(has_end(ChainId::ROOT), Ok(true));
        assert_eq!(has_end(ChainId(5)).unwrap_err().label(), "action");
        chains.open(ChainId(5));
        assert_eq!(has_end(ChainId(5)), Ok(false));
        chains.add_end(HOOK, ChainId(5), EndKind::Plain, 0);
        assert_eq!(has_end(ChainId(5)), Ok(true));
        chains.forget(HOOK);
        assert_eq!(has_end(ChainId(5)), Ok(false));
    }

    #[test]
    fn filters_that_go_take_the_end_of_their_chain_along_only_if_they_have_its_priority() {
        let chains = Chains::default();
        let both = [ChainId(5), ChainId(6)];
        for chain in both {
            chains.open(chain);
            chains.add_end(HOOK, chain, EndKind::Plain, 0);
        }
        let have_ends = || both.map(|chain| chains.has_end(HOOK, chain, EndKind::Plain).unwrap());
        for (chain, priority) in [(0, 5), (5, 61_004), (0, LAST_PRIORITY), (0, 0)] {
            chains.lose_priority(HOOK, chain, priority);
        }
        chains.lose_priority(Hook::Block { number: 3 }, 5, 0);
        assert_eq!(have_ends(), [true, true]);
        chains.lose_priority(HOOK, 5, LAST_PRIORITY);
        assert_eq!(have_ends(), [false, true]);
        chains.lose_priority(HOOK, 6, 0);
        assert_eq!(have_ends(), [false, false]);
    }

    #[test]
    fn an_end_that_is_missing_is_known_whether_its_loss_was_heard_or_not_until_it_is_there_again() {
        let chains = Chains::default();
        let missing = |dump| chains.unseen(dump);
        for chain in [5, 6] {
            chains.open(ChainId(chain));
            chains.add_end(HOOK, ChainId(chain), EndKind::Forgets, 1);
        }
        chains.adopt_end(HOOK, ChainId(7));
        let of = |chain| (HOOK, ChainId(chain), EndKind::Forgets);
        assert_eq!(missing(1), [], "that listing may have been there before");
        [5, 6].into_iter().for_each(|chain| chains.note_taken(&end_id(HOOK, chain), 2, 100));
        assert_eq!(missing(2), []);
        // Nobody said that the one is gone, and of the other it is heard.
        chains.note_taken(&end_id(HOOK, 6), 3, 100);
        chains.lose_end(&end_id(HOOK, 6));
        let mut found = missing(3);
        found.sort_unstable_by_key(|(_, chain, _)| *chain);
        assert_eq!(found, [of(5), of(6)], "and a chain that is not open has none");
        assert!(chains.mended(HOOK, ChainId(5), true, 3) && chains.mended(HOOK, ChainId(6), false, 3));
        assert_eq!(missing(3), []);
        assert_eq!(chains.has_end(HOOK, ChainId(6), EndKind::Forgets), Ok(true));
        // What is new counts from zero, and what was found goes on.
        chains.note_taken(&end_id(HOOK, 5), 4, 3);
        chains.note_taken(&end_id(HOOK, 6), 4, 101);
        assert_eq!(chains.misses(), 100 + 3 + 101);
        chains.close(ChainId(5));
        assert!(!chains.mended(HOOK, ChainId(5), true, 4), "it was closed meanwhile");
        assert_eq!(missing(5), [of(6)]);
    }

    #[test]
    fn any_end_does_for_flows_that_need_a_plain_one_and_for_others_only_their_own() {
        let chains = Chains::default();
        chains.open(ChainId(5));
        chains.adopt_end(HOOK, ChainId(5));
        let serves = |kind| chains.has_end(HOOK, ChainId(5), kind).unwrap();
        assert_eq!([EndKind::Plain, EndKind::Forgets].map(serves), [true, false]);
        chains.add_end(HOOK, ChainId(5), EndKind::Forgets, 0);
        assert_eq!([EndKind::Plain, EndKind::Forgets].map(serves), [true, true]);
        chains.add_end(HOOK, ChainId(5), EndKind::Plain, 0);
        assert!(serves(EndKind::Forgets), "another worker came later, and has changed nothing");
        assert!(!serves(EndKind::GoesOn));
        chains.add_end(HOOK, ChainId(5), EndKind::GoesOn, 0);
        assert_eq!([EndKind::Plain, EndKind::Forgets, EndKind::GoesOn].map(serves), [true, false, true]);
    }

    #[test]
    fn misses_are_those_since_the_start_and_go_on_when_an_end_is_put_in_anew() {
        let chains = Chains::default();
        chains.adopt_end(HOOK, ChainId(5));
        let id = end_id(HOOK, 5);
        chains.note_taken(&id, 1, 100);
        assert_eq!(chains.misses(), 0, "they were before");
        chains.note_taken(&id, 2, 103);
        chains.add_end(HOOK, ChainId(5), EndKind::Forgets, 2);
        chains.note_taken(&id, 3, 2);
        chains.note_taken(&id, 4, 2);
        chains.note_taken(&end_id(HOOK, 6), 4, 50);
        assert_eq!((chains.misses(), chains.counted_twice()), (5, 5));
        chains.add_end(HOOK, ChainId(5), EndKind::GoesOn, 4);
        chains.note_taken(&id, 5, 4);
        assert_eq!((chains.misses(), chains.counted_twice()), (9, 5));
    }

    #[test]
    fn what_a_listing_shows_late_is_counted_once() {
        let chains = Chains::default();
        chains.add_end(HOOK, ChainId(5), EndKind::Forgets, 0);
        let id = end_id(HOOK, 5);
        // Of two listings at a time, the one that saw the end later comes first.
        for (dump, packets) in [(1, 900), (3, 1_002), (2, 1_000), (4, 1_003)] {
            chains.note_taken(&id, dump, packets);
        }
        assert_eq!(chains.misses(), 1_003);
        chains.add_end(HOOK, ChainId(5), EndKind::GoesOn, 5);
        chains.note_taken(&id, 5, 1_003);
        assert_eq!(chains.misses(), 1_003, "this listing saw the end before");
        chains.note_taken(&id, 6, 4);
        assert_eq!((chains.misses(), chains.counted_twice()), (1_007, 1_003));
    }

    #[test]
    fn a_closed_chain_gives_its_ends_back_once() {
        let chains = Chains::default();
        chains.open(ChainId(21));
        chains.add_end(HOOK, ChainId(21), EndKind::Plain, 0);
        chains.add_end(Hook::Block { number: 3 }, ChainId(21), EndKind::Plain, 0);
        assert_eq!(chains.close(ChainId(21)).len(), 2);
        assert!(chains.close(ChainId(21)).is_empty());
    }

    #[test]
    fn the_end_at_a_lag_is_wanted_until_the_lag_is_no_port_and_counts_no_misses() {
        let (lag, chains) = (Hook::Block { number: 3 }, Chains::default());
        chains.expect_at_lag(lag);
        let missing = [(lag, ChainId::ROOT, EndKind::Plain)];
        assert_eq!(chains.unseen(0), missing, "it is still to be put in");
        assert!(chains.mended(lag, ChainId::ROOT, true, 0));
        chains.expect_at_lag(lag);
        assert_eq!(chains.unseen(0), []);
        let id = end_id(lag, 0);
        chains.note_taken(&id, 1, 9);
        assert_eq!((chains.unseen(1).len(), chains.misses()), (0, 0));
        chains.lose_priority(lag, 0, LAST_PRIORITY);
        assert_eq!(chains.unseen(1), []);
        for lose in
            [|chains: &Chains, id: &FilterId| chains.lose_priority(id.hook, 0, FIRST_PRIORITY), Chains::forget_end]
        {
            lose(&chains, &id);
            assert_eq!(chains.unseen(1), missing);
            assert!(chains.mended(lag, ChainId::ROOT, false, 1));
        }
        assert_eq!(chains.take_unused(|hook, _| hook == lag), []);
        assert_eq!(chains.take_unused(|_, _| false), [id]);
        chains.expect_at_lag(lag);
        assert_eq!((chains.give_up_at_lag(lag), chains.give_up_at_lag(lag)), (Some(id), None));
        chains.expect_at_lag(lag);
        assert_eq!(chains.take_at(lag), [id]);
    }

    #[test]
    fn the_end_at_a_lag_is_read_as_it_was_written() {
        let end = end_at_lag(Hook::Block { number: 3 }, "bond7", AgentId(77));
        let mut message = Vec::new();
        end.emit(&mut message, 0, 1).unwrap();
        let found = FilterView::new(&message[HEADER..]).unwrap().parse().unwrap();
        assert_eq!(found, end);
        assert_eq!((found.flower.received_by.as_deref(), found.flower.flags), (Some("bond7"), flag::SKIP_HW));
        assert_eq!(owner_of_end(found.flower.actions[0].cookie.unwrap().bytes()), Some(AgentId(77)));
    }

    #[test]
    fn an_end_comes_after_all_rules_and_says_whose_it_is() {
        assert!(!Priorities::has(LAST_PRIORITY) && !Priorities::has(LAST_PRIORITY + 1));
        assert!(!Priorities::is_of_mirror(FIRST_PRIORITY) && Priorities::is_of_mirror(FIRST_PRIORITY + 1));
        let end = |kind| end(HOOK, ChainId(21), kind, AgentId(77), OffloadPolicy::SkipHardware).flower.actions;
        assert_eq!([EndKind::Plain, EndKind::Forgets].map(|kind| end(kind).len()), [1, 2]);
        let verdict = |kind| end(kind).last().map(|action| action.control);
        assert_eq!([EndKind::Plain, EndKind::GoesOn].map(verdict), [Control::Ok, Control::Continue].map(Some));
        for kind in [EndKind::Plain, EndKind::Forgets, EndKind::GoesOn] {
            let note = end(kind)[0].cookie.unwrap();
            assert_eq!(owner_of_end(note.bytes()), Some(AgentId(77)));
        }
        let note = end(EndKind::Plain)[0].cookie.unwrap();
        assert_eq!(owner_of_end(&note.bytes()[..15]), None);
        assert_eq!(owner_of_end(&[0; 16]), None);
    }
}
