//! How often what happened, and how fast over the last seconds, minute and hour, as `coverage/show` of OVS tells it.
//!
//! The events are those that are counted anyway; nothing is counted here. A task notes the totals at fixed times.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

/// How often totals are noted (`COVERAGE_RUN_INTERVAL` in `lib/coverage.h`).
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Notes of a minute.
const MINUTE: usize = 12;
/// Minutes of an hour.
const HOUR: usize = 60;

/// What was noted.
#[derive(Debug, Default)]
pub struct Coverage(Mutex<Notes>);

/// The totals of the events at earlier times, in the order of `Reading::coverage`. Before the start all were zero.
#[derive(Debug, Default)]
struct Notes {
    /// Of the last minute, the newest first.
    latest: Vec<Vec<u64>>,
    /// One a minute, the newest first.
    minutes: Vec<Vec<u64>>,
    taken: usize,
}

impl Coverage {
    /// Notes the totals of all events. Called every [`INTERVAL`].
    pub(crate) fn note(&self, totals: &[(String, u64)]) {
        self.0.lock().add(totals.iter().map(|(_, total)| *total).collect());
    }

    /// Writes what `coverage/show` prints, given the totals as of now.
    pub(crate) fn write(&self, totals: &[(String, u64)], out: &mut (impl fmt::Write + ?Sized)) -> fmt::Result {
        let notes = self.0.lock();
        let seconds = INTERVAL.as_secs();
        let hash = fingerprint(totals);
        writeln!(
            out,
            "Event coverage, avg rate over last: {seconds} seconds, last minute, last hour,  hash={hash:08x}:"
        )?;
        for (index, (name, total)) in totals.iter().enumerate().filter(|(_, (_, total))| *total > 0) {
            let [seconds, minute, hour] = notes.rates(index);
            writeln!(out, "{name:<24} {seconds:5.1}/sec {minute:9.3}/sec {hour:13.4}/sec   total: {total}")?;
        }
        writeln!(out, "{} events never hit", totals.iter().filter(|(_, total)| *total == 0).count())
    }
}

impl Notes {
    fn add(&mut self, totals: Vec<u64>) {
        self.taken += 1;
        if self.taken.is_multiple_of(MINUTE) {
            self.minutes.insert(0, totals.clone());
            self.minutes.truncate(HOUR + 1);
        }
        self.latest.insert(0, totals);
        self.latest.truncate(MINUTE + 1);
    }

    /// How often a second an event happened in the last interval, minute and hour. Time before the start counts as time
    /// without events.
    fn rates(&self, event: usize) -> [f64; 3] {
        let grown = |notes: &[Vec<u64>], back: usize, span: Duration| {
            let at = |place: usize| notes.get(place).and_then(|totals| totals.get(event)).copied().unwrap_or(0);
            #[expect(clippy::cast_precision_loss, reason = "rates for people to read")]
            let events = at(0).saturating_sub(at(back)) as f64;
            events / span.as_secs_f64()
        };
        let minute = INTERVAL * 12;
        [grown(&self.latest, 1, INTERVAL), grown(&self.latest, MINUTE, minute), grown(&self.minutes, HOUR, minute * 60)]
    }
}

/// A number that is the same for as long as the same events have happened (FNV-1a over their names).
fn fingerprint(totals: &[(String, u64)]) -> u32 {
    let names = totals.iter().filter(|(_, total)| *total > 0).map(|(name, _)| name);
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    names.flat_map(|name| name.bytes().chain([0])).fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_seconds_minute_and_hour() {
        let mut notes = Notes::default();
        assert_eq!(notes.rates(0), [0.0; 3]);
        notes.add(vec![10]);
        // What happened before the first note is as if it had happened in the first interval.
        assert_eq!(notes.rates(0), [2.0, 10.0 / 60.0, 0.0]);
        for _ in 1..MINUTE {
            notes.add(vec![10]);
        }
        assert_eq!(notes.rates(0), [0.0, 10.0 / 60.0, 10.0 / 3600.0]);
        for minute in 1..=HOUR as u64 {
            (0..MINUTE).for_each(|_| notes.add(vec![10 + 60 * minute]));
        }
        assert_eq!(notes.rates(0), [0.0, 1.0, 1.0]);
        assert_eq!((notes.latest.len(), notes.minutes.len()), (MINUTE + 1, HOUR + 1));
    }
}
