//! Removals of rules that somebody else is deleting: with their port, or because the kernel lost their guard. Whoever
//! deletes the rule completes the removal, and the worker goes on with other rules meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;
use sluice_flow::backend::{Change, Completion, Handle};
use sluice_flow::id::{FlowId, Generation};

/// Pending removals, by rule.
#[derive(Default)]
pub(crate) struct PendingRemovals(Mutex<HashMap<Handle, PendingRemoval>>);

/// A pending removal.
pub(crate) struct PendingRemoval {
    pub(crate) flow: FlowId,
    pub(crate) generation: Generation,
    pub(crate) later: Arc<LateCompletions>,
}

/// Completions for a worker, which are there when it is woken.
#[derive(Default)]
pub(crate) struct LateCompletions {
    done: Mutex<Vec<Completion>>,
    /// Set once by the worker, before it submits anything.
    waker: OnceLock<Waker>,
}

impl LateCompletions {
    pub(crate) fn wake_with(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    /// Appends all completions to `done`.
    pub(crate) fn take(&self, done: &mut Vec<Completion>) {
        done.append(&mut self.done.lock());
    }

    pub(crate) fn push(&self, completion: Completion) {
        self.done.lock().push(completion);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

impl PendingRemovals {
    /// Has a removal completed later if somebody is still deleting the rule, and returns whether somebody is.
    pub(crate) fn wait(
        &self,
        handle: Handle,
        change: &Change,
        later: &Arc<LateCompletions>,
        is_leaving: impl Fn() -> bool,
    ) -> bool {
        let mut waiting = self.0.lock();
        // Whoever deletes the rule looks here afterwards.
        let is_leaving = is_leaving();
        if is_leaving {
            let Change { flow, generation, .. } = *change;
            waiting.insert(handle, PendingRemoval { flow, generation, later: Arc::clone(later) });
        }
        is_leaving
    }

    pub(crate) fn take(&self, handle: Handle) -> Option<PendingRemoval> {
        self.0.lock().remove(&handle)
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::backend::Operation;

    use super::*;

    #[test]
    fn a_removal_waits_for_a_rule_that_is_on_its_way_out_and_for_no_other() {
        let (removals, later) = (PendingRemovals::default(), Arc::default());
        let handle = Handle(7);
        let flow = FlowId { slot: 1, incarnation: 2 };
        let change = Change { flow, generation: Generation(3), operation: Operation::Remove(handle) };
        assert!(!removals.wait(handle, &change, &later, || false), "it was out before");
        assert!(removals.take(handle).is_none());
        assert!(removals.wait(handle, &change, &later, || true));
        let waiting = removals.take(handle).unwrap();
        assert_eq!((waiting.flow, waiting.generation), (flow, Generation(3)));
        assert!(removals.take(handle).is_none(), "it is completed once");
    }

    #[test]
    fn whoever_is_first_the_removal_is_completed() {
        // The deleting thread changes the state first, and then looks for a pending removal.
        for _ in 0..200 {
            let removals = PendingRemovals::default();
            let is_leaving = std::sync::atomic::AtomicBool::new(true);
            let later = Arc::default();
            let operation = Operation::Remove(Handle(7));
            let change = Change { flow: FlowId { slot: 1, incarnation: 2 }, generation: Generation(3), operation };
            let (waits, was_told) = std::thread::scope(|scope| {
                let out = scope.spawn(|| {
                    is_leaving.store(false, std::sync::atomic::Ordering::SeqCst);
                    removals.take(Handle(7)).is_some()
                });
                let look = || is_leaving.load(std::sync::atomic::Ordering::SeqCst);
                (removals.wait(Handle(7), &change, &later, look), out.join().unwrap())
            });
            assert_eq!(waits, was_told, "it waits if, and only if, it is told");
        }
    }
}
