//! Where frames go: files, a pipe, a TAP, or several of them.

use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime};

use pcap_file::{PcapError, PcapResult};
use sluice_control::mirror::{CLASSES, Class};
use tracing::{error, info, warn};
use tun_rs::SyncDevice;

use super::capture::{Capture, Packet};
use super::files::{Files, Written};
use super::mark::Mark;
use super::metrics::CollectorMetrics;
use super::seen::{Seen, visit};
use super::senders::{Batch, Senders};
use super::sequence::Verdict;
use super::tap::Tap;
use crate::wire::{Cause, Drops, Hello};

/// For how long a file that cannot be written is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// Where frames go. What is `None` is not written.
#[derive(Default)]
pub struct Outputs {
    /// Capture files.
    pub files: Option<Files>,
    /// A capture that somebody else reads while it is written. The collector ends if it cannot be written.
    pub pipe: Option<Box<dyn Write + Send>>,
    /// A TAP that frames are injected into, for the host to receive.
    pub tap: Option<SyncDevice>,
}

/// All outputs, and what has been taken over.
pub(super) struct Output {
    senders: Senders,
    files: Option<FileOutput>,
    pipe: Option<(Box<dyn Write + Send>, Capture)>,
    tap: Option<Tap>,
    metrics: CollectorMetrics,
}

struct FileOutput {
    written: Written,
    capture: Capture,
    /// Not before then.
    retry: Option<Instant>,
}

impl Output {
    pub(super) fn new(outputs: Outputs, metrics: CollectorMetrics) -> io::Result<Self> {
        let Outputs { files, pipe, tap } = outputs;
        let mut senders = Senders::default();
        let files = match files {
            None => None,
            Some(files) => {
                let (written, marks) = Written::new(files)?;
                if !marks.is_empty() {
                    info!("goes on where the last file ends, for {} senders", marks.len());
                }
                senders = Senders::resumed(marks);
                let mut output = FileOutput { written, capture: capture()?, retry: None };
                // A file that cannot be written is told of at the start.
                output.begin(&senders)?;
                Some(output)
            }
        };
        let pipe = match pipe {
            None => None,
            Some(mut pipe) => {
                let mut capture = capture()?;
                pipe.write_all(capture.bytes().as_ref())?;
                pipe.flush()?;
                Some((pipe, capture))
            }
        };
        Ok(Self { senders, files, pipe, tap: tap.map(Tap::new).transpose()?, metrics })
    }

    pub(super) fn hello(&mut self, sender: u64, hello: Hello) -> [u64; CLASSES] {
        info!("sender {sender:016x} is {:?}, with {} ports", hello.name, hello.ports.len());
        self.senders.hello(sender, hello)
    }

    pub(super) fn drops(&mut self, sender: u64, drops: &[(Class, Drops)]) {
        let known = self.senders.known(sender);
        for (class, drops) in drops {
            known.classes[class.index()].take_drops(*drops);
        }
    }

    /// Takes a batch over, and returns up to which frame of its class that is so now. Fails if the collector cannot go on.
    pub(super) fn batch(&mut self, batch: &Batch, payload: &[u8]) -> io::Result<u64> {
        let &Batch { sender, class, layout, frames, sequence, given_up, drops } = batch;
        let state = &mut self.senders.known(sender).classes[class.index()];
        state.take_drops(drops);
        let skip = match state.sequence.take(sequence, frames.into()) {
            Verdict::New { skip, missing } => {
                let missing = missing.saturating_sub(given_up.into());
                state.miss(missing);
                self.metrics.missing(class, missing);
                skip
            }
            Verdict::Late => {
                self.metrics.late(class, frames.into());
                0
            }
            Verdict::Duplicate => frames.into(),
        };
        state.duplicates += skip;
        self.metrics.duplicates(class, skip);
        let acknowledged = state.sequence.acknowledged();
        let new = u64::from(frames) - skip;
        if new == 0 {
            return Ok(acknowledged);
        }
        if let Err(error) = visit(layout, payload, frames, drop) {
            warn!(%class, "a batch of sender {sender:016x} is malformed and is left out: {error}");
            self.metrics.dropped(class, Cause::Malformed, new);
            self.senders.known(sender).classes[class.index()].dropped_here(Cause::Malformed, new);
            return Ok(acknowledged);
        }
        self.write(batch, payload, skip)?;
        self.metrics.batch(class, new, payload.len());
        Ok(acknowledged)
    }

    /// Writes a batch that is well formed, without so many frames at its front.
    fn write(&mut self, batch: &Batch, payload: &[u8], skip: u64) -> io::Result<()> {
        let &Batch { sender, class, layout, frames, .. } = batch;
        self.rotate();
        self.begin_sections().map_err(io::Error::other)?;
        let Self { senders, files, pipe, tap, metrics } = self;
        let known = senders.known(sender);
        let mut lost = known.classes[class.index()].lost(class);
        let mut files = files.as_mut().filter(|files| files.written.is_open());
        let has_file = files.is_some();
        let now = nanoseconds();
        let (mut at, mut injected, mut outcome) = (0, 0, Ok(()));
        let write = |seen: Seen<'_>| {
            at += 1;
            if at <= skip || outcome.is_err() {
                return;
            }
            let (length, bytes) = seen.restored();
            let (captured, ufid) = (seen.captured(), seen.ufid());
            let interface = known.interface(sender, seen.port());
            let packet = Packet { captured, length, bytes: &bytes, ufid, lost: lost.take() };
            let captures = files.iter_mut().map(|files| &mut files.capture);
            for capture in captures.chain(pipe.iter_mut().map(|(_, capture)| capture)) {
                outcome = std::mem::replace(&mut outcome, Ok(())).and(capture.packet(interface, &packet));
            }
            if let Some(tap) = tap {
                match tap.inject(&bytes) {
                    Ok(()) => injected += 1,
                    Err(error) => warn!(%class, "a frame of {} bytes cannot be injected: {error}", bytes.len()),
                }
            }
            metrics.latency(class, now.saturating_sub(captured));
        };
        // It was visited before, and is the same.
        visit(layout, payload, frames, write).map_err(io::Error::other)?;
        outcome.map_err(io::Error::other)?;
        let new = u64::from(frames) - skip;
        if self.tap.is_some() {
            self.metrics.injected(class, injected);
            self.metrics.dropped(class, Cause::TapFailed, new - injected);
        }
        let state = &mut self.senders.known(sender).classes[class.index()];
        let mark = Mark { sender, class, next: state.sequence.acknowledged(), told: state.untold() };
        if let Some((pipe, capture)) = &mut self.pipe {
            pipe.write_all(capture.bytes().as_ref()).and_then(|()| pipe.flush())?;
            state.told();
            state.written += new;
        }
        let Some(files) = &mut self.files else {
            self.metrics.written(class, if self.pipe.is_some() { new } else { 0 });
            return Ok(());
        };
        files.capture.mark(&mark).map_err(io::Error::other)?;
        let outcome = if has_file { files.written.write(files.capture.bytes().as_ref()) } else { Err(no_file()) };
        match outcome {
            Ok(()) => {
                state.told();
                state.written += if self.pipe.is_none() { new } else { 0 };
                self.metrics.written(class, new);
            }
            Err(error) => {
                files.failed(&error);
                self.metrics.dropped(class, Cause::FileFailed, new);
                state.dropped_here(Cause::FileFailed, new);
            }
        }
        Ok(())
    }

    /// Begins the next file if it is due, or if there is none and it can be tried again.
    pub(super) fn rotate(&mut self) {
        let Some(files) = &mut self.files else { return };
        if files.written.is_due() {
            files.close(&self.senders);
        }
        if files.written.is_open() || files.retry.is_some_and(|retry| Instant::now() < retry) {
            return;
        }
        if let Err(error) = files.begin(&self.senders) {
            files.failed(&error);
        }
    }

    /// Begins the next section of each capture that has too many interfaces.
    fn begin_sections(&mut self) -> PcapResult<()> {
        let Self { senders, files, pipe, .. } = self;
        let captures = files.iter_mut().map(|files| &mut files.capture);
        for capture in captures.chain(pipe.iter_mut().map(|(_, capture)| capture)).filter(|capture| capture.is_full()) {
            capture.next_section(nanoseconds(), |sender| senders.summary(sender))?;
        }
        Ok(())
    }

    /// Ends all captures, with statistics.
    pub(super) fn finish(&mut self) {
        if let Some(files) = &mut self.files {
            files.close(&self.senders);
        }
        if let Some((pipe, capture)) = &mut self.pipe {
            let outcome = capture.statistics(nanoseconds(), |sender| self.senders.summary(sender));
            let outcome = outcome.map_err(io::Error::other).and_then(|()| pipe.write_all(capture.bytes().as_ref()));
            if let Err(error) = outcome.and_then(|()| pipe.flush()) {
                warn!("the pipe was not ended with statistics: {error}");
            }
        }
    }
}

impl FileOutput {
    /// Begins the next file, which first says what was taken over before.
    fn begin(&mut self, senders: &Senders) -> io::Result<()> {
        self.capture = capture()?;
        for mark in senders.marks() {
            self.capture.mark(&mark).map_err(io::Error::other)?;
        }
        self.written.begin(self.capture.bytes().as_ref())?;
        self.retry = None;
        Ok(())
    }

    fn close(&mut self, senders: &Senders) {
        if !self.written.is_open() {
            return;
        }
        let outcome =
            self.capture.statistics(nanoseconds(), |sender| senders.summary(sender)).map_err(io::Error::other);
        if let Err(error) = outcome.and_then(|()| self.written.write(self.capture.bytes().as_ref())) {
            warn!("the file was not ended with statistics: {error}");
        }
        self.written.close();
    }

    fn failed(&mut self, error: &io::Error) {
        if self.retry.is_none() {
            error!("frames are dropped until a file can be written again: {error}");
        }
        self.written.close();
        self.retry = Some(Instant::now() + PAUSE);
    }
}

fn capture() -> io::Result<Capture> {
    Capture::new().map_err(|error| match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    })
}

fn no_file() -> io::Error {
    io::Error::other("there is no file")
}

/// Nanoseconds since 1970.
fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
