//! Keeps the file up to date with the objects in force.

use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluice_journal::Journal;

use super::file::ObjectsFile;
use super::set::Objects;

/// Writes the file, on the thread that is woken for that as soon as there is one.
pub(super) struct Keeper {
    file: ObjectsFile,
    journal: Option<Arc<Journal>>,
    /// How long the journal is waited for, and the disk by who does not write.
    patience: Duration,
    state: Mutex<State>,
    /// Told when it was tried to write the file.
    was_tried: Condvar,
    /// Held while the file is written, so that older objects are never written over newer ones.
    writing: Mutex<()>,
    waker: OnceLock<Waker>,
}

#[derive(Default)]
struct State {
    /// The objects that are to be kept, if the file does not have them yet.
    unkept: Option<Arc<Objects>>,
    /// How many changes there were, up to which of them it was tried to write the file, and up to which it was written.
    noted: u64,
    tried: u64,
    kept: u64,
    /// Why the file could not be written the last time.
    failure: Option<String>,
}

impl Keeper {
    pub(super) fn new(file: ObjectsFile, (journal, patience): (Option<Arc<Journal>>, Duration)) -> Self {
        let (state, was_tried, writing, waker) = Default::default();
        Self { file, journal, patience, state, was_tried, writing, waker }
    }

    pub(super) const fn file(&self) -> &ObjectsFile {
        &self.file
    }

    /// Takes note of the objects that are to be kept from now on, once what became of flows by that is in the table.
    pub(super) fn note(&self, objects: Arc<Objects>) {
        let mut state = self.state.lock();
        state.unkept = Some(objects);
        state.noted += 1;
    }

    /// Writes the file if it is behind. Waits for the disk, however long that takes.
    pub(super) fn keep(&self) -> Result<(), String> {
        let _one_at_a_time = self.writing.lock();
        let (unkept, noted) = {
            let state = self.state.lock();
            (state.unkept.clone(), state.noted)
        };
        let Some(objects) = unkept else { return Ok(()) };
        let written = self.write(&objects);
        let mut state = self.state.lock();
        state.tried = noted;
        match &written {
            Ok(()) => {
                state.kept = noted;
                state.unkept.take_if(|newest| Arc::ptr_eq(newest, &objects));
                if state.failure.take().is_some() {
                    tracing::info!("ports, meters, mirrors and timeout policies survive a restart again");
                }
            }
            Err(error) => state.fail(error),
        }
        self.was_tried.notify_all();
        written
    }

    /// Waits until the thread that is woken has written what there is to be kept, or has tried to: not for ever, for a disk may hang, and
    /// each caller would be one more that hangs with it. Before there is such a thread, the caller writes.
    pub(super) fn wait(&self) -> Result<(), String> {
        let Some(waker) = self.waker.get() else { return self.keep() };
        let mut state = self.state.lock();
        if state.unkept.is_none() {
            return Ok(());
        }
        let wanted = state.noted;
        waker.wake_by_ref();
        let waited = self.was_tried.wait_while_for(&mut state, |state| state.tried < wanted, self.patience);
        if state.kept >= wanted {
            return Ok(());
        }
        if waited.timed_out() {
            let late = format!("the disk of {} does not answer", self.file.path().display());
            state.fail(&late);
        }
        Err(state.failure.clone().unwrap_or_default())
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

impl State {
    /// Notes why the file could not be written, and tells of it unless that was told before.
    fn fail(&mut self, reason: &str) {
        if self.failure.as_deref() != Some(reason) {
            tracing::error!("ports, meters, mirrors and timeout policies do not survive a restart: {reason}");
            self.failure = Some(reason.to_owned());
        }
    }
}
