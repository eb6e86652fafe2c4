//! What the ledger has of a rule.

use sluice_flow::backend::{Handle, LostRule};
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::id::{FlowId, Generation};

use crate::backend::counted::Counted;
use crate::priorities::Priorities;
use crate::wire::filter::{FilterId, Hook};

/// Whose a rule is until it is claimed.
pub(crate) const NOBODY: FlowId = FlowId { slot: u32::MAX, incarnation: u32::MAX };

/// Where a rule is; its handle follows from the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) hook: Hook,
    pub(crate) chain: u32,
    pub(crate) priority: u16,
    pub(crate) protocol: u16,
}

impl Place {
    /// Of a rule with a name.
    pub(crate) const fn of(id: &FilterId) -> Self {
        Self { hook: id.hook, chain: id.chain, priority: id.priority, protocol: id.protocol }
    }

    /// Of the guard of a rule here, if it can have one.
    pub(crate) fn in_front(self) -> Option<Self> {
        Some(Self { priority: Priorities::in_front_of(self.priority, self.protocol)?, ..self })
    }
}

/// Where in its life a rule is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// There is none.
    #[default]
    Vacant,
    /// A worker is putting it in.
    Arriving,
    /// It is there.
    Installed,
    /// A worker is putting another one in its place.
    Changing,
    /// Somebody is taking it out.
    Leaving,
    /// It was taken out with its port, while its flow stays.
    Parked,
}

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) flow: FlowId,
    pub(crate) installed_as: Generation,
    pub(crate) place: Place,
    /// What the rules of the flow counted before the one that is there now.
    carried: Option<Box<Counted>>,
    pub(super) guard: Option<Box<Guard>>,
    /// The last listing that began before the rule was as it is now.
    pub(super) settled: u64,
    /// The last listing that it was seen in.
    pub(super) seen: u64,
}

/// The guard that is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    /// As far as listings have shown.
    pub(super) counted: Counted,
    /// The last listing that it was seen in.
    pub(super) seen: u64,
}

impl Record {
    pub(crate) const fn new(flow: FlowId, installed_as: Generation, place: Place) -> Self {
        Self { flow, installed_as, place, carried: None, guard: None, settled: 0, seen: 0 }
    }

    pub(crate) fn carried(&self) -> Counted {
        self.carried.as_deref().copied().unwrap_or_default()
    }

    /// What listings have shown of the guard; `None` if there is none.
    pub(crate) fn guard(&self) -> Option<Counted> {
        self.guard.as_deref().map(|guard| guard.counted)
    }

    pub(super) fn carry(&mut self, carried: Counted) {
        self.carried = (carried != Counted::default()).then(|| Box::new(carried));
    }

    /// Whether a listing has shown all that there should be.
    pub(super) fn is_seen(&self, dump: u64) -> bool {
        self.seen == dump && self.guard.as_deref().is_none_or(|guard| guard.seen == dump)
    }

    /// Whether one of its rules is at a place.
    pub(super) fn is_at(&self, place: Place) -> bool {
        self.place == place || self.guard.is_some() && self.place.in_front() == Some(place)
    }
}

/// A rule in the ledger, under its name.
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

    /// That of its guard, if it has one.
    pub(crate) fn guard_id(&self) -> Option<FilterId> {
        self.record.guard.as_ref()?;
        Some(filter_id(self.record.place.in_front()?, self.handle))
    }

    /// Whether one of its rules is at a hook, at a priority.
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
    /// By all its rules.
    pub(crate) counted: Counted,
}

/// The first readings of rules that were taken over, which need not be listed once more for them.
pub(crate) struct FirstReadings {
    pub(crate) readings: Vec<Reading>,
    pub(crate) sampled: Sampled,
}

/// The name in the kernel of a rule.
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
