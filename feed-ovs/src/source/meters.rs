//! The meters that an ovs-vswitchd hands over, on their way to the agent; and what they have counted, on its way back.

use std::collections::{BTreeMap, BTreeSet};

use sluice_flow::action::{Action, named_meters};
use sluice_flow::backend::MeterCounters;
use sluice_flow::meter::{Meter, MeterId};
use sluice_flow::source::{Intake, Standing};
use sluice_flow::{FlowState, Ufid};

use super::feedback::Feedback;

/// What such names begin with.
const LETTERS: u128 = u64::from_be_bytes(*b"SLUICEMT") as u128;

/// The meters of a datapath, as far as the agent has them.
#[derive(Default)]
pub(super) struct Meters {
    /// Those that the agent has taken on, with what they had counted before, once that is known.
    taken: BTreeMap<MeterId, Option<MeterCounters>>,
    /// Those that are gone, and that the device has as long as rules use them.
    leaving: BTreeSet<MeterId>,
}

/// What is told of a meter, under a name of its own.
#[derive(Clone, Copy)]
enum Told {
    Reached = 0,
    Dropped = 1,
}

impl Meters {
    /// None yet. Those that were there before leave, unless they are set again.
    pub(super) fn begin(intake: &dyn Intake) -> Self {
        Self { taken: BTreeMap::new(), leaving: intake.meters().into_iter().collect() }
    }

    /// Whether it is a meter of which is told under this name, and not a flow.
    pub(super) const fn are_told_of_by(name: Ufid) -> bool {
        name.0 >> 64 == LETTERS
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
                [Told::Reached, Told::Dropped].into_iter().for_each(|told| feedback.end(name(id, told)));
            }
            self.leave(id, intake);
        }
    }

    /// Whether a list of actions names meters, and all of them are here.
    pub(super) fn are_named_by(&self, actions: &[Action]) -> bool {
        let named = named_meters(actions);
        !named.is_empty() && named.iter().all(|id| self.taken.contains_key(id))
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
    let standing = |told, packets, bytes| {
        let state = FlowState::Offloaded;
        Standing { ufid: name(id, told), state, packets, bytes, idle: None, tcp_flags: 0 }
    };
    let since = |now: u64, before: u64| now.saturating_sub(before);
    let dropped_bytes = |counters: &MeterCounters| counters.dropped_bytes.unwrap_or_default();
    [
        standing(Told::Reached, since(counters.packets, before.packets), since(counters.bytes, before.bytes)),
        standing(
            Told::Dropped,
            since(counters.dropped_packets, before.dropped_packets),
            since(dropped_bytes(counters), dropped_bytes(before)),
        ),
    ]
}

/// The name under which it is told what a meter has counted, in the place of a UFID: the letters, the number, and which of the two counts.
fn name(id: MeterId, told: Told) -> Ufid {
    Ufid(LETTERS << 64 | u128::from(id.0) << 32 | told as u128)
}
