//! What earlier runs have left, back into the table.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sluice_flow::port::GonePort;
use sluice_flow::table::TableError;
use sluice_flow::ufid::Seed;
use sluice_flow::{ChainId, Flow, Timestamp, Ufid};

use super::damage::{Damage, DamageReport, write_report};
use super::error::JournalError;
use super::journal::Journal;
use super::load::{Log, children_first};
use super::record::{ActionTexts, WallTime};
use super::report::Restored;

/// Records that a thread takes at once.
const CHUNK: usize = 1_024;
/// Threads at most: beyond that they wait for memory, and for what all flows share.
const THREADS: usize = 8;

/// What earlier runs have left.
pub struct Saved {
    log: Log,
    journal: Arc<Journal>,
    began: Timestamp,
}

/// What a thread has done.
#[derive(Default)]
struct Part {
    flows: u64,
    turned_away: u64,
    /// What it has left, each with about its place in the log.
    of_chains: Vec<(usize, Flow, WallTime)>,
}

impl Saved {
    pub(super) fn new(log: Log, journal: Arc<Journal>, began: Timestamp) -> Self {
        Self { log, journal, began }
    }

    /// The ports that are gone for which flows were withheld when the last run ended.
    pub fn withheld(&self) -> Vec<(Ufid, Vec<GonePort>)> {
        self.log.withheld.iter().map(|(ufid, ports)| (*ufid, ports.clone())).collect()
    }

    /// Has `take` take every flow on again, with the time of its acceptance on the table's clock: those of chains last and by one
    /// thread, chains before those that jump to them; the others in no order, by as many threads as there are processors.
    pub fn restore(
        self,
        seed: &Seed,
        take: impl Fn(Flow, Timestamp) -> Result<(), TableError> + Sync,
    ) -> Result<Restored, JournalError> {
        let (now, wall) = self.journal.now();
        let take = |flow: Flow, accepted: WallTime| {
            let ufid = flow.ufid;
            let taken = take(flow, now.before(wall.since(accepted)));
            if let Err(error) = &taken {
                tracing::error!(%ufid, "a flow of an earlier run is not accepted again: {error}");
            }
            taken.is_ok()
        };
        let damage = self.tell_damage(seed);
        let mut parts = self.take_parts(seed, &take)?;
        let mut of_chains = std::mem::take(&mut parts.of_chains);
        of_chains.sort_by_key(|(place, ..)| *place);
        let mut of_chains: Vec<_> = of_chains.into_iter().map(|(_, flow, accepted)| (flow, accepted)).collect();
        children_first(&mut of_chains);
        for (flow, accepted) in of_chains {
            parts.count(take(flow, accepted));
        }
        let restored = Restored {
            flows: parts.flows,
            turned_away: parts.turned_away,
            damage,
            load: self.journal.options.clock.now().since(self.began),
            away: self.log.summary.away((self.journal.options.wall)()),
        };
        self.tell(&restored);
        *self.journal.restored.lock() = restored.clone();
        Ok(restored)
    }

    /// Tells of the damage that was found, or of that which an earlier start has found and nobody has seen to.
    fn tell_damage(&self, seed: &Seed) -> Damage {
        let (journal, log) = (&self.journal, &self.log);
        let loss = log.loss().unwrap_or_default();
        let damage =
            Damage { lost_flows: loss.flows.len() as u64, lost_changes: loss.changes, doubtful_flows: loss.doubtful };
        let report = if damage == Damage::default() {
            let earlier = journal.folder.reports().unwrap_or_default().into_iter().next();
            earlier.map(|report| DamageReport { damage: None, report, unwritten: None })
        } else {
            let path = journal.folder.report(journal.active.lock().number);
            let unwritten = write_report(&path, &loss, log, seed).err().map(|error| error.to_string());
            Some(DamageReport { damage: Some(damage), report: path, unwritten })
        };
        if let Some(report) = &report {
            tracing::error!("{report}");
        }
        *journal.damage.lock() = report;
        damage
    }

    /// Takes on what is in no chain, and jumps to none, by several threads.
    fn take_parts(&self, seed: &Seed, take: &(impl Fn(Flow, WallTime) -> bool + Sync)) -> Result<Part, JournalError> {
        let next = AtomicUsize::new(0);
        let chunks = self.log.len().div_ceil(CHUNK);
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS).min(chunks);
        let work = || {
            let part = self.take_part(&next, seed, take);
            if part.is_err() {
                // There is no use in what others would do.
                next.store(self.log.len(), Ordering::Relaxed);
            }
            part
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            for other in others {
                let part = other.join().unwrap_or_else(|panic| resume_unwind(panic));
                all = all.and_then(|all| Ok(all.and(part?)));
            }
            all
        })
    }

    /// What one thread does.
    fn take_part(
        &self,
        next: &AtomicUsize,
        seed: &Seed,
        take: &impl Fn(Flow, WallTime) -> bool,
    ) -> Result<Part, JournalError> {
        let (mut part, mut texts) = (Part::default(), ActionTexts::default());
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= self.log.len() {
                return Ok(part);
            }
            let records = first..self.log.len().min(first + CHUNK);
            self.log.visit(records, &mut texts, seed, &mut |flow, accepted| {
                if flow.chain() == ChainId::ROOT && flow.jumps().is_empty() {
                    part.count(take(flow, accepted));
                } else {
                    part.of_chains.push((first, flow, accepted));
                }
            })?;
        }
    }

    fn tell(&self, restored: &Restored) {
        for (path, at, bytes, reason) in &self.log.summary.torn {
            tracing::warn!("{}: {reason}; the last {bytes} bytes, from byte {at} on, are ignored", path.display());
        }
        match restored.away {
            Some(away) => tracing::info!(
                "{} flows of earlier runs are wanted again, read in {:.3} s; no agent was there for at most {:.1} s before{}",
                restored.flows,
                restored.load.as_secs_f64(),
                away.as_secs_f64(),
                if restored.turned_away > 0 {
                    format!("; {} flows are lost", restored.turned_away)
                } else {
                    String::new()
                }
            ),
            None => tracing::info!("no flows of earlier runs: the log of flows is new"),
        }
    }
}

impl Part {
    fn count(&mut self, is_taken: bool) {
        *(if is_taken { &mut self.flows } else { &mut self.turned_away }) += 1;
    }

    fn and(mut self, other: Self) -> Self {
        self.flows += other.flows;
        self.turned_away += other.turned_away;
        self.of_chains.extend(other.of_chains);
        self
    }
}
