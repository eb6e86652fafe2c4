//! Steering memory: what software writes its tables and lists of rewrites into.
//!
//! Memory is handed out in blocks of a power of two, at addresses that software chooses within a region for each kind. Only what
//! was written is there: reading a line that nobody wrote is a mistake that a walk reports.

use std::collections::{BTreeMap, HashMap};

use super::format::{ENTRY, SteeringMemory};

/// General object type of a block.
pub const OBJECT_TYPE: u16 = 0x8;

/// 2^26 bytes hold a million entries, which is what libmlx5 asks for at least.
pub(crate) const LOG_STEERING_SIZE: u64 = 28;
/// For lists of rewrites, and for patterns.
pub(crate) const LOG_REWRITES_SIZE: u64 = 22;
/// The smallest block.
pub const LOG_GRANULARITY: u64 = 12;

const PAGE_BYTES: usize = 4096;
const PAGE: u64 = PAGE_BYTES as u64;
const LINE: u64 = ENTRY as u64;

/// What a region holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Tables of entries.
    Steering,
    /// Lists of rewrites.
    Rewrites,
    /// Patterns of rewrites, to be filled in from arguments.
    Patterns,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Steering, Self::Rewrites, Self::Patterns];

    /// Where its region begins. Entries keep 40 bits of an address.
    pub(crate) fn start(self) -> u64 {
        match self {
            Self::Steering => 0x10_0000_0000,
            Self::Rewrites => 0x20_0000_0000,
            Self::Patterns => 0x30_0000_0000,
        }
    }

    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Steering => 1 << LOG_STEERING_SIZE,
            Self::Rewrites | Self::Patterns => 1 << LOG_REWRITES_SIZE,
        }
    }

    fn holding(address: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| (kind.start()..kind.start() + kind.bytes()).contains(&address))
    }
}

/// All of a device's steering memory.
#[derive(Debug, Default)]
pub(crate) struct Icm {
    next: u32,
    /// Blocks by where they begin: object id, and length in bytes.
    blocks: BTreeMap<u64, (u32, u64)>,
    pages: HashMap<u64, Page>,
}

#[derive(Debug)]
struct Page {
    bytes: Box<[u8; PAGE_BYTES]>,
    /// Bit n: line n was written.
    written: u64,
}

impl Icm {
    /// Hands out a block, as an object with the id that comes back.
    pub(crate) fn allocate(&mut self, address: u64, log_size: u64) -> Result<u32, String> {
        if !(LOG_GRANULARITY..=LOG_STEERING_SIZE).contains(&log_size) {
            return Err(format!("blocks of 2^{log_size} bytes are not handed out"));
        }
        let length = 1 << log_size;
        let kind = Kind::holding(address).ok_or(format!("{address:#x} is not in steering memory"))?;
        if !address.is_multiple_of(length) || address + length > kind.start() + kind.bytes() {
            return Err(format!("{length:#x} bytes at {address:#x} are not aligned, or not all in the region"));
        }
        if let Some((start, (_, other))) = self.blocks.range(..address + length).next_back()
            && start + other > address
        {
            return Err(format!("{address:#x} is already handed out, from {start:#x} on"));
        }
        self.next += 1;
        self.blocks.insert(address, (self.next, length));
        Ok(self.next)
    }

    /// Where a block of this length, a power of two, could be handed out.
    pub(crate) fn room(&self, kind: Kind, length: u64) -> Option<u64> {
        let end = kind.start() + kind.bytes();
        let mut address = kind.start();
        for (start, (_, taken)) in self.blocks.range(kind.start()..end) {
            if address + length <= *start {
                break;
            }
            address = (start + taken).next_multiple_of(length);
        }
        (address + length <= end).then_some(address)
    }

    /// Takes a block back.
    pub(crate) fn free(&mut self, id: u32) -> Result<(), String> {
        let found =
            self.blocks.iter().find(|(_, (block, _))| *block == id).map(|(start, (_, length))| (*start, *length));
        let (start, length) = found.ok_or(format!("there is no steering memory {id:#x}"))?;
        self.blocks.remove(&start);
        self.pages.retain(|page, _| !(start / PAGE..(start + length) / PAGE).contains(page));
        Ok(())
    }

    /// How many blocks are handed out.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// How many bytes of a region are handed out.
    pub(crate) fn handed_out(&self, kind: Kind) -> u64 {
        self.blocks.range(kind.start()..kind.start() + kind.bytes()).map(|(_, (_, length))| length).sum()
    }

    /// Whether all of a range lies in one block.
    pub(crate) fn holds(&self, address: u64, length: u64) -> bool {
        self.blocks
            .range(..=address)
            .next_back()
            .is_some_and(|(start, (_, block))| address.checked_add(length).is_some_and(|end| end <= start + block))
    }

    /// What is written there; what is not is zero.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) {
        for (at, part) in pieces(address, bytes.len()) {
            match self.pages.get(&(at / PAGE)) {
                Some(page) => bytes[part.clone()].copy_from_slice(&page.bytes[within(at)..within(at) + part.len()]),
                None => bytes[part].fill(0),
            }
        }
    }

    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, part) in pieces(address, bytes.len()) {
            let page =
                self.pages.entry(at / PAGE).or_insert_with(|| Page { bytes: Box::new([0; PAGE_BYTES]), written: 0 });
            let place = within(at);
            page.bytes[place..place + part.len()].copy_from_slice(&bytes[part.clone()]);
            for line in place / ENTRY..(place + part.len()).div_ceil(ENTRY) {
                page.written |= 1 << line;
            }
        }
    }

    fn line(&self, address: u64) -> Option<[u8; ENTRY]> {
        let page = self.pages.get(&(address / PAGE))?;
        let place = within(address) / ENTRY;
        (page.written >> place & 1 == 1).then(|| page.bytes.as_chunks().0.get(place).copied()).flatten()
    }
}

impl SteeringMemory for Icm {
    fn covers(&self, address: u64) -> bool {
        Kind::holding(address).is_some()
    }

    fn entry(&self, address: u64) -> Option<[u8; ENTRY]> {
        self.holds(address, LINE).then(|| self.line(address)).flatten()
    }

    fn rewrites(&self, line: u64) -> Option<[u8; ENTRY]> {
        self.entry(Kind::Rewrites.start() + line * LINE)
    }

    fn patterns(&self, line: u64) -> Option<[u8; ENTRY]> {
        self.entry(Kind::Patterns.start() + line * LINE)
    }
}

/// A range in pieces that do not cross pages: where each lies, and which bytes of the range it is.
fn pieces(address: u64, length: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = address + done as u64;
        let room = usize::try_from(PAGE - at % PAGE).unwrap_or(0).min(length - done);
        let part = done..done + room;
        done += room;
        (room > 0).then_some((at, part))
    })
}

fn within(address: u64) -> usize {
    usize::try_from(address % PAGE).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back_empty() {
        let mut icm = Icm::default();
        let start = Kind::Steering.start();
        let first = icm.allocate(start, 13).unwrap();
        assert_eq!(
            icm.allocate(start + 4096, 12),
            Err("0x1000001000 is already handed out, from 0x1000000000 on".into())
        );
        assert!(icm.allocate(start + 0x800, 12).is_err());
        assert!(icm.allocate(start - 4096, 12).is_err());
        assert!(icm.allocate(start + Kind::Steering.bytes() - 4096, 13).is_err());
        let second = icm.allocate(start + 8192, 12).unwrap();
        icm.write(start + 4096 - 32, &[7; 96]);
        assert_eq!(SteeringMemory::entry(&icm, start + 4096), Some([7; 64]));
        assert_eq!(SteeringMemory::entry(&icm, start + 4160), None, "nobody wrote it");
        let mut bytes = [1; 96];
        icm.read(start + 4096 - 64, &mut bytes);
        assert_eq!((&bytes[..32], &bytes[32..]), (&[0; 32][..], &[7; 64][..]));
        icm.free(first).unwrap();
        assert!(icm.free(first).is_err());
        icm.allocate(start, 12).unwrap();
        icm.allocate(start + 4096, 12).unwrap();
        assert_eq!(SteeringMemory::entry(&icm, start + 4096), None);
        icm.free(second).unwrap();
        assert_eq!(icm.len(), 2);
    }

    #[test]
    fn a_range_lies_in_one_block_or_not_at_all() {
        let mut icm = Icm::default();
        let start = Kind::Rewrites.start();
        icm.allocate(start, 12).unwrap();
        icm.allocate(start + 4096, 12).unwrap();
        assert!(icm.holds(start + 4000, 96) && !icm.holds(start + 4000, 97));
        assert!(!icm.holds(start - 1, 1) && !icm.holds(start, u64::MAX));
    }
}
