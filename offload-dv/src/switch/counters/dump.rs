//! Memory into which the device dumps counters.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_flow::refusal::Refusal;

use super::count::{Count, EACH};
use crate::mlx5::{Context, Object, Umem};
use crate::switch::command::{SHORT, command, create};
use crate::switch::refusal::refuse;

const CREATE_MKEY: u16 = 0x200;
const ALLOC_PD: u16 = 0x800;
/// Bytes of CREATE_MKEY.
const KEY_INPUT: usize = 0x110;

/// What keys over memory, queues and objects that these write are part of.
pub(in crate::switch) struct Protection {
    _object: Object,
    number: u32,
}

/// Memory for the counters of a bulk, with a key by which commands name it.
pub(super) struct Dump {
    /// Goes before the memory.
    _key: Object,
    key: u32,
    memory: Umem,
}

impl Protection {
    pub(in crate::switch) fn allocate(context: &Context) -> Result<Self, Refusal> {
        let (object, number) = create(context, &command::<SHORT>(ALLOC_PD, &[]))?;
        Ok(Self { _object: object, number })
    }

    /// Returns the number by which commands name it.
    pub(in crate::switch) fn number(&self) -> u32 {
        self.number
    }
}

impl Dump {
    pub(super) fn create(context: &Context, protection: &Protection, counters: usize) -> Result<Self, Refusal> {
        const LOCAL_WRITE_AND_READ: u32 = 3 << 10;
        const OVER_PAGES: u32 = 1 << 8;
        const ANY_QUEUE: u32 = 0xff_ffff << 8;
        const LOG_PAGE: u32 = 12;
        let bytes = u32::try_from(counters * EACH).unwrap_or(u32::MAX);
        let memory = Umem::register(context, counters * EACH / 8).map_err(refuse)?;
        let [high, low] = [memory.address() >> 32, memory.address() & 0xffff_ffff]
            .map(|half| u32::try_from(half).unwrap_or_default());
        // Translations are told in units of 16 bytes, of which each has two pages (`translations_octword_size` of the PRM).
        let translations = bytes.div_ceil(1 << LOG_PAGE).div_ceil(2);
        let words = [
            (0x10, LOCAL_WRITE_AND_READ | OVER_PAGES),
            (0x14, ANY_QUEUE),
            (0x1c, protection.number),
            (0x20, high),
            (0x24, low),
            (0x2c, bytes),
            (0x44, translations),
            (0x48, LOG_PAGE),
            (0x60, translations),
            (0x64, memory.id()),
        ];
        let (object, index) = create(context, &command::<KEY_INPUT>(CREATE_MKEY, &words))?;
        Ok(Self { _key: object, key: index << 8, memory })
    }

    /// Returns the key, and the address of a counter.
    pub(super) fn place_of(&self, index: u32) -> (u32, u64) {
        (self.key, self.memory.address() + u64::from(index) * EACH as u64)
    }

    /// Returns what was told last of counters from one on.
    pub(super) fn counts(&self, from: usize) -> impl Iterator<Item = Count> {
        let pairs = self.memory.words()[2 * from..].as_chunks().0.iter();
        pairs.map(|[packets, bytes]| {
            let told = |word: &AtomicU64| u64::from_be(word.load(Ordering::Relaxed));
            Count { packets: told(packets), bytes: told(bytes) }
        })
    }
}
