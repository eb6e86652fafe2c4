//! Watches the device, and the thread that has it: a device that says that it is dead, or that keeps a call of libmlx5 or an answer for too
//! long, has failed. Its rules are good for nothing from then on, and the agent ends; the next one installs them again.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use parking_lot::Mutex;
use sluice_flow::refusal::Refusal;

use crate::mlx5::{Events, Happened};

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(100);
/// The time between two looks that counts at most: when the whole process stood still, the thread could not go on either.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// How the thread of the device tells that it gets on with its work, and hears that there is no point in it any more.
#[derive(Default)]
pub(crate) struct Progress {
    /// Changes with every piece of work, and is odd as long as there is one.
    count: AtomicU64,
    /// The oldest query that is not answered; 0 if all are.
    owed: AtomicU64,
    /// Whether the thread has come to the end of a piece of work.
    has_ended: AtomicBool,
    failure: OnceLock<String>,
    /// Who is to be woken when the device has failed.
    sleepers: Mutex<Vec<Waker>>,
}

impl Progress {
    /// A piece of work begins, and what was done before is done. Fails if the device has failed.
    pub(crate) fn works(&self) -> Result<(), Refusal> {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store((count | 1).wrapping_add(2), Ordering::Relaxed);
        self.check()
    }

    /// There is no work.
    pub(crate) fn rests(&self) {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count.wrapping_add(1) & !1, Ordering::Relaxed);
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// The answer of this query is the oldest that the device owes.
    pub(crate) fn owes(&self, oldest: Option<u64>) {
        self.owed.store(oldest.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the piece of work that the thread is at.
    fn work(&self) -> Option<u64> {
        Some(self.count.load(Ordering::Relaxed)).filter(|count| count % 2 == 1)
    }

    /// Returns whether the thread takes answers, or has done so since this was asked last.
    fn listens(&self) -> bool {
        self.has_ended.swap(false, Ordering::Relaxed) || self.work().is_none()
    }

    /// Returns the query whose answer the device owes for the longest time.
    fn query(&self) -> Option<u64> {
        Some(self.owed.load(Ordering::Relaxed)).filter(|query| *query != 0)
    }

    /// The device has failed. Of several reasons the first one is kept.
    pub(crate) fn fail(&self, reason: String) {
        self.failure.get_or_init(|| reason);
    }

    /// Wakes all who wait for that.
    fn wake_all(&self) {
        self.sleepers.lock().drain(..).for_each(Waker::wake);
    }

    /// Fails if the device has failed.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.failure.get().map_or(Ok(()), |reason| Err(Refusal::Device { reason: reason.clone().into() }))
    }
}

/// The thread that watches. It ends when this is dropped.
pub(crate) struct Watch {
    progress: Arc<Progress>,
    failed: Receiver<Infallible>,
    _stop: Sender<Infallible>,
}

impl Watch {
    /// Starts it. `alarm` is told once if the device fails, which it also has when a piece of work takes longer than `patience`.
    pub(crate) fn start(
        events: Events,
        progress: &Arc<Progress>,
        patience: Duration,
        alarm: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let (failure, failed) = bounded(0);
        let watched = progress.clone();
        let run = move || {
            if let Some(reason) = until_failure(&events, &watched, patience, &stopped) {
                alarm(reason);
            }
            // Who waits for an answer waits no longer.
            drop(failure);
            watched.wake_all();
        };
        thread::Builder::new().name("dv-watch".to_owned()).spawn(run)?;
        Ok(Self { progress: progress.clone(), failed, _stop: stop })
    }

    /// Fails if the device has failed.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.progress.check()
    }

    /// Wakes whoever this is when the device fails.
    pub(crate) fn wake_on_failure(&self, waker: Waker) {
        self.progress.sleepers.lock().push(waker);
        // It may have failed before, and nobody wakes again.
        if self.check().is_err() {
            self.progress.wake_all();
        }
    }

    /// Is disconnected when the device fails; nothing ever comes out of it.
    pub(crate) fn failed(&self) -> &Receiver<Infallible> {
        &self.failed
    }
}

/// Returns the reason once the device has failed, and nothing if it is to stop before.
fn until_failure(
    events: &Events,
    progress: &Progress,
    patience: Duration,
    stopped: &Receiver<Infallible>,
) -> Option<String> {
    let [mut thread, mut device] = [(); 2].map(|()| Standstill::new(patience));
    loop {
        let happened = events.wait(LOOK);
        if stopped.try_recv() == Err(TryRecvError::Disconnected) {
            return None;
        }
        match happened {
            Ok(Some(Happened::Died)) => progress.fail("the device is dead (IBV_EVENT_DEVICE_FATAL)".to_owned()),
            Ok(Some(Happened::Other) | None) => {}
            Err(error) => progress.fail(format!("events of the device cannot be read any more: {error}")),
        }
        let now = Instant::now();
        if thread.look(progress.work(), now) {
            progress.fail(format!("a call of libmlx5 has not returned for {} s", patience.as_secs()));
        }
        // While the thread is at one piece of work, an answer may be there that it has not taken.
        if progress.listens() && device.look(progress.query(), now) {
            progress.fail(format!("the device has not answered a query of counters for {} s", patience.as_secs()));
        }
        if let Some(reason) = progress.failure.get() {
            return Some(reason.clone());
        }
    }
}

/// How long the thread of the device has been at the same piece of work, or the device at the same query.
struct Standstill {
    patience: Duration,
    seen: Option<u64>,
    still: Duration,
    looked: Option<Instant>,
}

impl Standstill {
    fn new(patience: Duration) -> Self {
        Self { patience, seen: None, still: Duration::ZERO, looked: None }
    }

    /// Returns whether it has been so for too long.
    fn look(&mut self, at: Option<u64>, now: Instant) -> bool {
        let elapsed = self.looked.map_or(Duration::ZERO, |looked| now.duration_since(looked)).min(LONGEST_LOOK);
        let stands_still = at.is_some() && at == self.seen;
        self.still = if stands_still { self.still + elapsed } else { Duration::ZERO };
        (self.seen, self.looked) = (at, Some(now));
        self.still >= self.patience
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]
mod tests {
    use super::*;

    /// Looks so often, and returns what the last look says.
    fn look(standstill: &mut Standstill, at: Option<u64>, now: &mut Instant, times: u32) -> bool {
        let look = |_| {
            *now += LOOK;
            standstill.look(at, *now)
        };
        (0..times).map(look).last().unwrap()
    }

    #[test]
    fn a_thread_that_is_at_one_piece_of_work_for_too_long_is_stuck_and_others_are_not() {
        let (progress, mut now) = (Progress::default(), Instant::now());
        let mut standstill = Standstill::new(LOOK * 10);
        assert!(!look(&mut standstill, progress.work(), &mut now, 100), "it has no work");
        for _ in 0..3 {
            progress.works().unwrap();
            assert!(!look(&mut standstill, progress.work(), &mut now, 10), "it gets on");
        }
        assert!(look(&mut standstill, progress.work(), &mut now, 1));
        progress.rests();
        assert!(!look(&mut standstill, progress.work(), &mut now, 100), "it has come back");
    }

    #[test]
    fn a_device_that_owes_one_answer_for_too_long_is_stuck_whatever_else_it_answers() {
        let (progress, mut now) = (Progress::default(), Instant::now());
        let mut standstill = Standstill::new(LOOK * 10);
        assert!(!look(&mut standstill, progress.query(), &mut now, 100), "it owes nothing");
        for oldest in 1..4 {
            progress.owes(Some(oldest));
            assert!(!look(&mut standstill, progress.query(), &mut now, 10), "it answers");
        }
        assert!(look(&mut standstill, progress.query(), &mut now, 1));
        progress.owes(None);
        assert!(!look(&mut standstill, progress.query(), &mut now, 100), "it has answered");
    }

    #[test]
    fn a_process_that_stood_still_blames_nobody() {
        let (progress, mut now) = (Progress::default(), Instant::now());
        let mut standstill = Standstill::new(LOOK * 10);
        progress.works().unwrap();
        assert!(!look(&mut standstill, progress.work(), &mut now, 2));
        now += Duration::from_secs(600);
        assert!(!look(&mut standstill, progress.work(), &mut now, 1));
    }

    #[test]
    fn the_first_reason_is_the_one_that_is_told() {
        let progress = Progress::default();
        progress.fail("first".to_owned());
        progress.fail("second".to_owned());
        assert!(progress.works().unwrap_err().to_string().contains("first"));
    }
}
