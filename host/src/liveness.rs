//! Whether the parts of the agent get on with their work.
//!
//! A part that has a thread of its own says when it begins a piece of work and when it has none. That is a number that changes, whose
//! lowest bits say what is going on: a plain store for the part, without a clock. Whoever watches looks every second or so whether the
//! numbers change. A part that has work and whose number stands still for too long hangs: in the device, on the disk, or for a lock. Of a part
//! that sleeps on a queue, others know whether it has work; one that is not woken hangs, too.
//!
//! A part that hangs is a reason to restart the agent, unless it waits for a disk: no restart makes a disk answer, and the next agent could
//! not even read what this one knows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_flow::Timestamp;

/// How long a piece of work may take. A device answers within seconds, and so does a disk.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The time between two looks that counts at most: when the whole agent stood still, its parts could not go on either.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// How a part tells that it gets on with its work. Only the part itself may use it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

/// In the number of a part: there is work, and it may wait for a disk.
const WORKS: u64 = 1;
const WAITS_FOR_DISK: u64 = 2;
const ONE_MORE: u64 = 4;

impl Progress {
    /// A piece of work begins, and what was done before is done.
    #[inline]
    pub fn works(&self) {
        self.goes_on(WORKS);
    }

    /// The same of work that waits for a disk.
    #[inline]
    pub fn waits_for_disk(&self) {
        self.goes_on(WORKS | WAITS_FOR_DISK);
    }

    /// There is no work.
    #[inline]
    pub fn rests(&self) {
        if self.0.load(Ordering::Relaxed) & WORKS != 0 {
            self.goes_on(0);
        }
    }

    fn goes_on(&self, to: u64) {
        let count = self.0.load(Ordering::Relaxed) & !(WORKS | WAITS_FOR_DISK);
        self.0.store(count.wrapping_add(ONE_MORE) | to, Ordering::Relaxed);
    }
}

/// Watches the progress of parts.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<Mutex<Watch>>);

#[derive(Debug, Default)]
struct Watch {
    parts: Vec<Part>,
    looked: Option<Timestamp>,
}

#[derive(Debug)]
struct Part {
    name: String,
    progress: Progress,
    /// Its number at the last look.
    seen: u64,
    /// How long it has stood still, with work to do.
    still: Duration,
    is_awaited: IsAwaited,
}

/// Whether there is work that a part has not begun.
struct IsAwaited(Box<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for IsAwaited {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("IsAwaited").field(&self.0()).finish()
    }
}

/// Parts that hang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hang(Vec<Hanging>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hanging {
    name: String,
    still: Duration,
    waits_for_disk: bool,
}

impl Liveness {
    /// Watches one more part.
    pub fn part(&self, name: &str) -> Progress {
        self.awaited_part(name, || false)
    }

    /// Watches one more part, for which work may wait that it has not begun.
    pub fn awaited_part(&self, name: &str, is_awaited: impl Fn() -> bool + Send + Sync + 'static) -> Progress {
        let progress = Progress::default();
        let is_awaited = IsAwaited(Box::new(is_awaited));
        let part =
            Part { name: name.to_owned(), progress: progress.clone(), seen: 0, still: Duration::ZERO, is_awaited };
        self.0.lock().parts.push(part);
        progress
    }

    /// Looks whether a part hangs. To be called every second or so.
    pub fn look(&self, now: Timestamp) -> Result<(), Hang> {
        let mut watch = self.0.lock();
        let elapsed = watch.looked.map_or(Duration::ZERO, |looked| now.since(looked)).min(LONGEST_LOOK);
        watch.looked = Some(now);
        for part in &mut watch.parts {
            let count = part.progress.0.load(Ordering::Relaxed);
            let has_work = count & WORKS != 0 || (part.is_awaited.0)();
            let stands_still = has_work && count == part.seen;
            part.still = if stands_still { part.still + elapsed } else { Duration::ZERO };
            part.seen = count;
        }
        let hanging = watch.parts.iter().filter(|part| part.still >= DEADLINE).map(|part| Hanging {
            name: part.name.clone(),
            still: part.still,
            waits_for_disk: part.seen & WAITS_FOR_DISK != 0,
        });
        let hang = Hang(hanging.collect());
        if hang.0.is_empty() { Ok(()) } else { Err(hang) }
    }
}

impl Hang {
    /// The names of the parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|hanging| hanging.name.as_str())
    }

    /// Whether all of them wait for a disk, so that a restart is of no use.
    pub fn is_of_disk(&self) -> bool {
        self.0.iter().all(|hanging| hanging.waits_for_disk)
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Hanging { name, still, waits_for_disk }) in self.0.iter().enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            write!(out, "{separator}{name} has made no progress for {} s", still.as_secs())?;
            if *waits_for_disk {
                out.write_str(": the disk does not answer")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every second, from one time to another. Gives what the last look says.
    fn look(liveness: &Liveness, seconds: std::ops::RangeInclusive<u64>) -> Result<(), String> {
        let mut last = Ok(());
        for second in seconds {
            last = liveness.look(Timestamp(second * 1_000_000_000));
        }
        last.map_err(|hang| hang.to_string())
    }

    #[test]
    fn a_part_that_stands_still_with_work_to_do_is_named() {
        let liveness = Liveness::default();
        let (busy, resting, fresh) =
            (liveness.part("offload-0"), liveness.part("journal"), liveness.part("revalidator"));
        busy.works();
        resting.works();
        resting.rests();
        assert_eq!(look(&liveness, 0..=29), Ok(()));
        assert_eq!(look(&liveness, 30..=30), Err("offload-0 has made no progress for 30 s".to_owned()));
        fresh.works();
        assert_eq!(
            look(&liveness, 31..=70).unwrap_err(),
            "offload-0 has made no progress for 70 s; revalidator has made no progress for 39 s"
        );
        busy.works();
        fresh.rests();
        assert_eq!(look(&liveness, 71..=100), Ok(()));
        assert!(look(&liveness, 101..=102).is_err(), "the next piece of work takes too long");
        busy.rests();
        busy.rests();
        assert_eq!(look(&liveness, 103..=200), Ok(()));
    }

    #[test]
    fn a_part_that_is_not_woken_for_its_work_is_named() {
        let liveness = Liveness::default();
        let waiting = Arc::new(AtomicU64::new(0));
        let queue = waiting.clone();
        let part = liveness.awaited_part("offload-0", move || queue.load(Ordering::Relaxed) > 0);
        part.works();
        part.rests();
        assert_eq!(look(&liveness, 0..=100), Ok(()));
        waiting.store(1, Ordering::Relaxed);
        assert_eq!(look(&liveness, 101..=129), Ok(()));
        assert_eq!(look(&liveness, 130..=130), Err("offload-0 has made no progress for 30 s".to_owned()));
        part.works();
        assert_eq!(look(&liveness, 131..=131), Ok(()));
    }

    #[test]
    fn a_disk_that_does_not_answer_is_no_reason_for_a_restart_and_hides_none() {
        let liveness = Liveness::default();
        let (log, worker) = (liveness.part("journal"), liveness.part("offload-0"));
        log.waits_for_disk();
        look(&liveness, 0..=29).unwrap();
        let hang = liveness.look(Timestamp(30_000_000_000)).unwrap_err();
        assert_eq!(hang.to_string(), "journal has made no progress for 30 s: the disk does not answer");
        assert!(hang.is_of_disk());
        worker.works();
        look(&liveness, 31..=60).unwrap_err();
        let hang = liveness.look(Timestamp(61_000_000_000)).unwrap_err();
        assert!(hang.parts().eq(["journal", "offload-0"]) && !hang.is_of_disk(), "{hang}");
        worker.rests();
        log.works();
        look(&liveness, 62..=91).unwrap();
        assert!(!liveness.look(Timestamp(92_000_000_000)).unwrap_err().is_of_disk(), "it does something else by now");
    }

    #[test]
    fn a_machine_that_slept_blames_nobody() {
        let liveness = Liveness::default();
        let part = liveness.part("offload-0");
        part.works();
        assert_eq!(look(&liveness, 0..=5), Ok(()));
        // Ten minutes without a look: the part has had no time either.
        assert_eq!(look(&liveness, 605..=620), Ok(()));
        assert!(look(&liveness, 621..=640).is_err());
    }
}
