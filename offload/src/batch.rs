//! Waiting for the outcome of many requests at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluice_flow::table::{Settlement, Waiter};
use sluice_flow::{Counters, FlowId, Refusal};

/// Refusals that are kept word for word; more are only counted.
const REFUSALS_KEPT: usize = 16;

/// Waits until every request that was made with it is settled: a barrier over just these.
///
/// An outcome is a count, without a lock; only what has words to it takes one, and the last of all to wake who waits.
#[derive(Default)]
pub struct Batch {
    outstanding: AtomicUsize,
    installed: AtomicUsize,
    refused: AtomicUsize,
    deleted: AtomicUsize,
    superseded: AtomicUsize,
    words: Mutex<Words>,
    /// Who waits is woken once no more than so many are outstanding; none, unless somebody waits for some.
    awaited: AtomicUsize,
    few_enough: Condvar,
}

/// What is more than a count.
#[derive(Default)]
struct Words {
    refusals: Vec<(FlowId, Arc<Refusal>)>,
    last_deleted: Option<Counters>,
}

/// What has become of the requests of a batch so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests without an outcome.
    pub outstanding: usize,
    /// Requests that ended in the device as wanted.
    pub installed: usize,
    /// Requests that the device refused.
    pub refused: usize,
    /// Deletions that are done.
    pub deleted: usize,
    /// Requests that a later one overtook.
    pub superseded: usize,
    /// The first refusals.
    pub refusals: Vec<(FlowId, Arc<Refusal>)>,
    /// The counters of the last deletion.
    pub last_deleted: Option<Counters>,
}

impl Batch {
    /// One more request will be made. Said before it is made, for its outcome may come at once.
    pub fn expect_one(&self) {
        self.expect(1);
    }

    /// The request was not taken on after all.
    pub fn expect_one_less(&self) {
        self.expect_less(1);
    }

    /// So many more requests will be made. Said before they are made, for their outcomes may come at once.
    pub fn expect(&self, requests: usize) {
        self.outstanding.fetch_add(requests, Ordering::Relaxed);
    }

    /// So many requests were not made, or not taken on, after all.
    pub fn expect_less(&self, requests: usize) {
        // As one with the look of who waits for some: either this finds how many it waits for, or it finds this done.
        let before = self.outstanding.fetch_sub(requests, Ordering::SeqCst);
        let comes_down_to = |left| before > left && before - requests <= left;
        if comes_down_to(0) || comes_down_to(self.awaited.load(Ordering::SeqCst)) {
            // Under the lock, so that it does not fall between the look and the sleep of who waits.
            let _words = self.words.lock();
            self.few_enough.notify_all();
        }
    }

    /// Waits until at most so many requests are without an outcome, as long as there is one in each span of `stall`. Says
    /// whether it came to that. For one who waits at a time.
    pub(super) fn wait_until_at_most(&self, left: usize, stall: Duration) -> bool {
        let mut words = self.words.lock();
        self.awaited.store(left, Ordering::SeqCst);
        let is_waiting = |_: &mut Words| self.outstanding.load(Ordering::SeqCst) > left;
        let mut before = self.outstanding();
        let mut is_done = true;
        while self.few_enough.wait_while_for(&mut words, is_waiting, stall).timed_out() {
            let now = self.outstanding();
            if now >= before {
                is_done = now <= left;
                break;
            }
            before = now;
        }
        self.awaited.store(0, Ordering::SeqCst);
        is_done
    }

    /// Requests without an outcome.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Acquire)
    }

    /// Waits for every outcome, at most so long for one after the other. Gives what there is then.
    pub fn wait(&self, at_most: Duration) -> Tally {
        let mut words = self.words.lock();
        // What was counted before the last was taken off is seen once that is.
        let is_waiting = |_: &mut Words| self.outstanding() > 0;
        let mut left = self.outstanding();
        while self.few_enough.wait_while_for(&mut words, is_waiting, at_most).timed_out() {
            // Who has a million outcomes to wait for is being answered as long as they come.
            let before = std::mem::replace(&mut left, self.outstanding());
            if at_most.is_zero() || left >= before {
                break;
            }
        }
        Tally {
            outstanding: self.outstanding.load(Ordering::Acquire),
            installed: self.installed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            deleted: self.deleted.load(Ordering::Relaxed),
            superseded: self.superseded.load(Ordering::Relaxed),
            refusals: words.refusals.clone(),
            last_deleted: words.last_deleted,
        }
    }
}

impl Waiter for Batch {
    fn settled(&self, _: u32, flow: FlowId, outcome: &Settlement) {
        let count = match outcome {
            Settlement::Installed(_) => &self.installed,
            Settlement::Refused(refusal) => {
                let mut words = self.words.lock();
                if words.refusals.len() < REFUSALS_KEPT {
                    words.refusals.push((flow, refusal.clone()));
                }
                &self.refused
            }
            Settlement::Deleted(counters) => {
                self.words.lock().last_deleted = Some(*counters);
                &self.deleted
            }
            Settlement::Superseded => &self.superseded,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.expect_less(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::backend::Placement;

    fn flow(slot: u32) -> FlowId {
        FlowId { slot, incarnation: 0 }
    }

    #[test]
    fn who_waits_sees_every_outcome_that_other_threads_bring() {
        const THREADS: u32 = 4;
        const EACH: u32 = 2_000;
        for _ in 0..20 {
            let batch = Batch::default();
            (0..THREADS * EACH).for_each(|_| batch.expect_one());
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let batch = &batch;
                    scope.spawn(move || {
                        for slot in 0..EACH {
                            let outcome = match thread {
                                0 => Settlement::Superseded,
                                1 => Settlement::Refused(Arc::new(Refusal::Busy { reason: "full".into() })),
                                2 => Settlement::Deleted(Counters { packets: 7, ..Counters::default() }),
                                _ => Settlement::Installed(Placement::Hardware),
                            };
                            batch.settled(0, flow(slot), &outcome);
                        }
                    });
                }
                let tally = batch.wait(Duration::from_secs(30));
                let each = EACH as usize;
                assert_eq!(tally.outstanding, 0);
                assert_eq!([tally.superseded, tally.refused, tally.deleted, tally.installed], [each; 4]);
                assert_eq!(tally.refusals.len(), REFUSALS_KEPT);
                assert_eq!(tally.last_deleted.map(|counters| counters.packets), Some(7));
            });
        }
    }

    #[test]
    fn who_waits_for_many_goes_on_as_long_as_there_are_outcomes() {
        let batch = Batch::default();
        (0..6).for_each(|_| batch.expect_one());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for slot in 0..5 {
                    std::thread::sleep(Duration::from_millis(500));
                    batch.settled(0, flow(slot), &Settlement::Installed(Placement::Hardware));
                }
            });
            let tally = batch.wait(Duration::from_secs(2));
            assert_eq!((tally.installed, tally.outstanding), (5, 1), "the last never comes");
        });
    }

    #[test]
    fn who_waits_for_some_is_woken_by_the_one_that_makes_them_few_enough_and_not_kept_by_a_stall() {
        for _ in 0..200 {
            let batch = Batch::default();
            (0..100).for_each(|_| batch.expect_one());
            std::thread::scope(|scope| {
                scope.spawn(|| (0..70).for_each(|slot| batch.settled(0, flow(slot), &Settlement::Superseded)));
                assert!(batch.wait_until_at_most(40, Duration::from_secs(30)));
                assert!(batch.outstanding() <= 40);
            });
            assert!(!batch.wait_until_at_most(20, Duration::from_millis(1)), "the device stalls");
            assert_eq!(batch.outstanding(), 30);
        }
    }

    #[test]
    fn a_request_that_was_not_taken_on_is_not_waited_for() {
        let batch = Batch::default();
        batch.expect_one();
        batch.expect_one();
        batch.settled(0, flow(1), &Settlement::Installed(Placement::Software));
        assert_eq!(batch.wait(Duration::ZERO).outstanding, 1);
        batch.expect_one_less();
        assert_eq!(batch.wait(Duration::from_secs(30)).outstanding, 0);
    }
}
