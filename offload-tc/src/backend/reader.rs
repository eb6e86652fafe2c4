//! The counters of all rules, read in place out of terse listings; and what listings show to be gone.
//!
//! A terse listing tells no time of last use, so that readings have none: growth shows use. Hardware's counters are as old
//! as the driver's copy of them, which mlx5 renews once a second.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::backend::{CounterReader, LostRule};
use sluice_flow::counters::{Reading, Sampled};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Timestamp;

use super::books::{Counted, Entry, Seen};
use super::core::{Core, socket_refusal};
use super::queue::total;
use super::survey::FirstReadings;
use crate::config::OffloadPolicy;
use crate::dump::{Detail, Lister, Listing};
use crate::install::{self, Installer};
use crate::rule::Label;
use crate::socket::SocketError;
use crate::wire::filter::{FilterView, Hook};
use crate::wire::statistics::RuleView;

/// Readings handed over at once.
const READINGS: usize = 256;
/// How often a listing that changed while it was read is read again.
const TRIES: usize = 8;
/// More rules than this are not looked for one by one by who reads counters.
const MOST_LOOKED_FOR: usize = 256;
/// How old a driver's copy of hardware's counters may be.
const HARDWARE_LAG: Duration = Duration::from_secs(2);

/// How old a reading may be.
pub(super) const fn max_lag(policy: OffloadPolicy) -> Duration {
    match policy {
        OffloadPolicy::SkipHardware => Duration::ZERO,
        OffloadPolicy::Any | OffloadPolicy::SkipSoftware => HARDWARE_LAG,
    }
}

/// Reads the counters of all rules.
pub(super) struct Reader {
    core: Arc<Core>,
    lister: Lister,
    /// Looks for rules that a listing did not show.
    finder: Installer,
    batch: Vec<Reading>,
}

impl Reader {
    pub(super) fn open(core: Arc<Core>) -> Result<Self, Refusal> {
        let lister = Lister::open().map_err(socket_refusal)?;
        let finder = Installer::open(core.policy).map_err(socket_refusal)?;
        Ok(Self { core, lister, finder, batch: Vec::with_capacity(READINGS) })
    }

    /// Rules of the books that the kernel does not have any more, taken off the books.
    pub(super) fn compare(&mut self) -> Result<Vec<LostRule>, Refusal> {
        let unseen = self.pass(&mut |_, _| ())?;
        Ok(self.gone(unseen).iter().filter_map(|entry| self.core.lose(entry)).collect())
    }

    /// Reads all and gives the rules that were not shown.
    fn pass(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<Vec<Entry>, Refusal> {
        let core = Arc::clone(&self.core);
        let dump = core.books.dumps.begin();
        for hook in core.ports.load().hooks() {
            self.read_hook(hook, dump.number(), visit)?;
        }
        Ok(core.books.unseen(dump.number()))
    }

    fn read_hook(&mut self, hook: Hook, dump: u64, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        let Self { core, lister, batch, .. } = self;
        for _ in 0..TRIES {
            let earliest = core.clock.now().before(max_lag(core.policy));
            batch.clear();
            let listed = lister.list(hook, None, Detail::Terse, &mut |view| {
                batch.extend(reading(core, view, dump)?);
                if batch.len() >= READINGS {
                    hand_over(core, batch, earliest, visit);
                }
                Ok(())
            });
            hand_over(core, batch, earliest, visit);
            match listed {
                Ok(Listing::Whole) => return Ok(()),
                Ok(Listing::Interrupted) => {}
                // Without device or queueing discipline there are no rules.
                Err(error) if is_absence(&error) => return Ok(()),
                Err(error) => return Err(socket_refusal(error)),
            }
        }
        Err(Refusal::Busy { reason: "the rules changed each time that they were listed".into() })
    }

    /// Those rules that the kernel does not find by name either, or the guards of which it does not find: a listing passes
    /// rules over where others come and go.
    fn gone(&mut self, unseen: Vec<Entry>) -> Vec<Entry> {
        let mut is_gone = |entry: &Entry| {
            let mut find = |id| self.finder.find(id);
            match (find(entry.id()), entry.guard_id()) {
                (Ok(None), _) => true,
                // Somebody else's has its name.
                (Ok(Some(found)), None) => !self.core.has_traces_of_ours(&found),
                (_, Some(guard)) => matches!(find(guard), Ok(None)),
                (Err(_), None) => false,
            }
        };
        unseen.into_iter().filter(&mut is_gone).collect()
    }
}

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        if let Some(FirstReadings { readings, sampled }) = self.core.first_readings.lock().take() {
            readings.chunks(READINGS).for_each(|some| visit(some, sampled));
            return Ok(());
        }
        let unseen = self.pass(visit)?;
        if unseen.len() > MOST_LOOKED_FOR {
            self.core.events.reset(self.core.clock.now());
            return Ok(());
        }
        for entry in self.gone(unseen) {
            tell_lost(&self.core, &entry);
        }
        Ok(())
    }
}

/// Takes a rule off the books that is gone, and says so; if nobody listens, that everything must be compared.
pub(super) fn tell_lost(core: &Core, entry: &Entry) {
    if let Some(lost) = core.lose(entry)
        && core.events.lost(lost).is_err()
    {
        core.remember_lost(lost);
        core.events.reset(core.clock.now());
    }
}

/// The reading of the flow of one of our rules; `None` of another one, of one that is on its way, and of a guard, which the
/// kernel shows before the rule that it guards.
fn reading(core: &Core, view: &FilterView<'_>, dump: u64) -> Result<Option<Reading>, SocketError> {
    let rule = RuleView::new(view)?;
    if !Label::read(rule.cookies).is_some_and(|label| core.may_own(label.agent)) {
        return Ok(None);
    }
    let reading = |seen: Seen| {
        let Seen { flow, installed_as, counted } = seen;
        Reading { flow, installed_as, counters: total(counted) }
    };
    Ok(core.books.see(&rule.id, dump, counted_of(&rule)).map(reading))
}

/// What a rule has counted by itself.
pub(super) fn counted_of(rule: &RuleView<'_>) -> Counted {
    Counted { software: rule.software.with_headers(&rule.id), hardware: rule.hardware }
}

fn hand_over(core: &Core, batch: &mut Vec<Reading>, earliest: Timestamp, visit: &mut dyn FnMut(&[Reading], Sampled)) {
    if !batch.is_empty() {
        visit(batch, Sampled { earliest, latest: core.clock.now() });
        batch.clear();
    }
}

/// Whether there is no place where rules could be.
pub(super) fn is_absence(error: &SocketError) -> bool {
    let SocketError::Io(error) = error else { return false };
    error.raw_os_error().is_some_and(install::is_absence)
}
