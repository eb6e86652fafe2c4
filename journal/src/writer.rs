//! The thread that writes.

use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, select};
use sluice_flow::table::{Mark, UnwrittenReader};
use sluice_flow::{FlowTable, Wish};

use super::active::Active;
use super::error::failed;
use super::journal::Journal;
use super::record::Encoder;
use sluice_host::liveness::Progress;

/// How long a change may lie that nobody waits for: the end of a flow that has aged, above all.
const TICK: Duration = Duration::from_millis(100);
/// The same of the first one after nothing has changed for that long: an agent at rest does not wake its processor for a log that is written.
const TICK_AT_REST: Duration = Duration::from_secs(1);

/// Bytes that are written in one go.
const CHUNK: usize = 1 << 20;

/// Writes what the table has to tell. See the [module](super).
pub struct Writer {
    journal: Arc<Journal>,
    reader: UnwrittenReader,
    wake: Receiver<()>,
    buffer: Vec<u8>,
    /// Ends that the table gave up, as far as the log tells of them.
    given_up: usize,
}

impl Writer {
    pub(super) fn new(journal: Arc<Journal>, reader: UnwrittenReader, wake: Receiver<()>) -> Self {
        Self { journal, reader, wake, buffer: Vec::with_capacity(CHUNK), given_up: 0 }
    }

    /// Writes until `stop` is disconnected, and then what is left.
    pub fn run(mut self, table: &FlowTable, stop: &Receiver<Infallible>, progress: &Progress) {
        let mut tick = TICK;
        loop {
            progress.rests();
            let (is_last, is_idle) = select! {
                recv(self.wake) -> _ => (false, false),
                recv(stop) -> _ => (true, false),
                default(tick) => (false, true),
            };
            progress.waits_for_disk();
            let asked = self.journal.requests.lock().asked;
            let (began, given_up) = (self.journal.options.clock.now(), self.journal.unwritten.given_up());
            self.journal.pace.begin_writing();
            // What is changed later is of later requests.
            let mut mark = self.reader.mark();
            let is_at_rest = mark.is_reached() && is_idle;
            tick = if is_at_rest { TICK_AT_REST } else { TICK };
            if is_at_rest {
                self.write_last(Encoder::index);
            }
            while !mark.is_reached() {
                self.write_chunk(table, &mut mark);
                progress.waits_for_disk();
            }
            self.leave_out(given_up);
            if is_last {
                self.write_last(Encoder::end);
                self.journal.sync();
            }
            self.journal.pace.have_written(began, given_up);
            self.journal.requests.lock().done = asked;
            self.journal.written.notify_all();
            if is_last {
                return;
            }
        }
    }

    /// Has a reader of the log find that the ends of some flows are missing.
    fn leave_out(&mut self, given_up: usize) {
        let ends = given_up - std::mem::replace(&mut self.given_up, given_up);
        if ends > 0 {
            tracing::error!(
                "{ends} ends of flows could not wait for the disk of the log of flows: should the agent die before everything is \
                 written anew, these flows are wanted again"
            );
            self.write_last(|encoder, out| encoder.leave_out(out, ends as u64));
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

    /// Writes what has changed before a mark, up to so much as is written in one go.
    fn write_chunk(&mut self, table: &FlowTable, mark: &mut Mark) {
        let Self { journal, reader, buffer, .. } = self;
        let (_, now) = journal.now();
        let mut active = journal.active.lock();
        let mut count = 0;
        buffer.clear();
        while buffer.len() < CHUNK {
            let file = &mut active.file;
            let is_there = table.write_next(reader, mark, |wish| {
                count += 1;
                let Some(file) = file else { return };
                let (flow, gone_ports) = match wish {
                    Wish::Wanted(flow) => (flow, &[][..]),
                    Wish::Withheld(flow, gone_ports) => (flow, gone_ports),
                    Wish::Unwanted(ufid) => return file.encoder.unwanted(buffer, ufid),
                };
                if let Err(error) = file.encoder.wanted(buffer, flow, now, gone_ports) {
                    tracing::error!("{error}");
                    journal.counts.unkept.fetch_add(1, Ordering::Relaxed);
                    // What the log says of it is no longer true in any case.
                    file.encoder.unwanted(buffer, flow.ufid);
                }
            });
            if !is_there {
                break;
            }
        }
        // What is not written here may be written anew: there must be room for that.
        if active.file.is_some()
            && let Err(error) = journal.reserve.lock().ensure(table.census().logged())
        {
            journal.fail(&mut active, &error);
        }
        journal.write(&mut active, buffer, count);
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
                self.counts.bytes.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
            Err(error) => {
                self.fail(active, &error);
                self.counts.unkept.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}
