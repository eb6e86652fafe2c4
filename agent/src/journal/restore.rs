//! What earlier runs have left, back into the table.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;
use sluice_flow::table::TableError;
use sluice_flow::ufid::Seed;
use sluice_flow::{ChainId, Flow, Timestamp};

use super::load::{Log, children_first};
use super::record::WallTime;
use super::{Journal, JournalError};

/// Flows that go from one thread to the other at once.
const CHUNK: usize = 1_024;
/// How many times as many may be taken apart before they are taken on.
const CHUNKS_AHEAD: usize = 8;

/// What earlier runs have left.
pub struct Saved {
    log: Log,
    journal: Arc<Journal>,
    began: Timestamp,
}

/// What was there at the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    /// Flows that are wanted again.
    pub flows: u64,
    /// Flows that are not, because the agent would not take them on any more. Each is named in the log.
    pub turned_away: u64,
    /// How long it took to read them and to take them on.
    pub load: Duration,
    /// How long no agent was there at most, by the wall clock: since something last happened to the log, which is ten seconds
    /// before the end of an agent that was at rest. `None` at the first start.
    pub away: Option<Duration>,
}

impl Saved {
    pub(super) fn new(log: Log, journal: Arc<Journal>, began: Timestamp) -> Self {
        Self { log, journal, began }
    }

    /// Has `take` take every flow on again, with the time of its acceptance on the table's clock, and chains before those that
    /// jump to them.
    pub fn restore(
        self,
        seed: &Seed,
        mut take: impl FnMut(Flow, Timestamp) -> Result<(), TableError>,
    ) -> Result<Restored, JournalError> {
        let (now, wall) = self.journal.now();
        let mut restored =
            Restored { away: self.log.summary.away((self.journal.options.wall)()), ..Restored::default() };
        let mut take = |flow: Flow, accepted: WallTime| {
            let ufid = flow.ufid;
            match take(flow, now.before(wall.since(accepted))) {
                Ok(()) => restored.flows += 1,
                Err(error) => {
                    restored.turned_away += 1;
                    tracing::error!("flow ufid:{ufid} of an earlier run is not taken on again: {error}");
                }
            }
        };
        let mut of_chains = Vec::new();
        self.read(seed, &mut |(flow, accepted)| {
            if flow.chain() == ChainId::ROOT && flow.jumps().is_empty() {
                take(flow, accepted);
            } else {
                of_chains.push((flow, accepted));
            }
        })?;
        children_first(&mut of_chains);
        of_chains.into_iter().for_each(|(flow, accepted)| take(flow, accepted));
        restored.load = self.journal.options.clock.now().since(self.began);
        self.tell(&restored);
        *self.journal.restored.lock() = restored.clone();
        Ok(restored)
    }

    /// Shows every flow, in order, while a thread takes the next ones apart.
    fn read(&self, seed: &Seed, show: &mut dyn FnMut((Flow, WallTime))) -> Result<(), JournalError> {
        let (chunks, taken_apart) = bounded(CHUNKS_AHEAD);
        thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let mut chunk = Vec::with_capacity(CHUNK);
                let result = self.log.visit(seed, &mut |flow, accepted| {
                    chunk.push((flow, accepted));
                    if chunk.len() == CHUNK {
                        // It is received until this end is dropped.
                        let _ = chunks.send(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)));
                    }
                });
                let _ = chunks.send(chunk);
                result
            });
            taken_apart.into_iter().flatten().for_each(show);
            reading.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn tell(&self, restored: &Restored) {
        for (path, at, octets, reason) in &self.log.summary.torn {
            tracing::warn!("{}: {reason}; the last {octets} octets, from {at} on, are left out", path.display());
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
