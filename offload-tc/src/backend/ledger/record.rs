//! What the ledger has of a rule.

use sluice_flow::backend::{Handle, LostRule};
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::id::{FlowId, Generation};

use crate::backend::counted::Counted;
use crate::priorities::Priorities;
use crate::wire::filter::{FilterId, Hook};

/// The flow of a rule that is not claimed yet.
pub(crate) const UNCLAIMED: FlowId = FlowId { slot: u32::MAX, incarnation: u32::MAX };

/// Where a rule is. Its handle follows from the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) hook: Hook,
    pub(crate) chain: u32,
    pub(crate) priority: u16,
    pub(crate) protocol: u16,
}

impl Place {
    /// The place of the rule with a name.
    pub(crate) const fn of(id: &FilterId) -> Self {
        Self { hook: id.hook, chain: id.chain, priority: id.priority, protocol: id.protocol }
    }

    /// The place of the guard of a rule at this place, if it can have one.
    pub(crate) fn in_front(self) -> Option<Self> {
        Some(Self { priority: Priorities::in_front_of(self.priority, self.protocol)?, ..self })
    }
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no rule.
    #[default]
    Vacant,
    /// A worker is installing it.
    Arriving,
    /// It is installed.
    Installed,
    /// A worker is replacing it.
    Changing,
    /// Somebody is deleting it.
    Leaving,
    /// It was deleted with its port, and its flow stays.
    Parked,
}

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) flow: FlowId,
    pub(crate) installed_as: Generation,
    pub(crate) place: Place,
    /// What earlier rules of the flow counted.
    carried: Option<Box<Counted>>,
    pub(super) guard: Option<Box<Guard>>,
    /// The last listing that began before the rule was installed as it is.
    pub(super) settled: u64,
    /// How often it has been settled, by which a rule is known from what it was before a change.
    pub(super) settlements: u32,
    /// The last listing that showed it.
    pub(super) seen: u64,
}

/// An installed guard.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    /// What listings have shown.
    pub(super) counted: Counted,
    /// The last listing that showed it.
    pub(super) seen: u64,
}

impl Record {
    pub(crate) const fn new(flow: FlowId, installed_as: Generation, place: Place) -> Self {
        Self { flow, installed_as, place, carried: None, guard: None, settled: 0, settlements: 0, seen: 0 }
    }

    pub(crate) fn carried(&self) -> Counted {
        self.carried.as_deref().copied().unwrap_or_default()
    }

    /// What listings have shown of the guard; `None` if there is no guard.
    pub(crate) fn guard(&self) -> Option<Counted> {
        self.guard.as_deref().map(|guard| guard.counted)
    }

    pub(super) fn carry(&mut self, carried: Counted) {
        self.carried = (carried != Counted::default()).then(|| Box::new(carried));
    }

    /// Whether a listing, or one that began later, has shown the rule and its guard.
    pub(super) fn is_seen(&self, dump: u64) -> bool {
        self.seen >= dump && self.guard.as_deref().is_none_or(|guard| guard.seen >= dump)
    }

    /// Whether the rule or its guard is at a place.
    pub(super) fn is_at(&self, place: Place) -> bool {
        self.place == place || self.guard.is_some() && self.place.in_front() == Some(place)
    }
}

/// A rule in the ledger, with its handle.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) handle: Handle,
    pub(crate) record: Record,
}

impl Entry {
    /// The rule's name in the kernel.
    pub(crate) fn id(&self) -> FilterId {
        filter_id(self.record.place, self.handle)
    }

    /// The name of its guard, if it has one.
    pub(crate) fn guard_id(&self) -> Option<FilterId> {
        self.record.guard.as_ref()?;
        Some(filter_id(self.record.place.in_front()?, self.handle))
    }

    /// Whether the rule or its guard is at a hook, at a priority.
    pub(crate) fn is_at(&self, hook: Hook, priority: u16) -> bool {
        let priorities = [Some(self.id()), self.guard_id()].map(|id| id.map(|id| id.priority));
        self.record.place.hook == hook && priorities.contains(&Some(priority))
    }

    pub(crate) const fn lost(&self) -> LostRule {
        LostRule { flow: self.record.flow, handle: self.handle }
    }
}

/// What a listing shows of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) flow: FlowId,
    pub(crate) installed_as: Generation,
    /// By the rule, its guard and earlier rules.
    pub(crate) counted: Counted,
}

/// The counters of adopted rules, which so need not be listed again at once.
pub(crate) struct FirstReadings {
    pub(crate) readings: Vec<Reading>,
    pub(crate) sampled: Sampled,
}

/// The name of a rule in the kernel.
pub(crate) fn filter_id(place: Place, handle: Handle) -> FilterId {
    let Place { hook, chain, priority, protocol } = place;
    FilterId { hook, chain, priority, protocol, handle: index_of(handle) + 1 }
}

pub(super) fn handle_of(life: u32, index: u32) -> Handle {
    Handle(u64::from(life) << 32 | u64::from(index))
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
pub(super) const fn index_of(handle: Handle) -> u32 {
    handle.0 as u32
}

pub(super) const fn life_of(handle: Handle) -> u32 {
    (handle.0 >> 32) as u32
}
