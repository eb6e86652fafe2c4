//! The thread that writes.

use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, select};

use super::folder::failed;
use super::record::Encoder;
use super::{Active, Journal, Note};
use crate::liveness::Progress;

/// How long a change may lie that nobody waits for: the end of a flow that has aged, above all.
const TICK: Duration = Duration::from_millis(100);

/// Bytes that are written in one go.
const CHUNK: usize = 1 << 20;

/// Writes what is noted. See the [module](super).
pub struct Writer {
    journal: Arc<Journal>,
    notes: Receiver<Note>,
    wake: Receiver<()>,
    buffer: Vec<u8>,
}

impl Writer {
    pub(super) fn new(journal: Arc<Journal>, notes: Receiver<Note>, wake: Receiver<()>) -> Self {
        Self { journal, notes, wake, buffer: Vec::with_capacity(CHUNK) }
    }

    /// Writes until `stop` is disconnected, and then what is left.
    pub fn run(mut self, stop: &Receiver<Infallible>, progress: &Progress) {
        loop {
            progress.rests();
            let (is_last, is_idle) = select! {
                recv(self.wake) -> _ => (false, false),
                recv(stop) -> _ => (true, false),
                default(TICK) => (false, true),
            };
            progress.works();
            let asked = self.journal.progress.lock().asked;
            // What is noted later is of later requests.
            let mut left = self.notes.len();
            if left == 0 && is_idle {
                self.write_last(Encoder::index);
            }
            while left > 0 {
                self.write_chunk(&mut left);
                progress.works();
            }
            if is_last {
                self.write_last(Encoder::end);
                self.journal.sync();
            }
            self.journal.progress.lock().done = asked;
            self.journal.written.notify_all();
            if is_last {
                return;
            }
        }
    }

    /// Writes what follows the last record for now.
    fn write_last(&mut self, append: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let mut active = self.journal.active.lock();
        self.buffer.clear();
        if let Some(file) = &mut active.file {
            append(&mut file.encoder, &mut self.buffer);
        }
        if !self.buffer.is_empty() {
            self.journal.write(&mut active, &self.buffer, 0);
        }
    }

    fn write_chunk(&mut self, left: &mut usize) {
        let journal = &*self.journal;
        let (_, now) = journal.now();
        let mut active = journal.active.lock();
        let mut count = 0;
        self.buffer.clear();
        while *left > 0 && self.buffer.len() < CHUNK {
            let Ok(note) = self.notes.try_recv() else {
                *left = 0;
                break;
            };
            *left -= 1;
            count += 1;
            let Some(file) = &mut active.file else { continue };
            let (flow, gone_ports) = match &note {
                Note::Wanted(flow) => (flow, &[][..]),
                Note::Withheld(withheld) => (&withheld.0, &*withheld.1),
                Note::Unwanted(flow) => {
                    file.encoder.unwanted(&mut self.buffer, flow.ufid);
                    continue;
                }
            };
            if let Err(error) = file.encoder.wanted(&mut self.buffer, flow, now, gone_ports) {
                tracing::error!("{error}");
                journal.counts.unkept.fetch_add(1, Ordering::Relaxed);
                // What the log says of it is no longer true in any case.
                file.encoder.unwanted(&mut self.buffer, flow.ufid);
            }
        }
        journal.write(&mut active, &self.buffer, count);
    }
}

impl Journal {
    fn write(&self, active: &mut Active, records: &[u8], count: u64) {
        let Some(log) = &mut active.file else {
            self.counts.unkept.fetch_add(count, Ordering::Relaxed);
            active.leave_out(count);
            return;
        };
        let result = (&*log.file).write_all(records).map_err(failed("write", &log.path)).and_then(|()| {
            if !self.options.sync_interval.is_zero() {
                self.is_unsynced.store(true, Ordering::Release);
                return Ok(());
            }
            self.counts.syncs.fetch_add(1, Ordering::Relaxed);
            log.file.sync_data().map_err(failed("sync", &log.path))
        });
        match result {
            Ok(()) => {
                log.records += count;
                self.counts.records.fetch_add(count, Ordering::Relaxed);
                self.counts.written.fetch_add(count, Ordering::Relaxed);
                self.counts.octets.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                self.fail(active, &error);
                self.counts.unkept.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}
