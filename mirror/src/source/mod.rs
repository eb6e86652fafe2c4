//! Where mirrored frames come from: batches in registered memory, by class, and what was lost before they got there.
//!
//! A [`Source`] owns the memory of its batches and has a fixed amount of it. The sender holds a [`Batch`] until the collector has
//! acknowledged it, and then gives its buffer back. So a collector that does not keep up leaves a source without memory, and the source
//! counts what it cannot take; nothing else waits.

mod agent;
mod batcher;
mod following;
pub mod own;
mod planned;
pub mod psample;
pub mod ring;

pub use self::agent::AgentSource;
pub use self::batcher::{Batcher, Batching};
pub use self::planned::PlannedRings;

use std::future::Future;
use std::io;
use std::pin::Pin;

use sluice_control::mirror::Class;

use crate::verbs::{Buffer, CallError};
use crate::wire::{Drops, Layout, Port};

/// A source of mirrored frames.
pub trait Source: Send {
    /// Waits for the next batch. Dropping the future before it is done loses nothing.
    ///
    /// # Errors
    /// Fails as [`SourceError`] says; the source gives no more batches then.
    fn next(&mut self) -> NextBatch<'_>;

    /// Takes back the buffer of a batch of that class, once the collector has acknowledged the batch or the batch was given up.
    fn give_back(&mut self, class: Class, buffer: Buffer);

    /// Notes whether batches of a class wait for credit. While they do, a source that closes batches by their age may go on filling one: it
    /// would only wait with less in it.
    fn set_waiting(&mut self, _class: Class, _is_waiting: bool) {}

    /// Returns how many frames of a class this source has lost since it was opened, by cause, as far as is known without asking anybody: what
    /// was lost before a batch was filled is known once that is [here](Source::next).
    fn drops(&self, class: Class) -> Drops;

    /// Asks for what was lost since the last batch, where that takes a call of the kernel.
    fn count_drops(&mut self) {}

    /// Returns the ports of the datapath that frames come from, as far as they are known now. The frames name them by number, those of
    /// [`Layout::Ring`] by the index of the network device.
    fn ports(&self) -> Vec<Port>;

    /// Returns a number that is another one whenever [`Source::ports`] returns something else.
    fn revision(&self) -> u64;
}

/// What [`Source::next`] returns.
pub type NextBatch<'a> = Pin<Box<dyn Future<Output = Result<Batch, SourceError>> + Send + 'a>>;

/// Frames of one class in registered memory.
#[derive(Debug)]
pub struct Batch {
    /// Class of all frames.
    pub class: Class,
    /// How the frames lie in the buffer.
    pub layout: Layout,
    /// Number of frames, at least 1.
    pub frames: u32,
    /// When the first frame was captured: nanoseconds since 1970.
    pub captured: u64,
    /// The frames. All of the buffer is sent; see [`Buffer::truncate`].
    pub buffer: Buffer,
}

/// Why a source ends.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A socket or device cannot be opened or read.
    #[error("{origin}: {source}")]
    Io {
        /// What was read.
        origin: String,
        /// Why it failed.
        source: io::Error,
    },
    /// There is no registered memory.
    #[error(transparent)]
    Memory(#[from] CallError),
}
