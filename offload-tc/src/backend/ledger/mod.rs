//! The ledger: which rules of ours are in the kernel, where, and for which flow.
//!
//! A rule's handle in the kernel is its slot plus one, so that a listing finds its rule without a search, and no two rules
//! have the same handle anywhere. A slot is reused only after all listings are over that began while it had its old rule.
//! The slots are in shards, each with a lock that is held for a moment. Workers use the shards in turn, so all are of about
//! one size, which bounds the time of a walk through one, and handles are dense: the kernel has a tree of them with 64 in a
//! node.
//!
//! A flow may need a second rule in front of its own, the guard ([`Rules::guard`](crate::translate::Rules::guard)). It has
//! the same slot and so the same handle, at the priority [in front](crate::priorities::Priorities::in_front_of).

pub(crate) mod chains;
pub(crate) mod dumps;
pub(crate) mod record;
pub(crate) mod removals;
mod slots;
pub(crate) mod strays;

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use sluice_flow::backend::{Change, Completion, Handle, Outcome};
use sluice_flow::id::{FlowId, Generation};
use sluice_flow::priority::Priority;
use sluice_flow::refusal::Refusal;

use self::chains::Chains;
use self::dumps::Dumps;
use self::record::{Entry, FirstReadings, Guard, Place, Record, Seen, State, handle_of, index_of, life_of};
use self::removals::{LateCompletions, PendingRemoval, PendingRemovals};
pub(crate) use self::slots::ShardCursor;
use self::slots::{MOST, SHARDS, Shard, Slot, index, narrow, split};
use self::strays::Strays;
use super::counted::Counted;
use crate::label::Label;
use crate::marks::AgentId;
use crate::priorities::Priorities;
use crate::wire::filter::{Filter, FilterId, FilterView};
use crate::wire::rule_view::RuleView;

/// All rules, with the priorities, chains and pending removals that depend on them.
pub(crate) struct Ledger {
    agent: AgentId,
    /// Other owners whose rules flows have claimed. Such a rule has the notes of its owner until a worker rewrites it, and
    /// is this agent's meanwhile.
    predecessors: ArcSwap<Vec<AgentId>>,
    shards: [Mutex<Shard>; SHARDS],
    pub(crate) dumps: Dumps,
    pub(crate) chains: Chains,
    priorities: Mutex<Priorities>,
    removals: PendingRemovals,
    pub(crate) strays: Mutex<Strays>,
    /// The counters of adopted rules, for the first reader.
    pub(crate) first_readings: Mutex<Option<FirstReadings>>,
}

impl Ledger {
    pub(crate) fn new(agent: AgentId) -> Self {
        Self {
            agent,
            predecessors: ArcSwap::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
            dumps: Dumps::default(),
            chains: Chains::default(),
            priorities: Mutex::default(),
            removals: PendingRemovals::default(),
            strays: Mutex::default(),
            first_readings: Mutex::default(),
        }
    }

    /// The handle for a rule that is about to be installed.
    pub(crate) fn insert(&self, cursor: &mut ShardCursor, record: Record) -> Handle {
        let shard_number = cursor.next();
        let mut shard = self.shards[shard_number].lock();
        let is_over = shard.free.front().is_some_and(|(_, freed)| self.dumps.are_over(*freed));
        let local = match shard.free.pop_front_if(|_| is_over) {
            Some((local, _)) => local,
            None => {
                shard.slots.push(Slot::default());
                narrow(shard.slots.len() - 1)
            }
        };
        shard.slots[local as usize].occupy(record, index(shard_number, local))
    }

    /// Another handle for a rule whose handle somebody else uses in the kernel. The old one is not reused.
    pub(crate) fn rename(&self, cursor: &mut ShardCursor, taken: Handle) -> Option<Handle> {
        let entry = self.with(taken, |slot| slot.record.take())?;
        Some(self.insert(cursor, entry?))
    }

    /// Enters an existing rule under its name; `None` if the handle is taken or cannot be ours. Handles in between are used
    /// after [`finish_adoption`](Self::finish_adoption).
    pub(crate) fn adopt(&self, id: &FilterId, record: Record) -> Option<Handle> {
        let at = id.handle.checked_sub(1).filter(|at| *at < MOST)?;
        let (shard_number, local) = split(at);
        let mut shard = self.shards[shard_number].lock();
        if shard.slots.len() <= local {
            shard.slots.resize_with(local + 1, Slot::default);
        }
        let slot = &mut shard.slots[local];
        (slot.state == State::Vacant).then(|| slot.occupy(record, at))
    }

    /// All existing rules are entered, and no other rule is yet.
    pub(crate) fn finish_adoption(&self) {
        for shard in &self.shards {
            let Shard { slots, free } = &mut *shard.lock();
            let vacant = slots.iter().enumerate().filter(|(_, slot)| slot.state == State::Vacant);
            *free = vacant.map(|(local, _)| (narrow(local), self.dumps.last())).collect();
        }
    }

    /// The rule of a handle, in any state.
    pub(crate) fn find(&self, handle: Handle) -> Option<Entry> {
        self.with(handle, |slot| slot.record.clone()).flatten().map(|record| Entry { handle, record })
    }

    /// Changes the state of a rule that is in one of some states, and returns the rule.
    pub(crate) fn transition(&self, handle: Handle, from: &[State], to: State) -> Option<Entry> {
        let turn = |slot: &mut Slot| {
            if !from.contains(&slot.state) {
                return None;
            }
            slot.state = to;
            slot.record.clone().map(|record| Entry { handle, record })
        };
        self.with(handle, turn).flatten()
    }

    /// Has an installed rule leave, unless it was changed since an entry showed it.
    pub(crate) fn leave(&self, shown: &Entry) -> Option<Entry> {
        let turn = |slot: &mut Slot| {
            let record = slot.record.clone().filter(|_| slot.is_installed_as(shown))?;
            slot.state = State::Leaving;
            Some(Entry { handle: shown.handle, record })
        };
        self.with(shown.handle, turn).flatten()
    }

    /// Whether somebody is deleting a rule.
    pub(crate) fn is_leaving(&self, handle: Handle) -> bool {
        self.with(handle, |slot| slot.state == State::Leaving).unwrap_or(false)
    }

    /// Assigns a rule to a flow.
    pub(crate) fn assign(&self, handle: Handle, flow: FlowId, installed_as: Generation) {
        self.with(handle, |slot| {
            if let Some(record) = &mut slot.record {
                (record.flow, record.installed_as) = (flow, installed_as);
            }
        });
    }

    /// The rule is installed at this place; its flow's earlier rules counted `carried`. If there is a guard, listings have
    /// shown `guard` of it.
    pub(crate) fn settle(&self, handle: Handle, place: Place, carried: Counted, guard: Option<Counted>) {
        let settled = self.dumps.last();
        self.with(handle, |slot| {
            slot.state = State::Installed;
            if let Some(record) = &mut slot.record {
                record.place = place;
                record.settled = settled;
                record.settlements = record.settlements.wrapping_add(1);
                record.carry(carried);
                record.guard = guard.map(|counted| Box::new(Guard { counted, seen: 0 }));
            }
        });
    }

    /// The rule is as it was before a change that failed.
    pub(crate) fn settle_as_before(&self, entry: &Entry) {
        let record = &entry.record;
        self.settle(entry.handle, record.place, record.carried(), record.guard());
    }

    /// The rule was deleted with its port; its flow has counted `carried` in all.
    pub(crate) fn park(&self, handle: Handle, carried: Counted) {
        self.with(handle, |slot| {
            slot.state = State::Parked;
            if let Some(record) = &mut slot.record {
                record.carry(carried);
                record.guard = None;
            }
        });
    }

    /// The rule is gone. Its handle is not reused. Of two threads that find a rule gone, the first one releases its priority.
    pub(crate) fn forget(&self, handle: Handle, place: Place) {
        if self.vacate_if(handle, |_| true) {
            self.release_priority(place.protocol);
        }
    }

    /// The same for a rule whose priority was not acquired.
    pub(crate) fn vacate(&self, handle: Handle) {
        self.vacate_if(handle, |_| true);
    }

    /// The same for an installed rule, unless it was changed since an entry showed it. Returns whether it was not.
    pub(crate) fn vacate_as(&self, shown: &Entry) -> bool {
        self.vacate_if(shown.handle, |slot| slot.is_installed_as(shown))
    }

    fn vacate_if(&self, handle: Handle, is_so: impl FnOnce(&Slot) -> bool) -> bool {
        let (shard, local) = split(index_of(handle));
        let mut guard = self.shards[shard].lock();
        let shard = &mut *guard;
        let Some(slot) = shard.slots.get_mut(local) else { return false };
        if slot.state == State::Vacant || slot.life != life_of(handle) || !is_so(slot) {
            return false;
        }
        (slot.state, slot.record) = (State::Vacant, None);
        shard.free.push_back((narrow(local), self.dumps.last()));
        true
    }

    /// Notes that a listing shows a rule. Returns what its flow counted, if the rule is installed and has not changed since
    /// the listing began. Returns nothing for a guard, which the kernel shows before its rule.
    pub(crate) fn observe(&self, id: &FilterId, dump: u64, shown: Counted) -> Option<Seen> {
        let (shard, local) = split(id.handle.checked_sub(1)?);
        let mut shard = self.shards[shard].lock();
        let slot = shard.slots.get_mut(local)?;
        let state = slot.state;
        let record = slot.record.as_mut().filter(|record| record.is_at(Place::of(id)))?;
        let is_settled = state == State::Installed && record.settled < dump;
        if record.place == Place::of(id) {
            record.seen = record.seen.max(dump);
            let Record { flow, installed_as, .. } = *record;
            let counted = record.carried().plus(record.guard().unwrap_or_default()).plus(shown);
            return is_settled.then_some(Seen { flow, installed_as, counted });
        }
        if let Some(guard) = record.guard.as_deref_mut() {
            guard.seen = guard.seen.max(dump);
            if is_settled {
                guard.counted = guard.counted.max(shown);
            }
        }
        None
    }

    /// The rule with a name, or the rule of the guard with this name.
    pub(crate) fn by_id(&self, id: &FilterId) -> Option<(Entry, State)> {
        let at = id.handle.checked_sub(1)?;
        let (shard, local) = split(at);
        let shard = self.shards[shard].lock();
        let slot = shard.slots.get(local)?;
        let record = slot.record.clone().filter(|record| record.is_at(Place::of(id)))?;
        Some((Entry { handle: handle_of(slot.life, at), record }, slot.state))
    }

    /// Rules that were installed before a listing began and that it did not show, or whose guards it did not show.
    pub(crate) fn unseen(&self, dump: u64) -> Vec<Entry> {
        self.select(|state, record| state == State::Installed && record.settled < dump && !record.is_seen(dump))
    }

    /// The rules that a predicate selects.
    pub(crate) fn select(&self, is_wanted: impl Fn(State, &Record) -> bool) -> Vec<Entry> {
        let mut found = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            let shard = shard.lock();
            for (local, slot) in shard.slots.iter().enumerate() {
                if let Some(record) = slot.record.as_ref().filter(|record| is_wanted(slot.state, record)) {
                    let handle = handle_of(slot.life, index(number, narrow(local)));
                    found.push(Entry { handle, record: record.clone() });
                }
            }
        }
        found
    }

    /// The number of slots in all shards.
    pub(crate) fn slot_count(&self) -> u32 {
        let longest = self.shards.iter().map(|shard| shard.lock().slots.len()).max().unwrap_or_default();
        narrow(longest * SHARDS)
    }

    /// The installed rules in some slots.
    pub(crate) fn installed_at(&self, places: Range<u32>) -> Vec<Handle> {
        let rule = |at| {
            let (shard, local) = split(at);
            let shard = self.shards[shard].lock();
            let slot = shard.slots.get(local).filter(|slot| slot.state == State::Installed)?;
            Some(handle_of(slot.life, at))
        };
        places.filter_map(rule).collect()
    }

    /// Adds an owner whose rules are about to be claimed. To be called before the first of them is entered.
    pub(crate) fn add_predecessor(&self, owner: AgentId) {
        self.predecessors.rcu(|known| known.iter().copied().chain([owner]).collect::<Vec<_>>());
    }

    /// Whether rules with the notes of this owner may be this agent's; their slots say which are.
    pub(crate) fn may_own(&self, owner: AgentId) -> bool {
        owner == self.agent || self.predecessors.load().contains(&owner)
    }

    /// Whether a rule with the notes of this owner is this agent's.
    pub(crate) fn owns(&self, owner: AgentId, id: &FilterId) -> bool {
        owner == self.agent || self.may_own(owner) && self.by_id(id).is_some()
    }

    /// Whether a rule has a name of ours and only some of its notes.
    pub(crate) fn is_damaged(&self, view: &FilterView<'_>) -> bool {
        let Ok(rule) = RuleView::new(view) else { return false };
        Label::read(rule.cookies).is_none()
            && Label::has_left_traces(self.agent, rule.cookies)
            && self.by_id(&rule.id).is_some()
    }

    /// Whether a rule has all or some of our notes.
    pub(crate) fn has_traces_of_ours(&self, found: &Filter) -> bool {
        let notes = Label::notes(&found.flower);
        Label::read(notes).is_some_and(|label| self.owns(label.agent, &found.id))
            || Label::has_left_traces(self.agent, notes)
    }

    /// The tc priority for one more rule. Only rare protocols take a lock.
    pub(crate) fn acquire_priority(&self, priority: Priority, protocol: u16) -> Result<u16, Refusal> {
        match Priorities::fixed(priority, protocol) {
            Some(fixed) => Ok(fixed),
            None => self.priorities.lock().acquire(priority, protocol),
        }
    }

    /// Counts an existing rule. Returns whether it can be ours.
    pub(crate) fn adopt_priority(&self, place: Place) -> bool {
        self.priorities.lock().adopt(place.priority, place.protocol).is_ok()
    }

    /// Reserves the place of somebody else's rule, which rules of other protocols cannot have while this agent runs.
    pub(crate) fn note_priority(&self, priority: u16, protocol: u16) {
        if Priorities::fixed(Priority::default(), protocol).is_none() {
            // A rule at no place of ours is in nobody's way.
            let _ = self.priorities.lock().adopt(priority, protocol);
        }
    }

    /// Releases the priority of a rule that is gone.
    pub(crate) fn release_priority(&self, protocol: u16) {
        if Priorities::fixed(Priority::default(), protocol).is_none() {
            self.priorities.lock().release(protocol);
        }
    }

    /// If somebody else is deleting a rule, has its removal completed when that is done, and returns true.
    pub(crate) fn defer_removal(&self, handle: Handle, change: &Change, later: &Arc<LateCompletions>) -> bool {
        self.removals.wait(handle, change, later, || self.is_leaving(handle))
    }

    /// A rule is deleted from the kernel, and parked or forgotten: completes its pending removal.
    pub(crate) fn removal_done(&self, handle: Handle) {
        let Some(PendingRemoval { flow, generation, later }) = self.removals.take(handle) else { return };
        let parked = self.transition(handle, &[State::Parked], State::Leaving);
        let last = parked.map(|entry| {
            self.forget(handle, entry.record.place);
            entry.record.carried().total()
        });
        later.push(Completion { flow, generation, result: Ok(Outcome::Removed { last }) });
    }

    fn with<T>(&self, handle: Handle, act: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let (shard, local) = split(index_of(handle));
        let mut shard = self.shards[shard].lock();
        let slot = shard.slots.get_mut(local)?;
        (slot.state != State::Vacant && slot.life == life_of(handle)).then(|| act(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::record::filter_id;
    use super::*;
    use crate::wire::filter::Hook;
    use crate::wire::statistics::Count;

    /// The place of flows of the lowest priority.
    const PLACE: Place = Place { hook: Hook::Ingress { interface: 3 }, chain: 0, priority: 61_004, protocol: 0x0800 };

    fn record(slot: u32) -> Record {
        Record::new(FlowId { slot, incarnation: 0 }, Generation(1), PLACE)
    }

    /// A rule in a certain shard.
    fn arrive(ledger: &Ledger, part: usize, slot: u32) -> Handle {
        ledger.insert(&mut ShardCursor(part.wrapping_sub(1)), record(slot))
    }

    fn count(packets: u64) -> Counted {
        Counted { software: Count { packets, bytes: packets * 100 }, ..Counted::default() }
    }

    #[test]
    fn a_rule_has_a_name_in_the_kernel_that_no_other_has() {
        let ledger = Ledger::new(AgentId(1));
        let mut turns = [0, 1].map(ShardCursor::new);
        let mut name = |number: usize| filter_id(PLACE, ledger.insert(&mut turns[number % 2], record(0))).handle;
        let mut names: Vec<_> = (0..20 * SHARDS).map(&mut name).collect();
        names.sort_unstable();
        let dense: Vec<_> = (1..=narrow(20 * SHARDS)).collect();
        assert_eq!(names, dense, "and no number between them is left out");
    }

    #[test]
    fn a_slot_is_given_again_under_another_handle_and_only_after_the_listings_that_saw_its_rule() {
        let ledger = Ledger::new(AgentId(1));
        let first = arrive(&ledger, 0, 1);
        ledger.settle(first, PLACE, Counted::default(), None);
        let dump = ledger.dumps.begin();
        ledger.vacate(first);
        let during = arrive(&ledger, 0, 2);
        assert_ne!(index_of(during), index_of(first), "the listing may still show the old rule");
        drop(dump);
        let after = arrive(&ledger, 0, 3);
        assert_eq!(index_of(after), index_of(first));
        assert_ne!(after, first);
        assert!(ledger.find(first).is_none() && ledger.transition(first, &[State::Arriving], State::Leaving).is_none());
    }

    #[test]
    fn a_listing_counts_only_for_rules_that_were_as_they_are_before_it_began() {
        let ledger = Ledger::new(AgentId(1));
        let handle = arrive(&ledger, 0, 1);
        let id = filter_id(PLACE, handle);
        let early = ledger.dumps.begin();
        ledger.settle(handle, PLACE, Counted::default(), None);
        assert!(ledger.observe(&id, early.number(), count(1)).is_none());
        assert!(ledger.unseen(early.number()).is_empty(), "it came after the listing began");
        let late = ledger.dumps.begin();
        assert_eq!(ledger.unseen(late.number()).len(), 1);
        assert_eq!(ledger.observe(&id, late.number(), count(1)).unwrap().flow.slot, 1);
        assert!(ledger.unseen(late.number()).is_empty());
        ledger.transition(handle, &[State::Installed], State::Changing).unwrap();
        let replaced = ledger.observe(&id, late.number(), count(1));
        assert!(replaced.is_none(), "what is being replaced starts from zero at a moment unknown");
        ledger.settle(handle, PLACE, count(5), None);
        assert!(ledger.observe(&id, late.number(), count(1)).is_none());
        let later = ledger.dumps.begin();
        assert_eq!(ledger.observe(&id, later.number(), count(1)).unwrap().counted, count(6));
    }

    #[test]
    fn of_two_listings_at_a_time_neither_misses_what_the_other_one_has_shown() {
        let ledger = Ledger::new(AgentId(1));
        let rules = [1, 2].map(|slot| {
            let handle = arrive(&ledger, 0, slot);
            ledger.settle(handle, PLACE, Counted::default(), Some(Counted::default()));
            [PLACE.in_front().unwrap(), PLACE].map(|place| filter_id(place, handle))
        });
        let listings = [ledger.dumps.begin(), ledger.dumps.begin()];
        for (listing, rule) in [(0, 0), (1, 0), (1, 1), (0, 1)] {
            for id in rules[rule] {
                ledger.observe(&id, listings[listing].number(), count(1));
            }
        }
        assert!(listings.iter().all(|listing| ledger.unseen(listing.number()).is_empty()));
    }

    #[test]
    fn a_rule_that_was_changed_meanwhile_is_not_the_one_that_was_missed() {
        let ledger = Ledger::new(AgentId(1));
        let handle = arrive(&ledger, 0, 1);
        ledger.settle(handle, PLACE, Counted::default(), None);
        // To the device that has come in place of the port's old one, or put in again where it was.
        for place in [Place { hook: Hook::Ingress { interface: 4 }, ..PLACE }, PLACE] {
            let missed = ledger.unseen(ledger.dumps.begin().number()).pop().unwrap();
            ledger.transition(handle, &[State::Installed], State::Changing).unwrap();
            assert!(ledger.leave(&missed).is_none() && !ledger.vacate_as(&missed), "a worker is at it");
            ledger.settle(handle, place, Counted::default(), None);
            assert!(ledger.leave(&missed).is_none() && !ledger.vacate_as(&missed), "it is there");
        }
        let shown = ledger.find(handle).unwrap();
        assert_eq!(ledger.leave(&shown).unwrap().record.place, PLACE);
        ledger.settle(handle, PLACE, Counted::default(), None);
        assert!(ledger.vacate_as(&ledger.find(handle).unwrap()) && ledger.find(handle).is_none());
    }

    #[test]
    fn a_flow_counts_what_its_guard_does_and_never_less_than_before() {
        let ledger = Ledger::new(AgentId(1));
        let handle = arrive(&ledger, 0, 1);
        let [rule, guard] = [PLACE, PLACE.in_front().unwrap()].map(|place| filter_id(place, handle));
        ledger.settle(handle, PLACE, count(100), Some(Counted::default()));
        let counted = |shown_by_guard: Option<u64>| {
            let dump = ledger.dumps.begin();
            if let Some(packets) = shown_by_guard {
                assert!(ledger.observe(&guard, dump.number(), count(packets)).is_none(), "it is no rule of its own");
            }
            let seen = ledger.observe(&rule, dump.number(), count(10)).unwrap();
            (seen.counted.software.packets, ledger.unseen(dump.number()).len())
        };
        assert_eq!(counted(Some(3)), (113, 0));
        assert_eq!(counted(None), (113, 1), "what listings showed is kept, and that the guard is missing is known");
        assert_eq!(counted(Some(4)), (114, 0));
        // Another guard, which counts from zero.
        ledger.settle(handle, PLACE, count(104), Some(Counted::default()));
        assert_eq!(counted(Some(1)), (115, 0));
        ledger.settle(handle, PLACE, count(105), None);
        assert_eq!(counted(Some(9)), (115, 0), "it is nobody's any more");
    }

    #[test]
    fn a_guard_is_found_by_its_name_as_that_which_it_guards() {
        let ledger = Ledger::new(AgentId(1));
        let handle = arrive(&ledger, 0, 1);
        let guard = filter_id(PLACE.in_front().unwrap(), handle);
        ledger.settle(handle, PLACE, Counted::default(), None);
        assert!(ledger.by_id(&guard).is_none());
        ledger.settle(handle, PLACE, Counted::default(), Some(Counted::default()));
        let (entry, state) = ledger.by_id(&guard).unwrap();
        assert_eq!((entry.handle, state, entry.guard_id()), (handle, State::Installed, Some(guard)));
        assert!(entry.is_at(PLACE.hook, guard.priority) && entry.is_at(PLACE.hook, PLACE.priority));
        assert!(!entry.is_at(PLACE.hook, guard.priority + 1));
        ledger.park(handle, count(7));
        assert!(ledger.by_id(&guard).is_none(), "it went with the port");
    }

    #[test]
    fn a_rule_that_two_find_gone_gives_its_priority_back_once() {
        const ODD: u16 = 0x9000;
        let ledger = Ledger::new(AgentId(1));
        let place = |priority| Place { priority, protocol: ODD, ..PLACE };
        let [own, other] = [1, 2].map(|slot| {
            let place = place(ledger.acquire_priority(Priority::default(), ODD).unwrap());
            let flow = FlowId { slot, incarnation: 0 };
            ledger.insert(&mut ShardCursor::new(0), Record::new(flow, Generation(1), place))
        });
        let at = ledger.find(own).unwrap().record.place;
        // A flush, and the worker whose deletion came too late.
        (0..2).for_each(|_| ledger.forget(own, at));
        assert!(ledger.find(other).is_some());
        let alone = |protocol| Priorities::default().acquire(Priority::default(), protocol);
        let rival = (ODD + 1..).find(|protocol| alone(*protocol) == Ok(at.priority)).unwrap();
        let found = ledger.acquire_priority(Priority::default(), rival).unwrap();
        assert_ne!(found, at.priority, "the other rule has it");
    }

    #[test]
    fn a_rule_elsewhere_with_the_same_number_is_another_one() {
        let ledger = Ledger::new(AgentId(1));
        let handle = arrive(&ledger, 0, 1);
        ledger.settle(handle, PLACE, Counted::default(), None);
        let dump = ledger.dumps.begin();
        let id = filter_id(Place { chain: 1, ..PLACE }, handle);
        assert!(ledger.observe(&id, dump.number(), count(1)).is_none() && ledger.by_id(&id).is_none());
    }

    #[test]
    fn rules_of_an_earlier_run_keep_their_names_and_new_ones_get_others() {
        let ledger = Ledger::new(AgentId(1));
        let id = FilterId { hook: PLACE.hook, chain: 0, priority: PLACE.priority, protocol: 0x0800, handle: 130 };
        let adopted = ledger.adopt(&id, record(1)).unwrap();
        assert_eq!(filter_id(PLACE, adopted), id);
        assert!(ledger.adopt(&id, record(2)).is_none(), "there is one already");
        assert!(ledger.adopt(&FilterId { handle: u32::MAX, ..id }, record(2)).is_none());
        ledger.finish_adoption();
        let names: Vec<_> = (0..4).map(|_| filter_id(PLACE, arrive(&ledger, 1, 3)).handle).collect();
        assert_eq!(names, [2, 66, 194, 258], "those between, and then those behind");
    }
}
