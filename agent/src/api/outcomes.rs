//! The outcomes of a batch of operations, told in the order of the operations.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sluice_api::v1;
use sluice_api::v1::outcome::Result as OutcomeResult;
use sluice_flow::table::{Settlement, Waiter};
use sluice_flow::{Clock, FlowId};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::errors::of_refusal;
use super::writer::{count, placement};

/// Outcomes in one message at the most.
const OUTCOMES: usize = 1_024;

/// Outcomes that are worth a message, and how long the first one waits for the others.
const MANY: usize = 256;
const MOMENT: Duration = Duration::from_millis(1);

/// Nobody waits.
const NOBODY: usize = usize::MAX;

/// The operations of one batch that were accepted.
pub(super) struct Operations {
    ids: Vec<u64>,
    settled: Vec<OnceLock<Settlement>>,
    /// The operation whose outcome is waited for.
    awaited: AtomicUsize,
    is_there: Notify,
}

impl Operations {
    /// Operations by the names that their caller gave them. Those that are not accepted have no outcome.
    pub(super) fn new(ids: Vec<u64>) -> Arc<Self> {
        let settled = ids.iter().map(|_| OnceLock::new()).collect();
        Arc::new(Self { ids, settled, awaited: AtomicUsize::new(NOBODY), is_there: Notify::new() })
    }

    /// Waits for the outcome of the operation at a place.
    async fn wait(&self, place: usize) {
        loop {
            self.awaited.store(place, Ordering::Relaxed);
            // As one with that of `settled`: either this finds the outcome, or who brings it finds this.
            fence(Ordering::SeqCst);
            if self.settled[place].get().is_some() {
                self.awaited.store(NOBODY, Ordering::Relaxed);
                return;
            }
            self.is_there.notified().await;
        }
    }

    /// The outcomes from one of the accepted operations on, once there is one, and a moment later if there are more to come.
    pub(super) async fn outcomes(&self, accepted: &mut std::slice::Iter<'_, usize>, clock: &dyn Clock) -> v1::Outcomes {
        let mut outcomes = Vec::new();
        let rest = accepted.as_slice();
        if let Some(first) = rest.first() {
            self.wait(*first).await;
        }
        if let Some(last_of_many) = rest.get(MANY - 1).or(rest.last()) {
            // Whether that is in time or not, what is there by then is told.
            let _ = timeout(MOMENT, self.wait(*last_of_many)).await;
        }
        let now = clock.now();
        while let Some(place) = accepted.as_slice().first().copied().filter(|_| outcomes.len() < OUTCOMES) {
            let Some(settled) = self.settled[place].get() else { break };
            let result = match settled {
                Settlement::Installed(place) => OutcomeResult::Installed(placement(Some(*place)).into()),
                Settlement::Deleted(counters) => OutcomeResult::Deleted(count(*counters, now)),
                Settlement::Refused(refusal) => OutcomeResult::Refused(of_refusal(refusal)),
                Settlement::Superseded => OutcomeResult::Superseded(v1::Superseded {}),
            };
            outcomes.push(v1::Outcome { id: self.ids[place], result: Some(result) });
            accepted.next();
        }
        v1::Outcomes { outcomes }
    }
}

/// Each request has the number of its place.
impl Waiter for Operations {
    fn settled(&self, request: u32, _: FlowId, outcome: &Settlement) {
        let place = request as usize;
        // There is one outcome.
        let _ = self.settled[place].set(outcome.clone());
        fence(Ordering::SeqCst);
        if self.awaited.load(Ordering::Relaxed) == place {
            self.is_there.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::backend::Placement;
    use sluice_flow::time::ManualClock;

    use super::*;

    #[tokio::test]
    async fn outcomes_come_in_the_order_of_the_operations_whatever_comes_first() {
        let operations = Operations::new(vec![70, 71, 72]);
        let clock = ManualClock::default();
        // That at place 1 was not accepted.
        let accepted = [0, 2];
        let mut rest = accepted.iter();
        settle(&operations, 2);
        let told = {
            let outcomes = operations.outcomes(&mut rest, &clock);
            tokio::pin!(outcomes);
            assert!(ready_now(outcomes.as_mut()).await.is_none(), "the first is still to come");
            settle(&operations, 0);
            outcomes.await
        };
        assert_eq!(ids(&told), [70, 72]);
        assert!(rest.as_slice().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_waits_a_moment_for_others_and_no_longer() {
        let operations = Operations::new(vec![70, 71, 72]);
        let clock = ManualClock::default();
        let accepted = [0, 1, 2];
        let mut rest = accepted.iter();
        settle(&operations, 0);
        let told = {
            let outcomes = operations.outcomes(&mut rest, &clock);
            tokio::pin!(outcomes);
            assert!(ready_now(outcomes.as_mut()).await.is_none(), "others may follow");
            settle(&operations, 1);
            outcomes.await
        };
        assert_eq!(ids(&told), [70, 71]);
        assert_eq!(rest.as_slice(), [2]);
    }

    fn settle(operations: &Operations, place: u32) {
        let flow = FlowId { slot: 0, incarnation: 0 };
        operations.settled(place, flow, &Settlement::Installed(Placement::Hardware));
    }

    fn ids(told: &v1::Outcomes) -> Vec<u64> {
        told.outcomes.iter().map(|outcome| outcome.id).collect()
    }

    /// Whether a future is ready now.
    async fn ready_now<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            let polled = std::pin::Pin::new(&mut future).poll(context);
            std::task::Poll::Ready(if let std::task::Poll::Ready(output) = polled { Some(output) } else { None })
        })
        .await
    }
}
