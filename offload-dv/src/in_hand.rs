//! What the thread of the device has of a worker's changes, so that each is completed even if that thread does not come back.

use std::collections::{BTreeMap, HashSet};

use sluice_flow::backend::Completion;
use sluice_flow::refusal::Refusal;
use sluice_flow::{FlowId, Generation};

/// Batches that are not completed.
#[derive(Default)]
pub(crate) struct InHand {
    /// By their numbers.
    batches: BTreeMap<u64, Unfinished>,
    /// The number of the last batch.
    last: u64,
}

struct Unfinished {
    changes: Vec<(FlowId, Generation)>,
    /// Of those, the flows of the changes that are completed, which most batches are all at once.
    completed: Vec<FlowId>,
}

impl InHand {
    /// A batch is handed over. Returns its number.
    pub(crate) fn begin(&mut self, changes: Vec<(FlowId, Generation)>) -> u64 {
        self.last += 1;
        self.batches.insert(self.last, Unfinished { changes, completed: Vec::new() });
        self.last
    }

    /// A batch was not handed over. Returns its changes.
    pub(crate) fn cancel(&mut self, batch: u64) -> Vec<(FlowId, Generation)> {
        self.batches.remove(&batch).map(|batch| batch.changes).unwrap_or_default()
    }

    /// Changes of a batch are completed. Returns whether somebody waits for that, which nobody does once the batch was given up.
    pub(crate) fn complete(&mut self, batch: u64, done: &[Completion]) -> bool {
        let Some(unfinished) = self.batches.get_mut(&batch) else { return false };
        if unfinished.completed.len() + done.len() >= unfinished.changes.len() {
            self.batches.remove(&batch);
        } else {
            unfinished.completed.extend(done.iter().map(|completion| completion.flow));
        }
        true
    }

    /// Gives up all batches, and completes what is left of them.
    pub(crate) fn give_up(&mut self, refusal: &Refusal) -> Vec<Completion> {
        let rest = |Unfinished { changes, completed }: Unfinished| {
            let completed: HashSet<_> = completed.into_iter().collect();
            changes.into_iter().filter(move |(flow, _)| !completed.contains(flow))
        };
        let refused = |(flow, generation)| Completion { flow, generation, result: Err(refusal.clone()) };
        std::mem::take(&mut self.batches).into_values().flat_map(rest).map(refused).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Refusal {
        Refusal::Device { reason: "it is dead".into() }
    }

    fn changes(slots: std::ops::Range<u32>) -> Vec<(FlowId, Generation)> {
        slots.map(|slot| (FlowId { slot, incarnation: 1 }, Generation(7))).collect()
    }

    fn completions(slots: std::ops::Range<u32>) -> Vec<Completion> {
        let refused = |(flow, generation)| Completion { flow, generation, result: Err(refusal()) };
        changes(slots).into_iter().map(refused).collect()
    }

    fn slots(done: &[Completion]) -> Vec<u32> {
        done.iter().map(|completion| completion.flow.slot).collect()
    }

    #[test]
    fn each_change_is_completed_once_whether_the_device_does_it_or_not() {
        let mut in_hand = InHand::default();
        let [whole, part, none] = [0..3, 3..6, 6..8].map(|slots| in_hand.begin(changes(slots)));
        assert!(in_hand.complete(whole, &completions(0..3)));
        assert!(in_hand.complete(part, &completions(4..5)));
        let given_up = in_hand.give_up(&refusal());
        assert_eq!(slots(&given_up), [3, 5, 6, 7]);
        assert!(
            given_up
                .iter()
                .all(|completion| completion.generation == Generation(7) && completion.result == Err(refusal()))
        );
        assert!(
            !in_hand.complete(part, &completions(3..4)) && !in_hand.complete(none, &completions(6..8)),
            "it comes too late"
        );
        assert_eq!(slots(&in_hand.give_up(&refusal())), [0; 0]);
    }

    #[test]
    fn what_is_not_handed_over_is_in_nobodys_hand() {
        let mut in_hand = InHand::default();
        let batch = in_hand.begin(changes(0..2));
        assert_eq!(in_hand.cancel(batch), changes(0..2));
        assert_eq!(slots(&in_hand.give_up(&refusal())), [0; 0]);
    }
}
