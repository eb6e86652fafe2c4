//! Reads the counters of all rules from terse listings, and finds out which rules are lost.
//!
//! A terse listing has no time of last use, so readings have none: growth shows use. Hardware's counters are as old as the
//! driver's copy of them, which mlx5 renews once a second.

use std::sync::Arc;
use std::time::Duration;

use crate::config::OffloadPolicy;
use sluice_flow::backend::{CountedApart, CounterReader, Handle, LostRule};
use sluice_flow::counters::{Counters, Reading, Sampled};
use sluice_flow::refusal::Refusal;
use sluice_flow::time::Timestamp;

use super::core::Core;
use super::counted::Counted;
use super::failure::{self, socket_refusal};
use super::ledger::chains::owner_of_end;
use super::ledger::record::{Entry, FirstReadings, Seen};
use crate::dump::{Detail, Lister, Listing};
use crate::install::{Installer, Request};
use crate::label::Label;
use crate::socket::SocketError;
use crate::wire::filter::{FilterView, Hook};
use crate::wire::rule_view::RuleView;

/// Readings that are handed over at once.
const READINGS: usize = 256;
/// How often a listing is repeated because the rules changed meanwhile.
const TRIES: usize = 8;
/// At most this many missing rules are looked up one by one; more cause a reset.
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

/// A listing of the rules of all hooks, as those know it who are told what it shows.
#[derive(Clone, Copy)]
struct Pass {
    dump: u64,
    of_mirrors: u64,
}

/// Reads the counters of all rules.
pub(super) struct Reader {
    core: Arc<Core>,
    lister: Lister,
    /// Looks up rules that a listing did not show.
    finder: Installer,
    batch: Vec<Reading>,
}

impl Reader {
    pub(super) fn open(core: Arc<Core>) -> Result<Self, Refusal> {
        let lister = Lister::open().map_err(socket_refusal)?;
        let finder = Installer::open(core.policy).map_err(socket_refusal)?;
        Ok(Self { core, lister, finder, batch: Vec::with_capacity(READINGS) })
    }

    /// Removes from the ledger the rules that the kernel has lost, and returns them.
    pub(super) fn compare(&mut self) -> Result<Vec<LostRule>, Refusal> {
        let unseen = self.pass(&mut |_, _| ())?;
        Ok(self.gone(unseen).iter().filter_map(|entry| self.core.lose(entry)).collect())
    }

    /// Reads all counters and returns the rules that were not shown.
    fn pass(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<Vec<Entry>, Refusal> {
        let core = Arc::clone(&self.core);
        let dump = core.ledger.dumps.begin();
        let pass = Pass { dump: dump.number(), of_mirrors: core.mirrors.begin_listing() };
        for hook in core.ports.load().hooks() {
            self.read_hook(hook, pass, visit)?;
        }
        core.restore_ends(dump.number());
        Ok(core.ledger.unseen(dump.number()))
    }

    fn read_hook(&mut self, hook: Hook, pass: Pass, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        let Self { core, lister, batch, .. } = self;
        for _ in 0..TRIES {
            let earliest = core.clock.now().before(max_lag(core.policy));
            batch.clear();
            let listed = lister.list(hook, Detail::Terse, &mut |view| {
                batch.extend(reading(core, view, pass)?);
                if batch.len() >= READINGS {
                    hand_over(core, batch, earliest, visit);
                }
                Ok(())
            });
            hand_over(core, batch, earliest, visit);
            match listed {
                Ok(Listing::Whole) => return Ok(()),
                Ok(Listing::Interrupted) => {}
                // Without a device or queueing discipline there are no rules.
                Err(error) if error.is_absence() => return Ok(()),
                Err(error) => return Err(socket_refusal(error)),
            }
        }
        Err(Refusal::Busy { reason: "the rules changed during each listing".into() })
    }

    /// Those rules that the kernel does not find by name either, or whose guards it does not find: a listing skips rules
    /// while others come and go.
    fn gone(&mut self, unseen: Vec<Entry>) -> Vec<Entry> {
        let mut is_gone = |entry: &Entry| {
            let mut find = |id| self.finder.find(id);
            match (find(entry.id()), entry.guard_id()) {
                (Ok(None), _) => true,
                // Somebody else's rule has its name.
                (Ok(Some(found)), None) => !self.core.ledger.has_traces_of_ours(&found),
                (_, Some(guard)) => matches!(find(guard), Ok(None)),
                (Err(_), None) => false,
            }
        };
        unseen.into_iter().filter(&mut is_gone).collect()
    }
}

impl Core {
    /// What hardware and software counted of a rule.
    pub(super) fn counted_apart(&self, handle: Handle) -> Result<Option<CountedApart>, Refusal> {
        let Some(entry) = self.ledger.find(handle) else { return Ok(None) };
        let ids: Vec<_> = std::iter::once(entry.id()).chain(entry.guard_id()).collect();
        let requests: Vec<_> = ids.iter().copied().map(Request::Read).collect();
        let results = self.sockets.installer.lock().submit(&requests);
        let mut all = entry.record.carried();
        for (id, result) in ids.iter().zip(results) {
            let report = match result {
                Ok(done) => done.report,
                Err(refusal) if failure::is_absence(&refusal) => None,
                Err(refusal) => return Err(refusal),
            };
            let Some(report) = report else { return Ok(None) };
            all = all.plus(Counted::reported(&report, id));
        }
        let Counted { software, hardware } = all;
        let counters = |count: crate::wire::statistics::Count| Counters {
            packets: count.packets,
            bytes: count.bytes,
            ..Counters::default()
        };
        Ok(Some(CountedApart { hardware: counters(hardware), software: counters(software) }))
    }
}

impl CounterReader for Reader {
    fn read(&mut self, visit: &mut dyn FnMut(&[Reading], Sampled)) -> Result<(), Refusal> {
        if let Some(FirstReadings { readings, sampled }) = self.core.ledger.first_readings.lock().take() {
            readings.chunks(READINGS).for_each(|some| visit(some, sampled));
            return Ok(());
        }
        let unseen = self.pass(visit)?;
        if unseen.len() > MOST_LOOKED_FOR {
            self.core.events.reset(self.core.clock.now());
            return Ok(());
        }
        for entry in self.gone(unseen) {
            self.core.report_lost(&entry);
        }
        Ok(())
    }
}

/// The reading of a flow's rule; `None` if it is not ours, is the end of a chain, is being changed, or is a guard, which the kernel shows before
/// the rule that it guards.
fn reading(core: &Core, view: &FilterView<'_>, pass: Pass) -> Result<Option<Reading>, SocketError> {
    let rule = RuleView::new(view)?;
    if !Label::read(rule.cookies).is_some_and(|label| core.ledger.may_own(label.agent)) {
        if owner_of_end(rule.cookies[0]) == Some(core.agent) {
            core.ledger.chains.note_taken(&rule.id, pass.dump, Counted::listed(&rule).total().packets);
        }
        core.mirrors.show(&rule, pass.of_mirrors);
        return Ok(None);
    }
    let reading = |seen: Seen| {
        let Seen { flow, installed_as, counted } = seen;
        Reading { flow, installed_as, counters: counted.total() }
    };
    Ok(core.ledger.observe(&rule.id, pass.dump, Counted::listed(&rule)).map(reading))
}

fn hand_over(core: &Core, batch: &mut Vec<Reading>, earliest: Timestamp, visit: &mut dyn FnMut(&[Reading], Sampled)) {
    if !batch.is_empty() {
        visit(batch, Sampled { earliest, latest: core.clock.now() });
        batch.clear();
    }
}
