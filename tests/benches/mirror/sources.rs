//! Sources of the senders: they have frames whenever there is memory for them.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use sluice_control::mirror::Class;
use sluice_mirror::source::ring::RingSource;
use sluice_mirror::source::{Batch, Batcher, Batching, NextBatch, Source};
use sluice_mirror::verbs::{Buffer, ProtectionDomain};
use sluice_mirror::wire::frames::Frame;
use sluice_mirror::wire::{Drops, Port, ring};
use tokio::sync::Notify;

/// How far a source has come, seen from outside.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Told once all of it is acknowledged.
    pub(crate) done: Notify,
    taken: Mutex<Taken>,
}

/// Times of what was acknowledged.
#[derive(Debug, Default)]
struct Taken {
    begun: Option<(Instant, u64)>,
    frames: u64,
    last: Option<Instant>,
    /// Of each frame that went alone, from its capture to its acknowledgement.
    rounds: Vec<Duration>,
}

impl Progress {
    /// Frames a second, to the last acknowledgement: from the first frame of a ring, else from the first acknowledgement behind the warm-up.
    pub(crate) fn rate(&self) -> f64 {
        let taken = self.taken.lock().expect("no panic");
        let (begun, before) = taken.begun.expect("it has begun");
        (taken.frames - before) as f64 / (taken.last.expect("frames were acknowledged") - begun).as_secs_f64()
    }

    pub(crate) fn frames(&self) -> u64 {
        self.taken.lock().expect("no panic").frames
    }

    pub(crate) fn rounds(&self) -> Vec<Duration> {
        self.taken.lock().expect("no panic").rounds.clone()
    }

    /// Notes that the first frames have come, so many.
    fn came(&self, frames: u64) {
        let mut taken = self.taken.lock().expect("no panic");
        taken.begun.get_or_insert_with(|| (Instant::now(), frames));
    }

    fn acknowledged(&self, frames: u64, warm: u64, total: u64) {
        let mut taken = self.taken.lock().expect("no panic");
        taken.frames += frames;
        if taken.frames >= warm {
            let frames = taken.frames;
            taken.begun.get_or_insert_with(|| (Instant::now(), frames));
        }
        taken.last = Some(Instant::now());
        if taken.frames >= total {
            self.done.notify_one();
        }
    }
}

/// Frames of one length, in batches of one size.
pub(crate) struct Frames {
    batcher: Batcher,
    bytes: Vec<u8>,
    a_batch: u64,
    /// Batches that can be under way.
    room: usize,
    under_way: usize,
    left: u64,
    total: u64,
    /// When the frame was captured that is under way alone.
    alone: Option<Instant>,
    progress: Arc<Progress>,
}

impl Frames {
    /// `total` frames of `length` bytes, `a_batch` of them at a time, for which there is memory `batches` times.
    pub(crate) fn new(
        domain: &ProtectionDomain,
        (length, a_batch, batches): (usize, u64, usize),
        total: u64,
        progress: &Arc<Progress>,
    ) -> Self {
        let bytes = vec![0x5a; length];
        let room = frame(&bytes).room() * usize::try_from(a_batch).expect("few");
        let batching = Batching { size: room, age: Duration::ZERO, batches };
        // A batch is closed because it is full, and not before.
        let age = if a_batch == 1 { Duration::ZERO } else { Duration::from_secs(60) };
        let batcher = Batcher::new(domain, &[Class::Flow], Batching { age, ..batching }).expect("there is memory");
        let progress = Arc::clone(progress);
        Self { batcher, bytes, a_batch, room: batches, under_way: 0, left: total, total, alone: None, progress }
    }

    fn batch(&mut self) -> Option<Batch> {
        if self.under_way == self.room || self.left == 0 {
            return None;
        }
        for _ in 0..self.a_batch {
            self.batcher.push(Class::Flow, &frame(&self.bytes));
        }
        self.left = self.left.saturating_sub(self.a_batch);
        self.under_way += 1;
        self.alone = (self.room == 1).then(Instant::now);
        self.batcher.next(tokio::time::Instant::now())
    }
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    let length = u32::try_from(bytes.len()).expect("short");
    Frame { in_port: Some(1), ufid: None, captured: now(), length, bytes }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("later than 1970");
    u64::try_from(since.as_nanos()).expect("before 2554")
}

impl Source for Frames {
    /// It is asked again after each batch that comes back.
    fn next(&mut self) -> NextBatch<'_> {
        Box::pin(poll_fn(|_| self.batch().map_or(Poll::Pending, |batch| Poll::Ready(Ok(batch)))))
    }

    fn give_back(&mut self, class: Class, buffer: Buffer) {
        self.batcher.give_back(class, buffer);
        self.under_way -= 1;
        if let Some(captured) = self.alone.take() {
            self.progress.taken.lock().expect("no panic").rounds.push(captured.elapsed());
        }
        self.progress.acknowledged(self.a_batch, self.total / 10, self.total);
    }

    fn drops(&self, class: Class) -> Drops {
        self.batcher.drops(class)
    }

    fn ports(&self) -> Vec<Port> {
        vec![Port { number: Some(1), ifindex: 0, name: "bench".into() }]
    }

    fn revision(&self) -> u64 {
        0
    }
}

/// A source of packet rings whose frames are counted.
pub(crate) struct Counted {
    rings: RingSource,
    total: u64,
    progress: Arc<Progress>,
}

impl Counted {
    pub(crate) fn new(rings: RingSource, total: u64, progress: &Arc<Progress>) -> Self {
        Self { rings, total, progress: Arc::clone(progress) }
    }
}

impl Source for Counted {
    fn next(&mut self) -> NextBatch<'_> {
        let next = self.rings.next();
        let progress = &self.progress;
        Box::pin(async move {
            let batch = next.await;
            if let Ok(batch) = &batch {
                progress.came(batch.frames.into());
            }
            batch
        })
    }

    fn give_back(&mut self, class: Class, buffer: Buffer) {
        let frames = ring::count(&buffer).expect("a block");
        self.rings.give_back(class, buffer);
        self.progress.acknowledged(frames.into(), u64::MAX, self.total);
    }

    fn drops(&self, class: Class) -> Drops {
        self.rings.drops(class)
    }

    fn count_drops(&mut self) {
        self.rings.count_drops();
    }

    fn ports(&self) -> Vec<Port> {
        self.rings.ports()
    }

    fn revision(&self) -> u64 {
        self.rings.revision()
    }
}

/// The index of a network device.
pub(crate) fn ifindex(name: &str) -> u32 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).expect("the device is there");
    text.trim().parse().expect("a number")
}
