//! The thread that syncs the disk, notes that the agent is alive, and compacts.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError, select};
use sluice_flow::{FlowState, FlowTable, Timestamp};

use super::active::LogFile;
use super::damage::DamageReport;
use super::error::{JournalError, failed};
use super::frame::{Contents, Header};
use super::journal::Journal;
use super::record::{Encoder, WallTime};
use super::reserve::Reserve;
use sluice_host::liveness::Progress;

/// How often it is looked at whether there is something to do, at least.
const LOOK: Duration = Duration::from_secs(1);
/// How often the file is touched while nothing is written, so that the next run knows when this one ended.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long after a compaction that failed the next is tried.
const HEAL: Duration = Duration::from_secs(5);
/// The wall clock was set if it went by so much more or less than the other one between two looks. It is never set by so much to keep it right.
const SET: Duration = Duration::from_secs(10);
/// Dead records for which no compaction is made, however few live ones there are.
const DEAD_ALLOWED: u64 = 10_000;
/// Files that may be there: one more comes with each start.
const FILES_ALLOWED: usize = 8;
/// Bytes that are written in one go.
const CHUNK: usize = 1 << 20;

/// Keeps the log on the disk and small. See the [module](super).
pub struct Keeper {
    journal: Arc<Journal>,
    /// How many files there are before the active one.
    older_files: usize,
    /// The last of those, if a compaction that did not come to its end has begun the file after it, and what of the table's
    /// changes that were given up was written before.
    begun: Option<(u64, usize)>,
    synced: Timestamp,
    touched: Timestamp,
    /// Whether that worked.
    is_touched: bool,
    /// Both clocks when they were last looked at.
    clocks: (Timestamp, WallTime),
    /// The wall clock was set since everything was last written, so that acceptances are dated by a clock that is no more.
    is_misdated: bool,
    /// When a compaction last failed, or was to heal the log.
    failed: Option<Timestamp>,
    progress: Progress,
}

/// A compaction was given up because the agent stops. It does no harm.
#[derive(Debug)]
pub(super) struct Stopped;

impl Keeper {
    pub(super) fn new(journal: Arc<Journal>, older_files: usize) -> Self {
        let clocks = journal.now();
        let now = clocks.0;
        Self {
            journal,
            older_files,
            begun: None,
            synced: now,
            touched: now,
            is_touched: true,
            clocks,
            is_misdated: false,
            failed: None,
            progress: Progress::default(),
        }
    }

    /// Works until `stop` is disconnected.
    pub fn run(mut self, table: &FlowTable, stop: &Receiver<Infallible>, progress: &Progress) {
        self.progress = progress.clone();
        let interval = self.journal.options.sync_interval;
        let period = if interval.is_zero() { LOOK } else { interval.min(LOOK) };
        loop {
            progress.rests();
            select! {
                recv(stop) -> _ => return,
                default(period) => {}
            }
            progress.waits_for_disk();
            self.sync_if_due();
            self.touch_if_due();
            self.look_at_damage();
            self.look_at_clocks();
            if self.is_compaction_due(table) {
                if self.journal.failure.lock().is_some() {
                    // On a disk that is nearly full it may fail again soon.
                    self.failed = Some(self.journal.options.clock.now());
                }
                let dead = || matches!(stop.try_recv(), Err(TryRecvError::Disconnected));
                match self.compact(table, &dead) {
                    Ok(Ok(())) => {}
                    Ok(Err(Stopped)) => return,
                    Err(error) => self.note_failure(&error),
                }
            }
        }
    }

    /// A compaction has failed, and is tried again. That is logged once, and not every few seconds to a disk that may be the same one; the
    /// report of a log that has failed has the reason as of now.
    pub(super) fn note_failure(&mut self, error: &JournalError) {
        self.failed = Some(self.journal.options.clock.now());
        match self.journal.remedy.lock().replace(error.to_string()) {
            None => tracing::error!(
                "the log of flows cannot be compacted, which is tried again every {} s: {error}",
                HEAL.as_secs()
            ),
            Some(_) => tracing::debug!("the log of flows cannot be compacted: {error}"),
        }
    }

    /// Fails if the log cannot be written anew so that room stays for the next time: a disk that is half taken by what was written
    /// last could not heal.
    fn check_room(&mut self, table: &FlowTable, stops: &dyn Fn() -> bool) -> Result<(), JournalError> {
        // What a flow takes is guessed until the log was written anew once, and on a small disk a good guess is not good enough.
        let mut bytes = 0;
        let header = Header { contents: Contents::Everything, number: 0, first: 0 };
        let count = &mut |chunk: &[u8]| {
            bytes += chunk.len() as u64;
            Ok(())
        };
        let counted = self.encode_everything(table, header, count, stops);
        let records = counted.map_err(failed("measure", &self.journal.folder.path()))?;
        let reserved = {
            let mut reserve = self.journal.reserve.lock();
            reserve.learn(bytes, records);
            reserve.bytes()
        };
        let (need, room) = ((bytes + Reserve::PIECE) * 2, self.journal.folder.room()? + reserved);
        if room < need {
            return Err(JournalError::NoRoom { folder: self.journal.folder.path(), need, room });
        }
        Ok(())
    }

    fn sync_if_due(&mut self) {
        let (now, interval) = (self.journal.options.clock.now(), self.journal.options.sync_interval);
        if now.since(self.synced) >= interval {
            self.synced = now;
            self.journal.sync();
        }
    }

    /// Notes that the agent is alive, where the next run looks for that; and whether the file is still there.
    pub(super) fn touch_if_due(&mut self) {
        let now = self.journal.options.clock.now();
        if now.since(self.touched) < HEARTBEAT {
            return;
        }
        self.touched = now;
        let file = self.journal.active.lock().file.as_ref().map(|log| (log.path.clone(), log.file.clone()));
        let Some((path, file)) = file else { return };
        if is_gone(&path, &file) {
            self.journal.fail(&mut self.journal.active.lock(), &JournalError::Gone(path));
            return;
        }
        let touched = file.set_modified((self.journal.options.wall)());
        // Once, and not every few seconds to a disk that is read-only by now.
        if let (Err(error), true) = (&touched, self.is_touched) {
            tracing::warn!(
                "cannot set the time of the log of flows, so the next start does not know how long no agent ran: {error}"
            );
        }
        self.is_touched = touched.is_ok();
    }

    /// Looks whether somebody has moved the report of the damage away.
    pub(super) fn look_at_damage(&self) {
        let damage = self.journal.damage.lock().clone();
        let Some(DamageReport { report, unwritten: None, .. }) = damage else { return };
        // Not while it cannot be known, as on a disk that fails.
        if matches!(report.try_exists(), Ok(false)) {
            *self.journal.damage.lock() = None;
            tracing::info!("{} was moved away: the damage is dealt with", report.display());
        }
    }

    /// Looks whether somebody has set the wall clock, such as NTP on a machine whose own is wrong after each boot. What is written anew is
    /// dated anew, so that the next run does not take flows for older or younger than they are.
    pub(super) fn look_at_clocks(&mut self) {
        let (now, wall) = self.journal.now();
        let (then, wall_then) = std::mem::replace(&mut self.clocks, (now, wall));
        let elapsed = now.since(then);
        let is_ahead = wall.since(wall_then) > elapsed + SET;
        let is_behind = elapsed > wall.since(wall_then) + SET || wall_then.since(wall) > SET;
        if is_ahead || is_behind {
            tracing::info!(
                "the wall clock was set, or the machine slept: the log of flows is written anew with times by the new one"
            );
            self.is_misdated = true;
        }
    }

    pub(super) fn is_compaction_due(&self, table: &FlowTable) -> bool {
        let now = self.journal.options.clock.now();
        if self.failed.is_some_and(|failed| now.since(failed) < HEAL) {
            return false;
        }
        // Flows of sources have no records.
        let live = table.census().logged() as u64;
        let dead = self.journal.counts.records.load(Ordering::Relaxed).saturating_sub(live);
        let given_up = self.journal.lag().given_up > 0;
        if given_up && self.journal.pace.passed() != self.journal.unwritten.given_up() {
            // What is in the queue has yet to be written, for it is not in order.
            return false;
        }
        given_up
            || self.journal.failure.lock().is_some()
            || self.journal.is_damaged.load(Ordering::Relaxed)
            || self.is_misdated
            || dead > live.max(DEAD_ALLOWED)
            || self.older_files >= FILES_ALLOWED
    }

    /// Writes what is wanted to a file of its own, which then replaces those before the active one. Whatever happens on the
    /// way, the files say the same.
    pub(super) fn compact(
        &mut self,
        table: &FlowTable,
        stops: &dyn Fn() -> bool,
    ) -> Result<Result<(), Stopped>, JournalError> {
        let began = self.journal.options.clock.now();
        if self.journal.failure.lock().is_some() {
            self.check_room(table, stops)?;
        }
        let first_of = |number| {
            let active = self.journal.active.lock();
            active.file.as_ref().filter(|_| active.number == number).map(|file| file.header.first)
        };
        let begun = self.begun.and_then(|(finished, passed)| Some((finished, passed, first_of(finished + 1)?)));
        let (finished, passed, first) = match begun {
            // What is missing in older files is in the table, and the new file is whole so far.
            Some(begun) => begun,
            None => {
                let passed = self.journal.pace.passed();
                let (finished, first) = self.rotate()?;
                (finished, passed, first)
            }
        };
        self.begun = Some((finished, passed));
        let path = self.journal.folder.replacement(finished);
        let lent = self.journal.reserve.lock().lend(&path);
        let file =
            lent.map_err(failed("write", &path)).inspect_err(|_| self.journal.reserve.lock().take_back(&path))?;
        let header = Header { contents: Contents::Everything, number: finished, first };
        let written = self.write_everything(table, header, (&path, &file), stops);
        if !matches!(written, Ok(Ok(_))) {
            self.journal.reserve.lock().take_back(&path);
        }
        let Ok((records, bytes)) = written? else { return Ok(Err(Stopped)) };
        {
            let mut reserve = self.journal.reserve.lock();
            reserve.spend();
            reserve.learn(bytes, records);
        }
        self.journal.folder.finish_replacement(&path, finished)?;
        self.begun = None;
        self.journal.pace.have_made_up_for(passed);
        self.older_files = 1;
        self.journal.is_damaged.store(false, Ordering::Relaxed);
        self.is_misdated = false;
        *self.journal.remedy.lock() = None;
        let before = self.count_anew(records);
        let after = self.journal.counts.records.load(Ordering::Relaxed);
        self.journal.counts.compactions.fetch_add(1, Ordering::Relaxed);
        let took = self.journal.options.clock.now().since(began).as_secs_f64();
        tracing::info!("log of flows compacted from {before} records to {after} in {took:.3} s");
        Ok(Ok(()))
    }

    /// Everything that is wanted is in so many records and in the active file. Gives how many records there were before.
    fn count_anew(&self, records: u64) -> u64 {
        let active = self.journal.active.lock();
        let Some(file) = &active.file else {
            // It has failed meanwhile, and with it what came after.
            return self.journal.counts.records.swap(records, Ordering::Relaxed);
        };
        if let Some(failure) = self.journal.failure.lock().take() {
            tracing::warn!("flows survive a restart again; before: {failure}");
        }
        self.journal.counts.records.swap(records + file.records, Ordering::Relaxed)
    }

    /// Has changes go to a new file from now on. Gives the number of the last one before, and that of the first record of the new
    /// one.
    pub(super) fn rotate(&mut self) -> Result<(u64, u64), JournalError> {
        // Only this thread changes the number.
        let finished = self.journal.active.lock().number;
        let begin = || {
            let made = LogFile::make(&self.journal.folder, finished + 1)?;
            self.journal.active.lock().go_on_in(made)
        };
        // The first number is of the moment at which the file begins: who writes goes on at once.
        let (old, first) = match begin() {
            // A file that is empty yet needs a little room, too.
            Err(_) if self.journal.reserve.lock().give_way() => begin()?,
            begun => begun?,
        };
        self.journal.is_unsynced.store(true, Ordering::Release);
        self.older_files += 1;
        // What is in the old file stays what it is until it is replaced, also if the machine dies.
        if let Some(old) = old
            && let Err(error) = old.file.sync_data()
        {
            let error = failed("sync", &old.path)(error);
            self.journal.fail(&mut self.journal.active.lock(), &error);
            return Err(error);
        }
        Ok((finished, first))
    }

    /// Writes what is wanted to a file with this header and syncs it. Gives the numbers of records and of bytes, unless `stops`
    /// says that it is in vain.
    pub(super) fn write_everything(
        &mut self,
        table: &FlowTable,
        header: Header,
        (path, file): (&Path, &File),
        stops: &dyn Fn() -> bool,
    ) -> Result<Result<(u64, u64), Stopped>, JournalError> {
        let mut out = file;
        let written = self.encode_everything(table, header, &mut |chunk| out.write_all(chunk), stops);
        let written = written.and_then(|records| {
            let bytes = out.stream_position()?;
            // What was reserved and is not needed.
            file.set_len(bytes)?;
            file.sync_data()?;
            Ok((records, bytes))
        });
        let written = written.map_err(failed("write", path))?;
        Ok(if stops() { Err(Stopped) } else { Ok(written) })
    }

    /// Encodes what is wanted, a chunk at a time, until `stops` says that it is in vain. Gives the number of records.
    fn encode_everything(
        &mut self,
        table: &FlowTable,
        header: Header,
        write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
        stops: &dyn Fn() -> bool,
    ) -> io::Result<u64> {
        let mut encoder = Encoder::of(header, None);
        let mut buffer = Vec::with_capacity(CHUNK + CHUNK / 4);
        buffer.extend_from_slice(&header.to_bytes());
        let mut records = 0;
        let mut result = Ok(());
        table.visit(&mut |view| {
            if view.state != FlowState::Deleting && view.flow.origin.is_logged() {
                let (now, wall) = self.journal.now();
                let accepted = wall.before(now.since(view.accepted));
                // One that cannot be written was told of when it was accepted.
                records += u64::from(encoder.wanted(&mut buffer, &view.flow, accepted, &view.gone_ports).is_ok());
            }
            if buffer.len() >= CHUNK {
                result = write(&buffer);
                buffer.clear();
                self.progress.waits_for_disk();
                self.sync_if_due();
                if result.is_err() || stops() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        encoder.end(&mut buffer);
        result.and_then(|()| write(&buffer)).map(|()| records)
    }
}

/// Whether there is another file by now under the name of an open one, or none. Not if that cannot be known, as on a disk that fails.
fn is_gone(path: &Path, file: &File) -> bool {
    let Ok(open) = file.metadata() else { return false };
    match fs::metadata(path) {
        Ok(named) => (named.dev(), named.ino()) != (open.dev(), open.ino()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
