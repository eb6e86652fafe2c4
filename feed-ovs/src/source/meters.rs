//! The meters of an ovs-vswitchd on their way to the agent; and what they have counted, on its way back.

use std::collections::{BTreeMap, BTreeSet};

use sluice_feedback::MeterCount;
use sluice_flow::FlowState;
use sluice_flow::action::{Action, named_meters};
use sluice_flow::backend::MeterCounters;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::source::{Intake, Standing};

use super::feedback::Feedback;

/// The meters of a datapath, as far as the agent has them.
#[derive(Default)]
pub(super) struct Meters {
    /// Those that the agent has taken on, with what they had counted before, once that is known.
    taken: BTreeMap<MeterId, Option<MeterCounters>>,
    /// Those that are gone, and that the device has as long as rules use them.
    leaving: BTreeSet<MeterId>,
}

impl Meters {
    /// None yet. Those that were there before leave, unless they are set again.
    pub(super) fn begin(intake: &dyn Intake) -> Self {
        Self { taken: BTreeMap::new(), leaving: intake.meters().into_iter().collect() }
    }

    /// Those that were there before, as they were, until it is known what they are now.
    pub(super) fn resume(intake: &dyn Intake) -> Self {
        let taken = intake.meters().into_iter().map(|id| (id, intake.meter_counters(id))).collect();
        Self { taken, leaving: BTreeSet::new() }
    }

    /// Those that the agent has taken on.
    pub(super) fn taken(&self) -> impl Iterator<Item = MeterId> {
        self.taken.keys().copied()
    }

    /// Whether the agent has taken it on.
    pub(super) fn has(&self, id: MeterId) -> bool {
        self.taken.contains_key(&id)
    }

    /// Takes a meter, or another rate of one.
    pub(super) fn set(&mut self, meter: Meter, intake: &dyn Intake) {
        let id = meter.id;
        match intake.set_meter(meter) {
            Ok(()) => {
                let is_old = self.leaving.remove(&id);
                let before = || if is_old { intake.meter_counters(id) } else { Some(MeterCounters::default()) };
                self.taken.entry(id).or_insert_with(before);
            }
            Err(reason) => {
                tracing::warn!("flows with meter {id} are left to Open vSwitch: {reason}");
                self.taken.remove(&id);
                self.leave(id, intake);
            }
        }
    }

    /// Takes the end of a meter.
    pub(super) fn end(&mut self, id: MeterId, feedback: Option<&mut Feedback>, intake: &dyn Intake) {
        if self.taken.remove(&id).is_some() {
            if let Some(feedback) = feedback {
                MeterCount::ALL.into_iter().for_each(|count| feedback.end(count.name(id.0)));
            }
            self.leave(id, intake);
        }
    }

    /// Whether a list of actions names meters, and all of them are here.
    pub(super) fn are_named_by(&self, actions: &[Action]) -> bool {
        let named = named_meters(actions);
        !named.is_empty() && named.iter().all(|id| self.has(*id))
    }

    /// Tells what they have counted, and looks after those that leave.
    pub(super) fn tell(&mut self, mut feedback: Option<&mut Feedback>, intake: &dyn Intake) {
        self.leaving.retain(|id| !intake.remove_meter(*id));
        if self.taken.is_empty() {
            return;
        }
        let there: BTreeSet<_> = intake.meters().into_iter().collect();
        let lost: Vec<_> = self.taken.keys().filter(|id| !there.contains(id)).copied().collect();
        for id in lost {
            tracing::warn!("meter {id} is not Open vSwitch's any more, and flows with it are left to Open vSwitch");
            self.end(id, feedback.as_deref_mut(), intake);
        }
        let Some(feedback) = feedback else { return };
        for (id, before) in &mut self.taken {
            if let Some(counters) = intake.meter_counters(*id) {
                let before = before.get_or_insert_with(|| counters.clone());
                told(*id, &counters, before).iter().for_each(|standing| feedback.tell(standing));
            }
        }
    }

    fn leave(&mut self, id: MeterId, intake: &dyn Intake) {
        if !intake.remove_meter(id) {
            self.leaving.insert(id);
        }
    }
}

/// What a meter has counted since it was taken on, as the feedback tells it.
fn told(id: MeterId, counters: &MeterCounters, before: &MeterCounters) -> [Standing; 2] {
    let standing = |count: MeterCount, packets, bytes| {
        let state = FlowState::Offloaded;
        Standing { ufid: count.name(id.0), state, waits_for: None, packets, bytes, idle: None, tcp_flags: 0 }
    };
    let since = |now: u64, before: u64| now.saturating_sub(before);
    let dropped_bytes = |counters: &MeterCounters| counters.dropped_bytes.unwrap_or_default();
    [
        standing(MeterCount::Reached, since(counters.packets, before.packets), since(counters.bytes, before.bytes)),
        standing(
            MeterCount::Dropped,
            since(counters.dropped_packets, before.dropped_packets),
            since(dropped_bytes(counters), dropped_bytes(before)),
        ),
    ]
}
