//! Keeps the file up to date with the objects in force.

use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_journal::Journal;

use super::file::ObjectsFile;
use super::set::Objects;

/// Writes the file: for a caller who waits for the disk, or on the thread that is woken for those who do not.
pub(super) struct Keeper {
    file: ObjectsFile,
    journal: Option<Arc<Journal>>,
    /// How long the journal is waited for.
    patience: Duration,
    state: Mutex<State>,
    /// Held while the file is written, so that older objects are never written over newer ones.
    writing: Mutex<()>,
    waker: OnceLock<Waker>,
}

#[derive(Default)]
struct State {
    /// The objects that are to be kept, if the file does not have them yet.
    unkept: Option<Arc<Objects>>,
    /// Why the file could not be written the last time.
    failure: Option<String>,
}

impl Keeper {
    pub(super) fn new(file: ObjectsFile, (journal, patience): (Option<Arc<Journal>>, Duration)) -> Self {
        let (state, writing, waker) = Default::default();
        Self { file, journal, patience, state, writing, waker }
    }

    pub(super) const fn file(&self) -> &ObjectsFile {
        &self.file
    }

    /// Takes note of the objects that are to be kept from now on, once what became of flows by that is in the table.
    pub(super) fn note(&self, objects: Arc<Objects>) {
        self.state.lock().unkept = Some(objects);
    }

    /// Writes the file if it is behind. Waits for the disk.
    pub(super) fn keep(&self) -> Result<(), String> {
        let _one_at_a_time = self.writing.lock();
        let Some(objects) = self.state.lock().unkept.clone() else { return Ok(()) };
        let written = self.write(&objects);
        let mut state = self.state.lock();
        match &written {
            Ok(()) => {
                state.unkept.take_if(|newest| Arc::ptr_eq(newest, &objects));
                if state.failure.take().is_some() {
                    tracing::info!("ports, meters, mirrors and timeout policies survive a restart again");
                }
            }
            Err(error) => {
                if state.failure.replace(error.clone()).is_none() {
                    tracing::error!("ports, meters, mirrors and timeout policies do not survive a restart: {error}");
                }
            }
        }
        written
    }

    fn write(&self, objects: &Objects) -> Result<(), String> {
        // First the flows that wait for a port that is gone: until the file is replaced, the port is there for the next run.
        let journaled = self.journal.as_ref().map_or(Ok(()), |journal| journal.wait(self.patience));
        journaled.map_err(|error| error.to_string())?;
        self.file.save(objects).map_err(|error| error.to_string())
    }

    /// Has this woken when somebody does not wait for the disk, or has waited in vain.
    pub(super) fn set_waker(&self, waker: Waker) {
        // There is one thread for it.
        let _ = self.waker.set(waker);
    }

    pub(super) fn wake(&self) {
        self.waker.get().into_iter().for_each(Waker::wake_by_ref);
    }

    /// Why the file is behind; `None` if it is not, or not for long.
    pub(super) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }
}
