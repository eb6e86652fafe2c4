//! Batches of frames that come one by one: closed by size and age, in a fixed amount of registered memory for each class.

use std::collections::VecDeque;
use std::time::Duration;

use sluice_control::mirror::Class;
use tokio::time::Instant;

use super::Batch;
use crate::verbs::{Buffer, CallError, ProtectionDomain};
use crate::wire::frames::Frame;
use crate::wire::{CLASSES, Cause, Drops, Layout};

/// How frames are batched, and how much memory there is for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// Bytes of a batch at most, headers of frames included.
    pub size: usize,
    /// How long the first frame of a batch waits for others.
    pub age: Duration,
    /// Batches of a class that can be filled, sent and not yet acknowledged at a time.
    pub batches: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Self { size: 64 << 10, age: Duration::from_millis(1), batches: 16 }
    }
}

/// Batches frames of all classes.
#[derive(Debug)]
pub struct Batcher {
    batching: Batching,
    classes: [Filling; CLASSES],
    closed: VecDeque<Batch>,
}

/// What there is of a class.
#[derive(Debug, Default)]
struct Filling {
    free: Vec<Buffer>,
    open: Option<Open>,
    /// Whether earlier batches wait for credit.
    is_waiting: bool,
    drops: Drops,
}

/// A batch that frames are still added to.
#[derive(Debug)]
struct Open {
    buffer: Buffer,
    used: usize,
    frames: u32,
    captured: u64,
    due: Instant,
}

impl Batcher {
    /// Allocates all memory that there will ever be, for these classes.
    ///
    /// # Errors
    /// Fails if there is not so much, or if it cannot be registered.
    pub fn new(domain: &ProtectionDomain, classes: &[Class], batching: Batching) -> Result<Self, CallError> {
        let mut all: [Filling; CLASSES] = Default::default();
        for class in classes {
            let mut memory = domain.buffer(batching.size * batching.batches)?;
            let parts = (0..batching.batches).map(|_| memory.split_to(batching.size));
            all[class.index()].free.extend(parts);
        }
        Ok(Self { batching, classes: all, closed: VecDeque::new() })
    }

    /// Adds a frame to the batch of its class. A frame for which there is no room is counted as dropped.
    pub fn push(&mut self, class: Class, frame: &Frame<'_>) {
        let filling = &mut self.classes[class.index()];
        let room = frame.room();
        if room > self.batching.size {
            filling.drops[Cause::TooLong] += 1;
            return;
        }
        if filling.open.as_ref().is_some_and(|open| open.used + room > open.buffer.len()) {
            self.closed.extend(filling.close(class));
        }
        if filling.open.is_none() {
            let Some(buffer) = filling.free.pop() else {
                filling.drops[Cause::QueueFull] += 1;
                return;
            };
            let due = Instant::now() + self.batching.age;
            filling.open = Some(Open { buffer, used: 0, frames: 0, captured: frame.captured, due });
        }
        let Some(open) = &mut filling.open else { return };
        let Some(written) = frame.write(&mut open.buffer[open.used..]) else { return };
        open.used += written;
        open.frames += 1;
        // No further frame would find room.
        let is_at_once = self.batching.age.is_zero() && !filling.is_waiting;
        if is_at_once || open.used + room > open.buffer.len() {
            self.closed.extend(filling.close(class));
        }
    }

    /// Counts frames as dropped that somebody else has dropped.
    pub fn add_drops(&mut self, class: Class, cause: Cause, frames: u64) {
        self.classes[class.index()].drops[cause] += frames;
    }

    /// Returns the next batch that is full or has come of age.
    pub fn next(&mut self, now: Instant) -> Option<Batch> {
        if self.closed.is_empty() {
            for (class, filling) in Class::ALL.into_iter().zip(&mut self.classes) {
                if filling.due().is_some_and(|due| due <= now) {
                    self.closed.extend(filling.close(class));
                }
            }
        }
        self.closed.pop_front()
    }

    /// Returns when the next batch comes of age.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.classes.iter().filter_map(Filling::due).min()
    }

    /// Notes whether batches of a class wait for credit. The open one is then closed by its size only.
    pub fn set_waiting(&mut self, class: Class, is_waiting: bool) {
        self.classes[class.index()].is_waiting = is_waiting;
    }

    /// Takes a buffer back.
    pub fn give_back(&mut self, class: Class, mut buffer: Buffer) {
        buffer.restore();
        self.classes[class.index()].free.push(buffer);
    }

    /// Returns the frames of a class that were dropped.
    #[must_use]
    pub fn drops(&self, class: Class) -> Drops {
        self.classes[class.index()].drops
    }
}

impl Filling {
    fn due(&self) -> Option<Instant> {
        self.open.as_ref().filter(|_| !self.is_waiting).map(|open| open.due)
    }

    fn close(&mut self, class: Class) -> Option<Batch> {
        let Open { mut buffer, used, frames, captured, .. } = self.open.take()?;
        buffer.truncate(used);
        Some(Batch { class, layout: Layout::Frames, frames, captured, buffer })
    }
}
