//! Memory that programs register: keys over it, and ranges of it that queues lie in.

use super::failed::Failed;
use super::key::{Backing, Key, Pages, Part, Rights, Use};
use super::state::Hca;
use crate::command::{Answer, Failure, Input, Output, Status, layouts as l, require};
use crate::memory::Memory;
use crate::objects::{Kind, Name};

/// A piece of what a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Memory(u64),
    Steering(u64),
}

const LOG_PAGE: u32 = 12;

/// Keys over keys over keys: the device says how many (max_indirection).
const MOST_INDIRECTIONS: usize = 4;

/// Bits of an address in a list of pages that say what may be done with the page.
const PAGE_RIGHTS: u64 = 0xfff;

pub(crate) fn create_mkey(hca: &mut Hca, input: &Input<'_>) -> Answer {
    use l::create_mkey as f;
    const PHYSICAL: u64 = 0;
    const PAGES: u64 = 1;
    const KEYS: u64 = 2;
    const STEERING: u64 = 4;
    let mode = input.get(f::ACCESS_MODE_4_2) << 2 | input.get(f::ACCESS_MODE_1_0);
    let (start, length) = (input.get(f::START_ADDR), input.get(f::LEN));
    let in_umem = input.is_set(f::MKEY_UMEM_VALID);
    require(!in_umem || mode == PAGES, Status::BadParameter, 0x0702, "only a key over pages can be over a umem")?;
    let mut uses = vec![Name { kind: Kind::Pd, id: input.get_u32(f::PD) }];
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
            let pages = if in_umem {
                let umem = Name { kind: Kind::Umem, id: input.get_u32(f::MKEY_UMEM_ID) };
                uses.push(umem);
                umem_pages(hca, input, umem, log_page)?
            } else {
                input.quadwords().iter().map(|page| page & !PAGE_RIGHTS).collect()
            };
            let offset = start & ((1 << log_page) - 1);
            let needed = (offset + length).div_ceil(1 << log_page);
            let reason = format!("{} pages where {needed} are needed", pages.len());
            require(pages.len() as u64 >= needed, Status::BadInputLength, 0x0704, reason)?;
            Backing::Pages(Pages { pages, log_page, offset })
        }
        KEYS => Backing::Keys(parts(input, length)?),
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
    let id = hca.objects.create(Kind::Mkey, uses)?;
    hca.queues.keys.insert(id, key);
    Ok(Output::new(&l::object_out::LAYOUT).set(l::object_out::ID, id))
}

/// The pages of a umem that a key is over, all of them. Those of the key may be smaller: the kernel registers a umem with the largest
/// pages that its memory allows, and programs make keys with pages of the system (DPDK's `mlx5_devx_cmd_mkey_create`).
fn umem_pages(hca: &Hca, input: &Input<'_>, umem: Name, log_page: u32) -> Result<Vec<u64>, Failure> {
    let missing = || Failure::new(Status::BadResource, 0x070b, format!("there is no {umem}"));
    let pages = hca.queues.umems.get(&umem.id).ok_or_else(missing)?;
    let reason = format!("pages of 2^{log_page} in a umem of 2^{}", pages.log_page());
    require(log_page <= pages.log_page(), Status::BadParameter, 0x070c, reason)?;
    let whole = input.get(l::create_mkey::MKEY_UMEM_OFFSET) == 0;
    require(whole, Status::BadParameter, 0x070d, "a key that begins within a umem is not modelled")?;
    Ok(pages.in_pages_of(log_page))
}

/// The pieces of a key over keys. Those behind its end, to which lists are filled up, are of no length.
fn parts(input: &Input<'_>, length: u64) -> Result<Vec<Part>, Failure> {
    let count = usize::try_from(input.get(l::create_mkey::TRANSLATIONS_OCTWORD_ACTUAL_SIZE)).unwrap_or(usize::MAX);
    let entries = input.quadwords();
    let (entries, _) = entries.as_chunks::<2>();
    let reason = format!("{} keys where {count} are said to be", entries.len());
    require(entries.len() >= count, Status::BadInputLength, 0x0708, reason)?;
    let part = |[head, address]: &[u64; 2]| Part {
        length: head >> 32,
        key: u32::try_from(head & 0xffff_ffff).unwrap_or_default(),
        address: *address,
    };
    let parts: Vec<Part> = entries[..count].iter().map(part).filter(|part| part.length > 0).collect();
    let covered: u64 = parts.iter().map(|part| part.length).sum();
    let reason = format!("keys over {covered:#x} bytes where {length:#x} are needed");
    require(covered >= length, Status::BadParameter, 0x0709, reason)?;
    Ok(parts)
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
        at: (u32, u64),
        to: Use,
        bytes: &mut [u8],
    ) -> Result<(), Failed> {
        let mut rest = bytes;
        for (place, length) in self.places(at, rest.len(), to).map_err(|reason| to.failed(reason))? {
            let (piece, after) = rest.split_at_mut(length);
            match place {
                Place::Memory(address) => memory.read(address, piece).map_err(|fault| to.failed(fault.to_string()))?,
                Place::Steering(address) => self.steering.icm.read(address, piece),
            }
            rest = after;
        }
        Ok(())
    }

    /// Writes `bytes` where a key and an address lead.
    pub(crate) fn write_by_key(
        &mut self,
        memory: &dyn Memory,
        at: (u32, u64),
        to: Use,
        bytes: &[u8],
    ) -> Result<(), Failed> {
        let mut rest = bytes;
        for (place, length) in self.places(at, rest.len(), to).map_err(|reason| to.failed(reason))? {
            let (piece, after) = rest.split_at(length);
            match place {
                Place::Memory(address) => memory.write(address, piece).map_err(|fault| to.failed(fault.to_string()))?,
                Place::Steering(address) => self.steering.icm.write(address, piece),
            }
            rest = after;
        }
        Ok(())
    }

    /// Where a range under a key lies, piece by piece, if the key may be used so.
    fn places(&self, at: (u32, u64), length: usize, to: Use) -> Result<Vec<(Place, usize)>, String> {
        let mut places = Vec::new();
        self.add_places(at, length, to, MOST_INDIRECTIONS, &mut places)?;
        Ok(places)
    }

    fn add_places(
        &self,
        (key, address): (u32, u64),
        length: usize,
        to: Use,
        indirections: usize,
        places: &mut Vec<(Place, usize)>,
    ) -> Result<(), String> {
        let (found, at) = self.through(key, address, length, to)?;
        match &found.backing {
            Backing::Physical => places.push((Place::Memory(address), length)),
            Backing::Steering(start) => places.push((Place::Steering(start + at), length)),
            Backing::Pages(pages) => {
                let pieces = pages.pieces(at, length).ok_or("a key's pages end before its memory")?;
                places.extend(pieces.into_iter().map(|(address, length)| (Place::Memory(address), length)));
            }
            Backing::Keys(parts) => {
                let further = indirections.checked_sub(1).ok_or(format!("key {key:#x} is over too many others"))?;
                let (mut before, mut left) = (at, length);
                for part in parts {
                    let inside = part.length.saturating_sub(before);
                    let here = usize::try_from(inside).unwrap_or(usize::MAX).min(left);
                    if here > 0 {
                        let address = part.address.checked_add(before).ok_or("an address without end")?;
                        self.add_places((part.key, address), here, to, further, places)?;
                    }
                    before = before.saturating_sub(part.length);
                    left -= here;
                }
                if left > 0 {
                    return Err(format!("the keys under key {key:#x} end before its memory"));
                }
            }
        }
        Ok(())
    }

    /// Whether a key may be used so, for a range.
    pub(crate) fn check_key(&self, at: (u32, u64), length: usize, to: Use) -> Result<(), String> {
        self.places(at, length, to).map(|_| ())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::test::{initialized, made, run, status};
    use crate::layout::Field;
    use crate::memory::test::Flat;
    use crate::profile::BLUEFIELD_2;

    #[test]
    fn a_key_over_a_umem_leads_to_its_pages_and_keeps_it() {
        use l::create_mkey as f;
        const START: u64 = 0x7_0040;
        let mut hca = initialized(BLUEFIELD_2);
        let memory = Flat::new(0x10000);
        let pd = made(&mut hca, 0x800, &l::plain::LAYOUT, &[], &[]);
        let umem = [(l::create_umem::PAGE_OFFSET, 0x40), (l::create_umem::NUM_OF_MTT, 2)];
        let list = [0x3000_u64, 0x9000].map(u64::to_be_bytes).concat();
        let umem = made(&mut hca, 0xa08, &l::create_umem::LAYOUT, &umem, &list);
        let fields = |changes: &[(Field, u64)]| {
            let mut fields = vec![
                (f::MKEY_UMEM_VALID, 1),
                (f::MKEY_UMEM_ID, umem),
                (f::ACCESS_MODE_1_0, 1),
                (f::LOG_PAGE_SIZE, 12),
                (f::PD, pd),
                (f::LW, 1),
                (f::START_ADDR, START),
                (f::LEN, 0x1fc0),
            ];
            fields.extend_from_slice(changes);
            fields
        };
        for wrong in [
            (f::MKEY_UMEM_ID, umem + 1),
            (f::MKEY_UMEM_OFFSET, 0x1000),
            (f::LOG_PAGE_SIZE, 13),
            (f::ACCESS_MODE_1_0, 0),
            (f::LEN, 0x1fc1),
        ] {
            assert_ne!(status(&run(&mut hca, 0x200, 0, &f::LAYOUT, &fields(&[wrong]), &[])), 0, "{}", wrong.0.name());
        }
        let key = made(&mut hca, 0x200, &f::LAYOUT, &fields(&[]), &[]);
        let lkey = u32::try_from(key << 8).unwrap();
        hca.write_by_key(&memory, (lkey, START + 0xfbf), Use::LocalWrite, &[1, 2]).unwrap();
        let byte = |address| {
            let mut byte = [0];
            memory.read(address, &mut byte).unwrap();
            byte[0]
        };
        assert_eq!((byte(0x3fff), byte(0x9000)), (1, 2));
        let mut destroy =
            |opcode, id| status(&run(&mut hca, opcode, 0, &l::object::LAYOUT, &[(l::object::ID, id)], &[]));
        assert_eq!(destroy(0xa0a, umem), Status::ResourceBusy as u8);
        assert_eq!((destroy(0x202, key), destroy(0xa0a, umem)), (0, 0));
    }
}
