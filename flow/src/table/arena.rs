//! Slots of the table: allocated in chunks that never move, reached by index without a lock.

use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use super::cell::Cell;
use super::life::Life;
use super::sync::{AtomicU32, Ordering};
use crate::id::FlowId;

/// Slots in a chunk.
const CHUNK: usize = 256;
/// Chunks at most: sixteen million flows.
const CHUNKS: usize = 65_536;

/// All slots.
pub(super) struct Arena {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    next_chunk: AtomicU32,
}

struct Chunk {
    records: [Mutex<Record>; CHUNK],
    cells: [Mutex<Cell>; CHUNK],
    /// Of the workers' queues; dense, for callers and workers touch nothing else of a flow to hand it over.
    links: [AtomicU32; CHUNK],
}

/// A slot's current life, if it has one.
#[derive(Default)]
pub(super) struct Record {
    pub(super) incarnation: u32,
    pub(super) life: Option<Box<Life>>,
}

impl Record {
    /// The life called `id`, unless it is over.
    pub(super) fn life(&mut self, id: FlowId) -> Option<&mut Life> {
        if self.incarnation == id.incarnation { self.life.as_deref_mut() } else { None }
    }
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(), next_chunk: AtomicU32::new(0) }
    }

    /// Makes one more chunk and gives out its slots; `None` when there is no room for another.
    pub(super) fn grow(&self) -> Option<std::ops::Range<u32>> {
        let index = self.next_chunk.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = self.chunks.get(index as usize) else {
            self.next_chunk.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        chunk.get_or_init(|| {
            Box::new(Chunk {
                records: std::array::from_fn(|_| Mutex::default()),
                cells: std::array::from_fn(|_| Mutex::default()),
                links: std::array::from_fn(|_| AtomicU32::new(0)),
            })
        });
        let first = index * CHUNK_U32;
        Some(first..first + CHUNK_U32)
    }

    /// The record of a slot that was given out.
    pub(super) fn record(&self, slot: u32) -> Option<MutexGuard<'_, Record>> {
        let chunk = self.chunks.get(slot as usize / CHUNK)?.get()?;
        Some(chunk.records[slot as usize % CHUNK].lock())
    }

    /// The counters of a slot that was given out.
    pub(super) fn cell(&self, slot: u32) -> Option<MutexGuard<'_, Cell>> {
        let chunk = self.chunks.get(slot as usize / CHUNK)?.get()?;
        Some(chunk.cells[slot as usize % CHUNK].lock())
    }

    /// The link by which a slot that was given out lies in a queue.
    #[inline]
    pub(super) fn link_of(&self, slot: u32) -> Option<&AtomicU32> {
        let chunk = self.chunks.get(slot as usize / CHUNK)?.get()?;
        Some(&chunk.links[slot as usize % CHUNK])
    }

    /// The links of all slots that were ever given out.
    pub(super) fn links(&self) -> impl Iterator<Item = (u32, &AtomicU32)> {
        let links = self.chunks.iter().map_while(OnceLock::get).flat_map(|chunk| &chunk.links);
        (0..).zip(links)
    }

    /// All slots that were ever given out.
    pub(super) fn slots(&self) -> std::ops::Range<u32> {
        0..self.next_chunk.load(Ordering::Relaxed) * CHUNK_U32
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const CHUNK_U32: u32 = CHUNK as u32;
