//! How many flows are in which state: counted as they move, read in constant time.

use crossbeam_utils::CachePadded;

use super::state::Standing;
use super::sync::{AtomicUsize, Ordering};
use crate::backend::Placement;
use crate::origin::Origin;
use crate::refusal::Refusal;
use crate::table::FlowState;

/// Counts of flows. What callers change lies apart from what workers change, so that neither waits for the other's cache line.
#[derive(Default)]
pub struct Census {
    /// All flows.
    live: CachePadded<AtomicUsize>,
    /// Changed by both.
    unsettled: CachePadded<AtomicUsize>,
    /// Changed by workers, and by who changes a flow that is being tried again.
    retries: CachePadded<AtomicUsize>,
    /// Flows by how far they have come; of those that are pending, which is what a new flow is, as many as `live` has besides.
    standings: CachePadded<[AtomicUsize; Placement::ALL.len() + 2]>,
    /// Flows that are wanted, of each source.
    wanted: CachePadded<[AtomicUsize; Origin::SOURCES.len()]>,
    flow_limit: AtomicUsize,
    unsettled_limit: AtomicUsize,
}

impl Census {
    pub(super) fn new(flow_limit: usize, unsettled_limit: usize) -> Self {
        Self { flow_limit: flow_limit.into(), unsettled_limit: unsettled_limit.into(), ..Self::default() }
    }

    /// Flows in a state.
    pub fn in_state(&self, state: FlowState) -> usize {
        match state {
            FlowState::Pending => {
                let others = FlowState::ALL.iter().filter(|other| **other != FlowState::Pending);
                self.live().saturating_sub(others.map(|other| self.in_state(*other)).sum())
            }
            FlowState::Offloaded => self.placed(Placement::Hardware) + self.placed(Placement::Both),
            FlowState::Partial => self.placed(Placement::Software) + self.placed(Placement::Unknown),
            FlowState::Refused => self.standing(Standing::Refused),
            FlowState::Deleting => self.standing(Standing::Deleting),
        }
    }

    /// Flows whose rule is there as wanted, in this place.
    pub fn placed(&self, placement: Placement) -> usize {
        self.standing(Standing::Placed(placement))
    }

    fn standing(&self, standing: Standing) -> usize {
        index(standing).map_or(0, |index| self.standings[index].load(Ordering::Relaxed))
    }

    /// Flows that a source wants, those that are refused included. Nobody counts the flows of others.
    pub fn wanted_by(&self, source: Origin) -> Option<usize> {
        Some(self.of_source(source)?.load(Ordering::Relaxed))
    }

    fn of_source(&self, source: Origin) -> Option<&AtomicUsize> {
        self.wanted.get(Origin::SOURCES.iter().position(|known| *known == source)?)
    }

    /// Flows that a log [keeps](Origin::is_logged). Those of sources that are going are among them.
    pub fn logged(&self) -> usize {
        let of_sources: usize = self.wanted.iter().map(|wanted| wanted.load(Ordering::Relaxed)).sum();
        self.live().saturating_sub(of_sources)
    }

    /// All flows, those that are going included.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Flows with an accepted change that has no outcome yet.
    pub fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Relaxed)
    }

    /// Whether one more flow may be unsettled; by the time of the answer it may be otherwise.
    pub fn has_room(&self) -> bool {
        self.unsettled() < self.unsettled_limit.load(Ordering::Relaxed)
    }

    /// Refused flows that are being tried again. None of them is [unsettled](Self::unsettled): nobody waits for them, and they
    /// take no room from what is newly wanted.
    pub fn retries(&self) -> usize {
        self.retries.load(Ordering::Relaxed)
    }

    /// How many flows there may be.
    pub fn flow_limit(&self) -> usize {
        self.flow_limit.load(Ordering::Relaxed)
    }

    /// Changes how many flows there may be. Flows above it stay until the revalidator evicts them.
    pub fn set_flow_limit(&self, limit: usize) {
        self.flow_limit.store(limit, Ordering::Relaxed);
    }

    /// Changes how many flows may be unsettled.
    pub fn set_unsettled_limit(&self, limit: usize) {
        self.unsettled_limit.store(limit, Ordering::Relaxed);
    }

    /// Takes a place for one more flow.
    pub(super) fn admit_flow(&self) -> Result<(), Refusal> {
        let limit = self.flow_limit();
        take_below(&self.live, limit)
            .map_err(|()| Refusal::Limit { what: "as many flows as there may be".into(), limit: limit as u64 })
    }

    /// The same for a flow that was accepted in an earlier run.
    pub(super) fn force_flow(&self) {
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dismiss_flow(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// One more flow is wanted by its owner.
    pub(super) fn want(&self, owner: Origin) {
        self.of_source(owner).into_iter().for_each(|wanted| _ = wanted.fetch_add(1, Ordering::Relaxed));
    }

    /// A flow is no longer wanted by its owner.
    pub(super) fn unwant(&self, owner: Origin) {
        self.of_source(owner).into_iter().for_each(|wanted| _ = wanted.fetch_sub(1, Ordering::Relaxed));
    }

    /// Takes a place for one more unsettled flow.
    pub(super) fn admit_change(&self) -> Result<(), Refusal> {
        let limit = self.unsettled_limit.load(Ordering::Relaxed);
        take_below(&self.unsettled, limit)
            .map_err(|()| Refusal::Busy { reason: format!("{limit} flows wait for the device already").into() })
    }

    /// The same for what may not be turned away: deletions.
    pub(super) fn force_change(&self) {
        self.unsettled.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn settle(&self) {
        self.unsettled.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn begin_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_retry(&self) {
        self.retries.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn enter(&self, standing: Standing) {
        if let Some(index) = index(standing) {
            self.standings[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn leave(&self, standing: Standing) {
        if let Some(index) = index(standing) {
            self.standings[index].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Where flows are counted that have come so far.
const fn index(standing: Standing) -> Option<usize> {
    match standing {
        Standing::Pending => None,
        Standing::Placed(placement) => Some(placement as usize),
        Standing::Refused => Some(Placement::ALL.len()),
        Standing::Deleting => Some(Placement::ALL.len() + 1),
    }
}

fn take_below(count: &AtomicUsize, limit: usize) -> Result<(), ()> {
    if count.fetch_add(1, Ordering::Relaxed) < limit {
        return Ok(());
    }
    count.fetch_sub(1, Ordering::Relaxed);
    Err(())
}
