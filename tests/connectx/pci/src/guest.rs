//! Memory of a guest, as its virtual machine maps it for the device.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use sluice_connectx::memory::{Fault, Memory};
use vm_memory::mmap::MmapRegion;
use vm_memory::{Bytes, FileOffset, VolatileMemory};

/// What is mapped, by guest address. Regions do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    regions: Vec<Region>,
}

#[derive(Debug)]
struct Region {
    address: u64,
    size: u64,
    writable: bool,
    mapping: MmapRegion,
}

impl Guest {
    /// Maps `size` bytes of a file at `offset`.
    pub(crate) fn map(&mut self, address: u64, size: u64, file: File, offset: u64, writable: bool) -> io::Result<()> {
        let length = usize::try_from(size).map_err(io::Error::other)?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, offset), length).map_err(io::Error::other)?;
        self.regions.push(Region { address, size, writable, mapping });
        Ok(())
    }

    /// Forgets all that lies within.
    pub(crate) fn unmap(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        self.regions.retain(|region| region.address < address || region.address + region.size > end);
    }

    fn find(&self, address: u64, length: usize) -> Result<(&Region, usize), Fault> {
        let within = |region: &&Region| {
            let offset = address.checked_sub(region.address)?;
            let end = offset.checked_add(length as u64)?;
            (end <= region.size).then_some(())
        };
        let region = self.regions.iter().find(|region| within(region).is_some());
        let region = region.ok_or(Fault { address, length })?;
        let offset = usize::try_from(address - region.address).map_err(|_| Fault { address, length })?;
        Ok((region, offset))
    }
}

impl Memory for Guest {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let fault = Fault { address, length: bytes.len() };
        let (region, offset) = self.find(address, bytes.len())?;
        region.mapping.as_volatile_slice().read_slice(bytes, offset).map_err(|_| fault)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let fault = Fault { address, length: bytes.len() };
        let Some((last, front)) = bytes.split_last() else { return Ok(()) };
        let (region, offset) = self.find(address, bytes.len())?;
        if !region.writable {
            return Err(fault);
        }
        let memory = region.mapping.as_volatile_slice();
        memory.write_slice(front, offset).map_err(|_| fault)?;
        // An owner bit lies in the last byte: whoever sees it must see the rest.
        memory.store(*last, offset + front.len(), Ordering::Release).map_err(|_| fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(length: u64) -> File {
        let path = std::env::temp_dir().join(format!("sluice-connectx-guest-{}-{length}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(length).unwrap();
        file
    }

    #[test]
    fn what_is_written_through_one_mapping_is_read_through_another() {
        let file = file(0x3000);
        let mut guest = Guest::default();
        guest.map(0x10_0000, 0x2000, file.try_clone().unwrap(), 0x1000, true).unwrap();
        guest.map(0x50_0000, 0x3000, file, 0, false).unwrap();
        guest.write(0x10_0ffe, &[1, 2, 3, 4]).unwrap();
        let mut bytes = [0; 4];
        guest.read(0x50_1ffe, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4]);
    }

    #[test]
    fn what_is_not_mapped_or_read_only_is_a_fault() {
        let mut guest = Guest::default();
        guest.map(0x1000, 0x1000, file(0x1000), 0, false).unwrap();
        assert_eq!(guest.write(0x1000, &[1]), Err(Fault { address: 0x1000, length: 1 }));
        assert_eq!(guest.read(0x1fff, &mut [0; 2]), Err(Fault { address: 0x1fff, length: 2 }));
        guest.unmap(0x1000, 0x1000);
        assert_eq!(guest.read(0x1000, &mut [0; 1]), Err(Fault { address: 0x1000, length: 1 }));
    }
}
