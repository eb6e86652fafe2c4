//! Slots of the table: allocated in chunks that never move, reached by index without a lock.

use std::sync::OnceLock;

use super::cell::{Bases, Cell, CellGuard};
use super::record::{Packed, RecordGuard};
use super::sync::{AtomicU8, AtomicU32, Mutex, Ordering};
use crate::id::FlowId;

/// Slots in a chunk: as many as fill [`CHUNK_BYTES`].
const CHUNK: usize = if cfg!(feature = "model") { 2 } else { 168 };
/// The longest piece of memory that the allocator cuts out of pages that it has. To a longer one it adds a page, for an offset that
/// spreads such pieces over the cache: to one of 24 kB that is a sixth.
#[cfg(test)]
const CHUNK_BYTES: usize = 14 << 10;
/// Chunks at most: sixteen million flows.
const CHUNKS: usize = if cfg!(feature = "model") { 16 } else { (1 << 24) / CHUNK };

/// All slots.
pub(super) struct Arena {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    next_chunk: AtomicU32,
}

/// One array for each concern, so that who walks one walks little memory.
#[repr(C, align(64))]
struct Chunk {
    cells: [Mutex<Cell>; CHUNK],
    records: [Mutex<Packed>; CHUNK],
    /// How often each slot was used before; changed under the lock of the record.
    incarnations: [AtomicU32; CHUNK],
    /// Of the workers' queues; dense, for callers and workers touch nothing else of a flow to hand it over.
    links: [AtomicU32; CHUNK],
    /// Of the queue of the log.
    log_links: [AtomicU32; CHUNK],
    /// Of the few cells that have one.
    bases: Bases,
    /// The kinds of causes that refused flows of the chunk wait for; perhaps some more. Set under the lock of the record.
    awaited: AtomicU8,
}

impl Arena {
    /// Slots at the most.
    pub(super) const CAPACITY: usize = CHUNK * CHUNKS;
    /// A cell and its lock.
    pub(super) const CELL_BYTES: usize = size_of::<Mutex<Cell>>();

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
                cells: std::array::from_fn(|_| Mutex::default()),
                records: std::array::from_fn(|_| Mutex::default()),
                incarnations: std::array::from_fn(|_| AtomicU32::new(0)),
                links: std::array::from_fn(|_| AtomicU32::new(0)),
                log_links: std::array::from_fn(|_| AtomicU32::new(0)),
                bases: Bases::default(),
                awaited: AtomicU8::new(0),
            })
        });
        let first = index * CHUNK_U32;
        Some(first..first + CHUNK_U32)
    }

    /// The record of a slot that was given out, and the name of the life in it.
    pub(super) fn slot(&self, slot: u32) -> Option<(FlowId, RecordGuard<'_>)> {
        let (chunk, place) = self.place(slot)?;
        let record = RecordGuard::lock(&chunk.records[place]);
        Some((FlowId { slot, incarnation: chunk.incarnations[place].load(Ordering::Relaxed) }, record))
    }

    /// The record of a life, unless it is over.
    pub(super) fn record(&self, id: FlowId) -> Option<RecordGuard<'_>> {
        self.slot(id.slot).filter(|(current, _)| *current == id).map(|(_, record)| record)
    }

    /// The counters of a life, unless it is over.
    pub(super) fn cell(&self, id: FlowId) -> Option<CellGuard<'_>> {
        let (chunk, place) = self.place(id.slot)?;
        let cell = CellGuard::new(chunk.cells[place].lock(), &chunk.bases, place);
        // The next life takes the cell over under the same lock, so that nothing of this one comes to it.
        let is_current = chunk.incarnations[place].load(Ordering::Relaxed) == id.incarnation;
        is_current.then_some(cell)
    }

    /// The life in a slot is over. Called under the lock of the record.
    pub(super) fn next_incarnation(&self, slot: u32) {
        if let Some((chunk, place)) = self.place(slot) {
            chunk.incarnations[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Brings what [`Arena::cell`] reads into the cache. Such loads overlap, unlike those behind locks.
    pub(super) fn prepare_cell(&self, slot: u32) {
        if let Some((chunk, place)) = self.place(slot) {
            std::hint::black_box(chunk.cells[place].is_locked());
            std::hint::black_box(chunk.incarnations[place].load(Ordering::Relaxed));
        }
    }

    /// The life in a slot, or one before it. Brings what a look at it reads, and what its outcome changes, into the cache.
    pub(super) fn prepare(&self, slot: u32) -> Option<FlowId> {
        let (chunk, place) = self.place(slot)?;
        // Each is shorter than a line, and may lie on two.
        for place in [place, (place + 1).min(CHUNK - 1)] {
            std::hint::black_box((chunk.records[place].is_locked(), chunk.cells[place].is_locked()));
        }
        Some(FlowId { slot, incarnation: chunk.incarnations[place].load(Ordering::Relaxed) })
    }

    /// All cells of slots that were ever given out, in order, each with the life that it is of. One is locked once it is its turn.
    pub(super) fn cells(&self) -> impl Iterator<Item = (FlowId, CellGuard<'_>)> {
        self.slots().filter_map(|slot| {
            let (chunk, place) = self.place(slot)?;
            let cell = CellGuard::new(chunk.cells[place].lock(), &chunk.bases, place);
            // Under the lock, so that it is of the same life.
            Some((FlowId { slot, incarnation: chunk.incarnations[place].load(Ordering::Relaxed) }, cell))
        })
    }

    /// The link by which a slot that was given out lies in a queue.
    #[inline]
    pub(super) fn link_of(&self, slot: u32) -> Option<&AtomicU32> {
        let (chunk, place) = self.place(slot)?;
        Some(&chunk.links[place])
    }

    /// The link by which it lies in the queue of the log.
    #[inline]
    pub(super) fn log_link_of(&self, slot: u32) -> Option<&AtomicU32> {
        let (chunk, place) = self.place(slot)?;
        Some(&chunk.log_links[place])
    }

    /// The links of all slots that were ever given out.
    pub(super) fn links(&self) -> impl Iterator<Item = (u32, &AtomicU32)> {
        let links = self.chunks.iter().map_while(OnceLock::get).flat_map(|chunk| &chunk.links);
        (0..).zip(links)
    }

    /// The flow of a slot waits for a cause of this kind. Called under the lock of its record.
    pub(super) fn await_kind(&self, slot: u32, kind: u8) {
        if let Some((chunk, _)) = self.place(slot) {
            chunk.awaited.fetch_or(kind, Ordering::Relaxed);
        }
    }

    /// The next slots, from this one on, among which some may wait for causes of these kinds. If they are a whole chunk, what
    /// is known of that is forgotten: who looks at them says again what still waits.
    pub(super) fn next_awaiting(&self, from: u32, kinds: u8) -> Option<std::ops::Range<u32>> {
        for first in (from - from % CHUNK_U32..self.slots().end).step_by(CHUNK) {
            let Some((chunk, _)) = self.place(first) else { continue };
            if chunk.awaited.load(Ordering::Relaxed) & kinds != 0 {
                if from <= first {
                    chunk.awaited.fetch_and(!kinds, Ordering::Relaxed);
                }
                return Some(first.max(from)..first + CHUNK_U32);
            }
        }
        None
    }

    /// All slots that were ever given out.
    pub(super) fn slots(&self) -> std::ops::Range<u32> {
        0..self.next_chunk.load(Ordering::Relaxed) * CHUNK_U32
    }

    fn place(&self, slot: u32) -> Option<(&Chunk, usize)> {
        let chunk = self.chunks.get(slot as usize / CHUNK)?.get()?;
        Some((chunk, slot as usize % CHUNK))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
const CHUNK_U32: u32 = CHUNK as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_takes_little_memory() {
        let bytes = 33 + 40 + 4 + 4 + 4;
        let chunk = size_of::<Chunk>();
        assert!(chunk <= CHUNK_BYTES && CHUNK_BYTES < (CHUNK + 1) * bytes, "{CHUNK} slots in {chunk} bytes");
    }
}
