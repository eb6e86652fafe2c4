//! A log is opened and run.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::bounded;
use parking_lot::{Condvar, Mutex};
use sluice_flow::table::{TableError, Unwritten};
use sluice_flow::{Flow, FlowTable, Timestamp};

use super::active::{Active, LogFile};
use super::compact::Keeper;
use super::error::{JournalError, failed};
use super::folder::Folder;
use super::journal::{Counts, Journal, JournalOptions};
use super::lag::Pace;
use super::load::Log;
use super::reserve::Reserve;
use super::restore::Saved;
use super::writer::Writer;
use sluice_host::lifecycle::{Lifecycle, Stop};

/// Slots of the table that are kept for the ends of flows that are not written, at most: 25 MB. A disk that hangs for long costs
/// that; the log is written anew when it answers again.
const MOST_KEPT: usize = 1 << 17;

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

impl Journal {
    /// Opens the log in a folder, made if need be. A log that cannot be read is left as it is.
    pub fn open(path: &Path, options: JournalOptions) -> Result<Opened, JournalError> {
        Self::open_keeping(path, options, MOST_KEPT)
    }

    /// The same, with at most so many slots that are kept for the ends of flows.
    pub(super) fn open_keeping(path: &Path, options: JournalOptions, most_kept: usize) -> Result<Opened, JournalError> {
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
