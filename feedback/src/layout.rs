//! Where what is in the shared memory. The table is in the documentation of the crate.

use sluice_flow::ufid::Ufid;

/// What the memory begins with.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"SLUICEFB");
/// Counts up with every change of the layout that a reader must know of.
pub const VERSION: u64 = 1;

/// Bytes of each of the three parts' alignment: the largest page of the machines that Sluice runs on, so that each part is mapped by itself.
pub const PART: usize = 1 << 16;
/// Where the counters of the library begin.
pub const STATUS: usize = PART;
/// Where the settings of meters begin, behind the counters and on a border of pages: they came later.
pub const METERS: usize = STATUS + 4096;
/// Where the records begin.
pub const RECORDS: usize = 2 * PART;

/// Where the marks begin, one word for each slot, in a memory of so many slots.
pub const fn marks(slots: usize) -> usize {
    RECORDS + (slots * RECORD).next_multiple_of(PART)
}

/// Bytes of a record: a line of the processor's cache.
pub const RECORD: usize = 64;
/// The same in words.
pub(crate) const RECORD_WORDS: usize = RECORD / 8;

/// At most so many slots: a memory of one gibibyte.
pub const MAX_SLOTS: usize = 1 << 24;
/// A record lies at most so many slots behind its home.
pub const MAX_REACH: u64 = 127;

/// Words of the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const RECORD: usize = 2;
    pub(crate) const CAPACITY: usize = 3;
    pub(crate) const SLOTS: usize = 4;
    pub(crate) const EPOCH: usize = 5;
    /// How many there are.
    pub(crate) const WORDS: usize = 6;
}

/// Words of a record.
pub(crate) mod record {
    /// Odd while the record is given to another flow.
    pub(crate) const SEQUENCE: usize = 0;
    /// The first eight bytes of the UFID, as they stand in a message; the other eight are behind.
    pub(crate) const UFID: usize = 1;
    pub(crate) const PACKETS: usize = 3;
    pub(crate) const BYTES: usize = 4;
    pub(crate) const USED: usize = 5;
    pub(crate) const STATE: usize = 6;
    /// Of the slot, not of the record in it: how far behind it records lie whose home it is.
    pub(crate) const REACH: usize = 7;
}

/// What is in a record's word of state: its life in the lowest byte, TCP flags in the next, and in the others when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Nobody's.
    Free,
    /// Of a flow that packets take.
    Live,
    /// Of a flow that was deleted, in ms of `CLOCK_MONOTONIC`.
    Ended(u64),
}

impl Life {
    const LIVE: u64 = 1;
    const ENDED: u64 = 2;

    /// The word.
    pub(crate) const fn word(self, tcp_flags: u8) -> u64 {
        let life = match self {
            Self::Free => 0,
            Self::Live => Self::LIVE,
            Self::Ended(at) => Self::ENDED | at << 16,
        };
        life | (tcp_flags as u64) << 8
    }

    /// The reverse. A life that is not known is nobody's.
    pub(crate) const fn of(word: u64) -> (Self, u8) {
        let life = match word & 0xff {
            Self::LIVE => Self::Live,
            Self::ENDED => Self::Ended(word >> 16),
            _ => Self::Free,
        };
        (life, word.to_ne_bytes()[if cfg!(target_endian = "little") { 1 } else { 6 }])
    }
}

/// A UFID as two words of memory, whose bytes are those of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(pub(crate) [u64; 2]);

impl Name {
    /// Takes it from the attribute of a message.
    pub const fn from_message([a, b, c, d, e, f, g, h, rest @ ..]: [u8; 16]) -> Self {
        Self([u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u64::from_ne_bytes(rest)])
    }

    /// The slot where to look first. UFIDs are hashes already; the epoch keeps those that are not from meeting in each memory.
    pub(crate) const fn home(self, epoch: u64, mask: usize) -> usize {
        let [first, second] = self.0;
        let mixed = (first ^ epoch).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 32 ^ second).wrapping_mul(0xd6e8_feb8_6659_fd93);
        // The mask takes the lower half, into which the upper one is folded.
        #[allow(clippy::cast_possible_truncation, reason = "what is cut off is folded in")]
        let home = (mixed ^ mixed >> 32) as usize;
        home & mask
    }
}

impl From<Ufid> for Name {
    /// A message has four words of 32 bits, the highest first, each in the order of the machine.
    fn from(ufid: Ufid) -> Self {
        let id = ufid.0.to_be_bytes();
        let mut bytes = [0; 16];
        for (to, from) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(id.as_chunks::<4>().0) {
            *to = u32::from_be_bytes(*from).to_ne_bytes();
        }
        Self::from_message(bytes)
    }
}

impl From<Name> for Ufid {
    fn from(name: Name) -> Self {
        let [first, second] = name.0.map(u64::to_ne_bytes);
        let words = first.as_chunks::<4>().0.iter().chain(second.as_chunks::<4>().0);
        Self(words.fold(0, |id, word| id << 32 | u128::from(u32::from_ne_bytes(*word))))
    }
}

/// How many slots a memory for so many flows has: at most half of them are taken.
pub(crate) fn slots(capacity: usize) -> Option<usize> {
    let slots = capacity.max(1).checked_mul(2)?.checked_next_power_of_two()?;
    (slots <= MAX_SLOTS).then_some(slots)
}

/// Bytes of a memory of so many slots.
pub(crate) const fn length(slots: usize) -> usize {
    marks(slots) + slots * 8
}
