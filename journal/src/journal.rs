//! The log of what is wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Sender, TrySendError};
use parking_lot::{Condvar, Mutex};
use sluice_flow::table::Unwritten;
use sluice_flow::{Clock, Timestamp};

use super::active::Active;
use super::damage::DamageReport;
use super::error::{JournalError, failed};
use super::folder::Folder;
use super::lag::{Lag, Pace};
use super::record::WallTime;
use super::report::{JournalReport, Restored};
use super::reserve::Reserve;

/// The wall clock: it goes on while no agent runs.
pub type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// How a log is kept.
#[derive(Clone)]
pub struct JournalOptions {
    /// How often the disk is synced; zero for every batch, before it is answered.
    pub sync_interval: Duration,
    /// The clock of the table.
    pub clock: Arc<dyn Clock>,
    /// The clock by which acceptances are dated.
    pub wall: WallClock,
}

/// The log of what is wanted. See [`crate`].
pub struct Journal {
    pub(super) folder: Folder,
    pub(super) options: JournalOptions,
    /// What the table has to tell.
    pub(super) unwritten: Arc<Unwritten>,
    pub(super) wake: Sender<()>,
    pub(super) requests: Mutex<Requests>,
    pub(super) pace: Pace,
    pub(super) written: Condvar,
    pub(super) active: Mutex<Active>,
    /// Room for one compaction.
    pub(super) reserve: Mutex<Reserve>,
    /// What is to be done about the failure.
    pub(super) remedy: Mutex<Option<String>>,
    /// Something was written that is not synced.
    pub(super) is_unsynced: AtomicBool,
    /// Why the log is not whole. Apart from the file, so that it can be told while a disk hangs.
    pub(super) failure: Mutex<Option<String>>,
    /// What earlier damage has cost, until somebody has seen to it.
    pub(super) damage: Mutex<Option<DamageReport>>,
    /// The files are damaged, and have yet to be compacted.
    pub(super) is_damaged: AtomicBool,
    pub(super) counts: Counts,
    pub(super) restored: Mutex<Restored>,
}

/// The log was not written in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("accepted, but not written to the log of flows within {} s", .0.as_secs())]
pub struct NotWritten(Duration);

/// Requests to hear when everything so far is written, and how many are answered.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) asked: u64,
    pub(super) done: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    /// In the files.
    pub(super) records: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) compactions: AtomicU64,
    pub(super) unkept: AtomicU64,
}

impl Journal {
    /// Where the table that is kept puts what has changed.
    pub fn unwritten(&self) -> Arc<Unwritten> {
        self.unwritten.clone()
    }

    /// Waits until all that was changed before is written, which it then is even if the agent is killed; or until it is clear
    /// that it cannot be written, which the [report](Journal::report) says. Does not wait for a log that is late already, and wakes nobody if
    /// there is nothing to write, as when all that was changed are flows of sources.
    pub fn wait(&self, at_most: Duration) -> Result<(), NotWritten> {
        if self.pace.has_written_all(&self.unwritten) {
            return Ok(());
        }
        if let Some(lag) = self.lag().is_late() {
            return Err(NotWritten(lag));
        }
        let ticket = {
            let mut requests = self.requests.lock();
            requests.asked += 1;
            requests.asked
        };
        match self.wake.try_send(()) {
            // Full: somebody has just asked the same, and the writer has yet to hear of it.
            Ok(()) | Err(TrySendError::Full(())) => {}
            Err(TrySendError::Disconnected(())) => return Err(NotWritten(Duration::ZERO)),
        }
        let mut requests = self.requests.lock();
        let waited = self.written.wait_while_for(&mut requests, |requests| requests.done < ticket, at_most);
        if waited.timed_out() { Err(NotWritten(at_most)) } else { Ok(()) }
    }

    /// How far the log is behind. Takes no lock.
    pub fn lag(&self) -> Lag {
        self.pace.lag(self.options.clock.now(), &self.unwritten, &self.is_unsynced)
    }

    /// How the log does.
    pub fn report(&self) -> JournalReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let lag = self.lag();
        JournalReport {
            records: count(&self.counts.records),
            written: count(&self.counts.written),
            bytes: count(&self.counts.bytes),
            syncs: count(&self.counts.syncs),
            reserved: self.reserve.try_lock().map_or(0, |reserve| reserve.bytes()),
            compactions: count(&self.counts.compactions),
            unkept: count(&self.counts.unkept),
            failure: self.failure(&lag),
            lag,
            damage: self.damage.lock().clone(),
            restored: self.restored.lock().clone(),
        }
    }

    /// Why flows do not survive, or may not, as it is now.
    fn failure(&self, lag: &Lag) -> Option<String> {
        let (failure, remedy) = (self.failure.lock().clone(), self.remedy.lock().clone());
        let failure = failure.map(|failure| match remedy {
            Some(remedy) => format!("{failure}; {remedy}"),
            None => failure,
        });
        failure.or_else(|| lag.complaint(self.options.sync_interval).map(|complaint| complaint.to_string())).or_else(
            || {
                let ends = lag.given_up;
                (ends > 0)
                    .then(|| format!("{ends} ends of flows could not wait for the disk; everything is written anew"))
            },
        )
    }

    pub(super) fn now(&self) -> (Timestamp, WallTime) {
        (self.options.clock.now(), (self.options.wall)().into())
    }

    /// Puts what was written so far on the disk, if it is not there already.
    pub(super) fn sync(&self) {
        let began = self.options.clock.now();
        self.pace.begin_syncing();
        if self.is_unsynced.swap(false, Ordering::AcqRel) {
            // Not locked while it is synced, so that the writer goes on.
            let file = self.active.lock().file.as_ref().map(|log| (log.path.clone(), log.file.clone()));
            match file.map(|(path, file)| file.sync_data().map_err(failed("sync", &path))) {
                None => {}
                Some(Ok(())) => drop(self.counts.syncs.fetch_add(1, Ordering::Relaxed)),
                Some(Err(error)) => self.fail(&mut self.active.lock(), &error),
            }
        }
        self.pace.have_synced(began);
    }

    /// The log is not whole from now on, until a compaction has written everything.
    pub(super) fn fail(&self, active: &mut Active, error: &JournalError) {
        active.close();
        if self.failure.lock().replace(error.to_string()).is_none() {
            tracing::error!("flows do not survive a restart from now on: {error}");
        }
    }
}
