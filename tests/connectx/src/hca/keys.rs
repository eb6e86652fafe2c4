//! Memory that programs register: keys over it, and ranges of it that queues lie in.

use super::Hca;
use super::function::require;
use crate::command::layouts as l;
use crate::command::{Answer, Failure, Input, Output, Status};
use crate::memory::Memory;
use crate::objects::{Kind, Name};

/// What a memory key lets through.
#[derive(Debug)]
pub(crate) struct Key {
    /// The key's lowest byte, which the driver chooses.
    tag: u8,
    start: u64,
    length: u64,
    rights: Rights,
    backing: Backing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rights {
    local_write: bool,
    remote_read: bool,
    remote_write: bool,
}

#[derive(Debug)]
enum Backing {
    /// Addresses are those of memory.
    Physical,
    Pages(Pages),
    /// Steering memory from this address on.
    Steering(u64),
}

/// Memory in pages that need not lie side by side.
#[derive(Debug, Clone)]
pub(crate) struct Pages {
    pages: Vec<u64>,
    log_page: u32,
    /// Where in the first page it begins.
    offset: u64,
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

const LOG_PAGE: u32 = 12;

/// Bits of an address in a list of pages that say what may be done with the page.
const PAGE_RIGHTS: u64 = 0xfff;

impl Pages {
    pub(crate) fn list(&self) -> Vec<u64> {
        self.pages.clone()
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
    fn pieces(&self, at: u64, length: usize) -> Option<Vec<(u64, usize)>> {
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

pub(crate) fn create_mkey(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_mkey as f;
    const PHYSICAL: u64 = 0;
    const PAGES: u64 = 1;
    const STEERING: u64 = 4;
    let mode = input.get(f::ACCESS_MODE_4_2) << 2 | input.get(f::ACCESS_MODE_1_0);
    let (start, length) = (input.get(f::START_ADDR), input.get(f::LEN));
    require(!input.is_set(f::MKEY_UMEM_VALID), Status::BadParameter, 0x0702, "keys over a umem are not modelled")?;
    let backing = match mode {
        PHYSICAL => Backing::Physical,
        PAGES => {
            let log_page = input.get_u32(f::LOG_PAGE_SIZE);
            require(
                (LOG_PAGE..32).contains(&log_page),
                Status::BadParameter,
                0x0703,
                format!("pages of 2^{log_page}"),
            )?;
            let pages: Vec<u64> = input.quadwords().iter().map(|page| page & !PAGE_RIGHTS).collect();
            let offset = start & ((1 << log_page) - 1);
            let needed = (offset + length).div_ceil(1 << log_page);
            let reason = format!("{} pages where {needed} are needed", pages.len());
            require(pages.len() as u64 >= needed, Status::BadInputLength, 0x0704, reason)?;
            Backing::Pages(Pages { pages, log_page, offset })
        }
        STEERING => {
            let reason = format!("{length:#x} bytes at {start:#x} are not in one block of steering memory");
            require(hca.steering.icm.holds(start, length), Status::BadParameter, 0x0705, reason)?;
            Backing::Steering(start)
        }
        mode => return Err(Failure::new(Status::BadParameter, 0x0401, format!("access mode {mode} is not modelled"))),
    };
    let key = Key {
        tag: input.get(f::MKEY_7_0).to_be_bytes()[7],
        // Keys of steering memory count from its beginning.
        start: if mode == STEERING { 0 } else { start },
        length: if input.is_set(f::LENGTH64) { u64::MAX } else { length },
        rights: Rights {
            local_write: input.is_set(f::LW),
            remote_read: input.is_set(f::RR),
            remote_write: input.is_set(f::RW),
        },
        backing,
    };
    let id = hca.objects.create(Kind::Mkey, vec![Name { kind: Kind::Pd, id: input.get_u32(f::PD) }])?;
    hca.queues.keys.insert(id, key);
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn destroy_mkey(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.destroy(Kind::Mkey, id)?;
    hca.queues.keys.remove(&id);
    Ok(Output::empty())
}

pub(crate) fn create_umem(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_umem as f;
    let log_page = input.get_u32(f::LOG_PAGE_SIZE) + LOG_PAGE;
    let offset = input.get(f::PAGE_OFFSET);
    let mut pages: Vec<u64> = input.quadwords().iter().map(|page| page & !PAGE_RIGHTS).collect();
    let count = usize::try_from(input.get(f::NUM_OF_MTT)).unwrap_or(usize::MAX);
    require(count > 0 && pages.len() >= count, Status::BadInputLength, 0x0706, "the list is shorter than it says")?;
    require(offset >> log_page == 0, Status::BadParameter, 0x0707, format!("{offset:#x} is past the first page"))?;
    pages.truncate(count);
    let id = hca.objects.create(Kind::Umem, vec![])?;
    hca.queues.umems.insert(id, Pages { pages, log_page, offset });
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

pub(crate) fn destroy_umem(hca: &mut Hca, input: &Input<'_>) -> Answer {
    let id = input.get_u32(l::object::ID);
    hca.objects.destroy(Kind::Umem, id)?;
    hca.queues.umems.remove(&id);
    Ok(Output::empty())
}

impl Hca {
    /// Fills `bytes` from where a key and an address lead.
    pub(crate) fn read_by_key(
        &self,
        memory: &dyn Memory,
        (key, address): (u32, u64),
        to: Use,
        bytes: &mut [u8],
    ) -> Result<(), String> {
        let (found, at) = self.through(key, address, bytes.len(), to)?;
        match &found.backing {
            Backing::Physical => memory.read(address, bytes).map_err(|fault| fault.to_string()),
            Backing::Steering(start) => {
                self.steering.icm.read(start + at, bytes);
                Ok(())
            }
            Backing::Pages(pages) => {
                let pieces = pages.pieces(at, bytes.len()).ok_or("a key's pages end before its memory")?;
                let mut rest = bytes;
                for (address, length) in pieces {
                    let (piece, after) = rest.split_at_mut(length);
                    memory.read(address, piece).map_err(|fault| fault.to_string())?;
                    rest = after;
                }
                Ok(())
            }
        }
    }

    /// Writes `bytes` where a key and an address lead.
    pub(crate) fn write_by_key(
        &mut self,
        memory: &dyn Memory,
        (key, address): (u32, u64),
        to: Use,
        bytes: &[u8],
    ) -> Result<(), String> {
        let (found, at) = self.through(key, address, bytes.len(), to)?;
        match &found.backing {
            Backing::Physical => memory.write(address, bytes).map_err(|fault| fault.to_string()),
            Backing::Steering(start) => {
                let address = start + at;
                self.steering.icm.write(address, bytes);
                Ok(())
            }
            Backing::Pages(pages) => {
                let pieces = pages.pieces(at, bytes.len()).ok_or("a key's pages end before its memory")?;
                let mut rest = bytes;
                for (address, length) in pieces {
                    let (piece, after) = rest.split_at(length);
                    memory.write(address, piece).map_err(|fault| fault.to_string())?;
                    rest = after;
                }
                Ok(())
            }
        }
    }

    /// The key, and how far behind its beginning the address is.
    fn through(&self, key: u32, address: u64, length: usize, to: Use) -> Result<(&Key, u64), String> {
        let found = self.queues.keys.get(&(key >> 8)).filter(|found| u32::from(found.tag) == key & 0xff);
        let found = found.ok_or_else(|| format!("there is no key {key:#x}"))?;
        let allowed = match to {
            Use::LocalRead => true,
            Use::LocalWrite => found.rights.local_write,
            Use::RemoteRead => found.rights.remote_read,
            Use::RemoteWrite => found.rights.remote_write,
        };
        if !allowed {
            return Err(format!("key {key:#x} does not allow {to:?}"));
        }
        let at = address.checked_sub(found.start);
        let inside = at.filter(|at| at.checked_add(length as u64).is_some_and(|end| end <= found.length));
        let at = inside.ok_or_else(|| format!("{length} bytes at {address:#x} are not under key {key:#x}"))?;
        Ok((found, at))
    }
}
