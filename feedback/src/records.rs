//! Records by their UFID: what both sides read. Whatever is in the memory, a look ends after a bounded number of words.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::layout::{Life, MAX_REACH, Name, RECORD_WORDS, record};

/// How often a record is read again that changes under the reader.
const ATTEMPTS: usize = 8;

/// What has been counted for a flow past the kernel's datapath.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets that it took.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When it took the last one, in ms of `CLOCK_MONOTONIC`; 0 is never.
    pub used: u64,
    /// All TCP flags that it saw, as far as a byte of TCP's header has them: what the kernel's datapath tells of.
    pub tcp_flags: u8,
}

/// What a look at the records comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The flow has none.
    No,
    /// It is there.
    At(Record),
    /// It has one that was given to another flow whenever it was read.
    Torn,
}

/// A record that was read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) slot: usize,
    /// Another one for each life that was in the slot.
    pub(crate) sequence: u64,
    pub(crate) life: Life,
    pub(crate) totals: Totals,
}

/// The records of a memory.
#[derive(Clone, Copy)]
pub(crate) struct Records<'a> {
    words: &'a [AtomicU64],
    mask: usize,
    epoch: u64,
}

impl<'a> Records<'a> {
    /// `slots` is a power of two. A word that is not in `words` is as 0.
    pub(crate) const fn new(words: &'a [AtomicU64], slots: usize, epoch: u64) -> Self {
        Self { words, mask: slots.wrapping_sub(1), epoch }
    }

    pub(crate) const fn mask(&self) -> usize {
        self.mask
    }

    pub(crate) const fn home(&self, name: Name) -> usize {
        name.home(self.epoch, self.mask)
    }

    /// A word of a slot.
    pub(crate) fn word(&self, slot: usize, place: usize) -> Option<&'a AtomicU64> {
        self.words.get((slot & self.mask).wrapping_mul(RECORD_WORDS).wrapping_add(place))
    }

    /// Its value. Relaxed, since the library's memory is read-only.
    pub(crate) fn load(&self, slot: usize, place: usize) -> u64 {
        self.word(slot, place).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Whose record it is.
    pub(crate) fn name(&self, slot: usize) -> Name {
        Name([self.load(slot, record::UFID), self.load(slot, record::UFID + 1)])
    }

    /// What the record holds, no matter whose it is at the end.
    pub(crate) fn read(&self, slot: usize) -> (Life, Totals) {
        let (life, tcp_flags) = Life::of(self.load(slot, record::STATE));
        let totals = Totals {
            packets: self.load(slot, record::PACKETS),
            bytes: self.load(slot, record::BYTES),
            used: self.load(slot, record::USED),
            tcp_flags,
        };
        (life, totals)
    }

    /// How far behind a slot records lie whose home it is.
    pub(crate) fn reach(&self, home: usize) -> usize {
        usize::try_from(self.load(home, record::REACH).min(MAX_REACH)).unwrap_or(0)
    }

    /// Looks for a flow's record.
    pub(crate) fn find(&self, name: Name) -> Found {
        let home = self.home(name);
        let mut outcome = Found::No;
        for distance in 0..=self.reach(home) {
            let slot = home.wrapping_add(distance) & self.mask;
            if self.name(slot) != name {
                continue;
            }
            match self.read_whole(slot, name) {
                Some(Record { life: Life::Free, .. }) => {}
                Some(record) => return Found::At(record),
                None => outcome = Found::Torn,
            }
        }
        outcome
    }

    /// Reads a record of one flow and no other. `None` if it changed hands at each attempt.
    fn read_whole(&self, slot: usize, name: Name) -> Option<Record> {
        for _ in 0..ATTEMPTS {
            let sequence = self.load(slot, record::SEQUENCE);
            fence(Ordering::Acquire);
            let (is_same, (life, totals)) = (self.name(slot) == name, self.read(slot));
            fence(Ordering::Acquire);
            if sequence & 1 == 0 && self.load(slot, record::SEQUENCE) == sequence {
                let life = if is_same { life } else { Life::Free };
                return Some(Record { slot, sequence, life, totals });
            }
            std::hint::spin_loop();
        }
        None
    }
}
