//! A table that survives: what is wanted, in a log in the state folder, read back at the next start.
//!
//! A change to what is wanted puts the slot of its flow into a [queue](Unwritten), without a system call and without a lock that
//! flows share. The [writer](Writer) takes the slots in turn, makes records of what is wanted by then and writes them in one go;
//! who must know that its request is safe from the agent's death [waits](Journal::wait) for that. A disk that hangs makes the log
//! fall [behind](Lag), which is told; the queue cannot outgrow the table.
//! The [keeper](Keeper) syncs the disk at an interval, which bounds what the death of the whole machine takes, and compacts.
//!
//! The log is a folder of numbered files, read in order. A new one is begun at each start and by each
//! compaction, so that nothing is ever written behind a torn end. A compaction writes what the table wants by then to a
//! file aside and renames it over the last finished one; it says of itself that it holds everything, so that older files
//! may go or stay. What is accepted meanwhile is in the new file, and reading a change twice does no harm.
//!
//! Records are numbered and each file says where it continues, so that a reader notices what is missing, be it a
//! record or a file. It goes on behind the damage, and an index that follows every few records tells what the missing ones were:
//! a deletion is done all the same, and a flow whose last change is lost is not wanted any more, for what it did before is not
//! what it was to do. Where nothing tells, the flows that were wanted before are wanted again and are listed as in doubt. A
//! damaged file is kept aside, and the agent is not ready until somebody has [seen to it](DamageReport).
//! What a crash leaves of the last file, a tail that is short or zero, is no damage.
//!
//! Embedded stores were measured on records of this size (1,000,000 in batches of 1,000, keyed by UFID, without syncs). To write
//! them took redb 4.4 about 70 times and fjall 3.1 about 20 times as long as appending them; to read them all, redb a third as
//! long and fjall five times as long as reading the log into a map. The table is the index, so that a log is enough.
//!
//! If the disk takes no more, flows are taken on all the same and the agent says loudly that they will not survive: in
//! the log, in `/readyz` and in a metric. Traffic goes first, and once there is room again the table is written anew. Room for
//! that is reserved, so that the log alone never fills a disk beyond healing.
//!
//! # Example
//!
//! Two runs: what the first accepts, the second wants again.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::{Duration, SystemTime};
//!
//! use sluice_flow::table::Limits;
//! use sluice_flow::time::{Clock, MonotonicClock};
//! use sluice_flow::ufid::Seed;
//! use sluice_flow::{Expiry, Flow, FlowTable, MaskedKey, Priority, text};
//! use sluice_host::lifecycle::Lifecycle;
//! use sluice_journal::{Journal, JournalOptions};
//!
//! let folder = tempfile::tempdir()?;
//! let runtime = tokio::runtime::Runtime::new()?;
//! let (seed, clock) = (Seed([7; 16]), Arc::new(MonotonicClock::new()));
//! let start = || -> Result<_, Box<dyn std::error::Error>> {
//!     let options =
//!         JournalOptions { sync_interval: Duration::ZERO, clock: clock.clone(), wall: Arc::new(SystemTime::now) };
//!     let opened = Journal::open(&folder.path().join("flows"), options)?;
//!     let journal = opened.journal.clone();
//!     let limits = Limits { flows: 10, unsettled: 10 };
//!     let table = Arc::new(FlowTable::new(seed, limits, Arc::new(())).kept_by(Some(journal.unwritten())));
//!     let mut lifecycle = Lifecycle::new(runtime.handle().clone());
//!     opened.run(&table, |flow, accepted| table.restore(flow, accepted, clock.now()).map(|_| ()), &mut lifecycle)?;
//!     Ok((journal, table, lifecycle))
//! };
//!
//! let (journal, table, lifecycle) = start()?;
//! let matching = text::parse_key("in_port(1),eth_type(0x0800)", &())?.matching;
//! let actions = text::parse_actions("2", &())?;
//! table.add(Flow::new(None, MaskedKey::new(&matching), actions, Priority::default(), Expiry::default(), &seed), clock.now(), None)?;
//! journal.wait(Duration::from_secs(10))?;
//! runtime.block_on(lifecycle.stop());
//! drop((journal, table));
//!
//! let (_journal, table, _lifecycle) = start()?;
//! assert_eq!(table.census().live(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bytes;
mod compact;
mod damage;
mod error;
mod folder;
mod frame;
mod lag;
mod load;
mod loss;
mod record;
mod reserve;
mod restore;
mod writer;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Sender, TrySendError, bounded};
use parking_lot::{Condvar, Mutex};
use sluice_flow::table::{TableError, Unwritten};
use sluice_flow::{Clock, Flow, FlowTable, Timestamp};

pub use self::compact::Keeper;
pub use self::damage::DamageReport;
pub use self::error::JournalError;
pub use self::lag::Lag;
pub use self::record::{NotWritable, RecordError};
pub use self::restore::{Damage, Restored, Saved};
pub use self::writer::Writer;

use sluice_host::lifecycle::{Lifecycle, Stop};

use self::error::failed;
use self::folder::Folder;
use self::frame::{Contents, Header};
use self::lag::Pace;
use self::load::Log;
use self::record::{Encoder, OpenIndex};
use self::reserve::Reserve;

/// Slots of the table that are kept for the ends of flows that are not written, at most: 25 MB. A disk that hangs for long costs
/// that; the log is written anew when it answers again.
const MOST_KEPT: usize = 1 << 17;

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

/// The log of what is wanted. See the [module](self).
pub struct Journal {
    folder: Folder,
    options: JournalOptions,
    /// What the table has to tell.
    unwritten: Arc<Unwritten>,
    wake: Sender<()>,
    requests: Mutex<Requests>,
    pace: Pace,
    written: Condvar,
    active: Mutex<Active>,
    /// Room for one compaction.
    reserve: Mutex<Reserve>,
    /// What is to be done about the failure.
    remedy: Mutex<Option<String>>,
    /// Something was written that is not synced.
    is_unsynced: AtomicBool,
    /// Why the log is not whole. Apart from the file, so that it can be told while a disk hangs.
    failure: Mutex<Option<String>>,
    /// What earlier damage has cost, until somebody has seen to it.
    damage: Mutex<Option<DamageReport>>,
    /// The files are damaged, and have yet to be compacted.
    is_damaged: AtomicBool,
    counts: Counts,
    restored: Mutex<Restored>,
}

/// What is opened with a log, each to be used once.
pub struct Opened {
    /// The log.
    pub journal: Arc<Journal>,
    /// What earlier runs have left.
    pub saved: Saved,
    /// Writes; to be run.
    pub writer: Writer,
    /// Syncs and compacts; to be run.
    pub keeper: Keeper,
}

/// The log was not written in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("accepted, but not written to the log of flows within {} s", .0.as_secs())]
pub struct NotWritten(Duration);

/// How the log does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalReport {
    /// Records in the files, dead ones included.
    pub records: u64,
    /// Records written by this run, compactions aside.
    pub written: u64,
    /// Bytes written by this run, compactions aside.
    pub bytes: u64,
    /// Times that the disk was synced.
    pub syncs: u64,
    /// Bytes that are reserved for the next compaction.
    pub reserved: u64,
    /// Compactions.
    pub compactions: u64,
    /// Records that could not be written. A compaction makes up for them.
    pub unkept: u64,
    /// Why the log is not whole, or too far behind; `None` if it is well.
    pub failure: Option<String>,
    /// How far it is behind.
    pub lag: Lag,
    /// What damage to the files has cost, until its report is removed.
    pub damage: Option<DamageReport>,
    /// What was there at the start.
    pub restored: Restored,
}

/// Requests to hear when everything so far is written, and how many are answered.
#[derive(Default)]
struct Requests {
    asked: u64,
    done: u64,
}

/// The file that is written.
struct Active {
    number: u64,
    /// `None` after an error: nothing is ever written behind a record that may be half there.
    file: Option<LogFile>,
    /// Without a file: the number of the next record, and what no index covers of those before.
    rest: (u64, OpenIndex),
}

struct LogFile {
    path: PathBuf,
    file: Arc<File>,
    header: Header,
    encoder: Encoder,
    records: u64,
}

#[derive(Default)]
struct Counts {
    /// In the files.
    records: AtomicU64,
    written: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
    compactions: AtomicU64,
    unkept: AtomicU64,
}

impl Opened {
    /// How long a part may take to stop: a disk may be slow.
    const STOP_DEADLINE: Duration = Duration::from_secs(6);

    /// Has `take` take on what earlier runs have left, with the time of its acceptance on the table's clock, and runs the log of
    /// that table. To be called before anything else changes the table.
    pub fn run(
        self,
        table: &Arc<FlowTable>,
        take: impl Fn(Flow, Timestamp) -> Result<(), TableError> + Sync,
        lifecycle: &mut Lifecycle,
    ) -> Result<(), JournalError> {
        let Self { saved, writer, keeper, journal } = self;
        let withheld = saved.withheld();
        saved.restore(table.seed(), take)?;
        for (ufid, ports) in withheld {
            table.withhold_one(ufid, ports, journal.options.clock.now());
        }
        let failed = |source| JournalError::Failed { doing: "start a thread for", path: journal.folder.path(), source };
        let for_writer = table.clone();
        let writes = move |stop: Stop| {
            writer.run(&for_writer, stop.channel(), stop.progress());
            Ok(())
        };
        lifecycle.thread("journal", Self::STOP_DEADLINE, writes).map_err(failed)?;
        let for_keeper = table.clone();
        let keeps = move |stop: Stop| {
            keeper.run(&for_keeper, stop.channel(), stop.progress());
            Ok(())
        };
        lifecycle.thread("journal-keeper", Self::STOP_DEADLINE, keeps).map_err(failed)
    }
}

impl Journal {
    /// Opens the log in a folder, made if need be. A log that cannot be read is left as it is.
    pub fn open(path: &Path, options: JournalOptions) -> Result<Opened, JournalError> {
        Self::open_keeping(path, options, MOST_KEPT)
    }

    /// The same, with at most so many slots that are kept for the ends of flows.
    fn open_keeping(path: &Path, options: JournalOptions, most_kept: usize) -> Result<Opened, JournalError> {
        let began = options.clock.now();
        let folder = Folder::claim(path)?;
        let numbers = folder.files()?;
        let log = Log::read(&folder, &numbers)?;
        let last = numbers.last().copied().unwrap_or(0);
        let number = last.checked_add(1).ok_or_else(|| JournalError::NoNumber(folder.file(last)))?;
        let loss = log.loss();
        if let Some(loss) = &loss {
            folder.keep_damaged_aside(loss);
        }
        if last > 0 {
            // What the next file continues is on the disk before it.
            let path = folder.file(last);
            File::open(&path).and_then(|file| file.sync_data()).map_err(failed("sync", &path))?;
        }
        // A disk without room keeps no agent from starting, either.
        let rest = log.rest();
        let reserve = Reserve::of(&folder.path());
        let begun = LogFile::make(&folder, number).and_then(|made| LogFile::begin(made, rest.clone()));
        let (file, failure) = match begun {
            Ok(file) => (Some(file), None),
            Err(error) => {
                tracing::error!("flows do not survive a restart from now on: {error}");
                (None, Some(error.to_string()))
            }
        };
        let counts = Counts { records: log.summary.records.into(), ..Counts::default() };
        let (wake, woken) = bounded(1);
        let call = wake.clone();
        // A bell that is full has been rung. A writer that is gone has taken the agent down with it.
        let (unwritten, reader) = Unwritten::new(most_kept, move || {
            let _ = call.try_send(());
        });
        let pace = Pace::new(options.clock.now());
        let journal = Arc::new(Self {
            folder,
            options,
            unwritten,
            wake,
            requests: Mutex::default(),
            pace,
            written: Condvar::new(),
            active: Mutex::new(Active { number, file, rest }),
            reserve: Mutex::new(reserve),
            remedy: Mutex::default(),
            is_unsynced: AtomicBool::new(true),
            failure: Mutex::new(failure),
            damage: Mutex::default(),
            is_damaged: AtomicBool::new(loss.is_some()),
            counts,
            restored: Mutex::default(),
        });
        Ok(Opened {
            keeper: Keeper::new(journal.clone(), log.summary.files),
            saved: Saved::new(log, journal.clone(), began),
            writer: Writer::new(journal.clone(), reader, woken),
            journal,
        })
    }

    /// Where the table that is kept puts what has changed.
    pub fn unwritten(&self) -> Arc<Unwritten> {
        self.unwritten.clone()
    }

    /// Waits until all that was changed before is written, which it then is even if the agent is killed; or until it is clear
    /// that it cannot be written, which the [report](Journal::report) says. Does not wait for a log that is late already.
    pub fn wait(&self, at_most: Duration) -> Result<(), NotWritten> {
        if let Some(lag) = self.is_late() {
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

    fn now(&self) -> (Timestamp, record::WallTime) {
        (self.options.clock.now(), (self.options.wall)().into())
    }

    /// Puts what was written so far on the disk, if it is not there already.
    fn sync(&self) {
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
    fn fail(&self, active: &mut Active, error: &JournalError) {
        active.close();
        if self.failure.lock().replace(error.to_string()).is_none() {
            tracing::error!("flows do not survive a restart from now on: {error}");
        }
    }
}

impl Active {
    /// Nothing more is written to the file.
    fn close(&mut self) {
        self.rest = self.rest();
        self.file = None;
    }

    /// So many changes are not written, for there is no file: a reader finds that their numbers are missing.
    fn leave_out(&mut self, records: u64) {
        let next = self.rest.0 + records;
        self.rest = (next, OpenIndex::from(next));
    }

    /// The number of the next record, and what no index covers of those before.
    fn rest(&self) -> (u64, OpenIndex) {
        self.file.as_ref().map_or_else(|| self.rest.clone(), |file| file.encoder.rest())
    }

    /// Has changes go to another file from now on; gives the one before. If that fails nothing is changed.
    fn go_on_in(&mut self, made: MadeFile) -> Result<Option<LogFile>, JournalError> {
        let next = LogFile::begin(made, self.rest())?;
        self.number = next.header.number;
        Ok(self.file.replace(next))
    }
}

/// A file that is empty yet.
struct MadeFile {
    number: u64,
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn make(folder: &Folder, number: u64) -> Result<MadeFile, JournalError> {
        Ok(MadeFile { number, path: folder.file(number), file: folder.begin(number)? })
    }

    /// Begins a file of changes whose first record follows what `rest` says.
    fn begin(made: MadeFile, (first, tail): (u64, OpenIndex)) -> Result<Self, JournalError> {
        let MadeFile { number, path, mut file } = made;
        let header = Header { contents: Contents::Changes, number, first };
        if let Err(error) = file.write_all(&header.to_bytes()) {
            std::fs::remove_file(&path).unwrap_or_default();
            return Err(failed("write", &path)(error));
        }
        Ok(Self { path, file: Arc::new(file), header, encoder: Encoder::of(header, Some(tail)), records: 0 })
    }
}

#[cfg(test)]
mod tests;
