//! What memory keys and ranges of memory are, which programs register.

use super::failed::{Failed, Syndrome};

/// What a memory key lets through.
#[derive(Debug)]
pub(crate) struct Key {
    /// The key's lowest byte, which the driver chooses.
    pub(super) tag: u8,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) rights: Rights,
    pub(super) backing: Backing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) local_write: bool,
    pub(super) remote_read: bool,
    pub(super) remote_write: bool,
}

#[derive(Debug)]
pub(super) enum Backing {
    /// Addresses are those of memory.
    Physical,
    Pages(Pages),
    /// Steering memory from this address on.
    Steering(u64),
    /// Memory under other keys, one piece behind the other.
    Keys(Vec<Part>),
}

/// A piece of memory under another key (PRM, "KLM").
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) length: u64,
    pub(super) key: u32,
    pub(super) address: u64,
}

/// Memory in pages that need not lie side by side.
#[derive(Debug, Clone)]
pub(crate) struct Pages {
    pub(super) pages: Vec<u64>,
    pub(super) log_page: u32,
    /// Where in the first page it begins.
    pub(super) offset: u64,
}

/// Who uses a key, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The queue that names it reads.
    LocalRead,
    LocalWrite,
    /// The other side of a connection reads.
    RemoteRead,
    RemoteWrite,
}

impl Use {
    /// What becomes of a request that cannot use a key so.
    pub(super) fn failed(self, reason: String) -> Failed {
        let syndrome = match self {
            Self::LocalRead | Self::LocalWrite => Syndrome::LocalProtection,
            Self::RemoteRead | Self::RemoteWrite => Syndrome::RemoteAccess,
        };
        Failed { syndrome, reason }
    }
}

impl Pages {
    pub(crate) fn list(&self) -> Vec<u64> {
        self.pages.clone()
    }

    /// The same memory in pages that are at most as large, from the first with some of it on.
    pub(super) fn in_pages_of(&self, log_page: u32) -> Vec<u64> {
        let each = 1 << (self.log_page - log_page);
        let smaller = self.pages.iter().flat_map(|page| (0..each).map(move |place: u64| page + (place << log_page)));
        smaller.skip(usize::try_from(self.offset >> log_page).unwrap_or(usize::MAX)).collect()
    }

    pub(crate) fn log_page(&self) -> u32 {
        self.log_page
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Where a byte of it lies.
    pub(crate) fn address(&self, at: u64) -> Option<u64> {
        let at = self.offset.checked_add(at)?;
        let page = self.pages.get(usize::try_from(at >> self.log_page).ok()?)?;
        Some(page + (at & ((1 << self.log_page) - 1)))
    }

    /// A range of it in pieces that do not cross pages: address and length.
    pub(super) fn pieces(&self, at: u64, length: usize) -> Option<Vec<(u64, usize)>> {
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < length {
            let here = at + done as u64;
            let page = 1 << self.log_page;
            let room = usize::try_from(page - (self.offset + here) % page).ok()?.min(length - done);
            pieces.push((self.address(here)?, room));
            done += room;
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_smaller_pages_from_where_it_begins() {
        let pages = Pages { pages: vec![0x10_0000, 0x30_0000], log_page: 14, offset: 0x2800 };
        assert_eq!(pages.in_pages_of(14), [0x10_0000, 0x30_0000]);
        assert_eq!(
            pages.in_pages_of(12),
            [0x10_2000, 0x10_3000, 0x30_0000, 0x30_1000, 0x30_2000, 0x30_3000],
            "the first two pages have none of it"
        );
    }
}
