//! Memory that the device reads and writes: that of a guest, or of this process.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// A place that is not mapped, or not for this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory of {length} bytes at {address:#x}")]
pub struct Fault {
    /// Where the access began.
    pub address: u64,
    /// In bytes.
    pub length: usize,
}

/// Access by the addresses that the driver gives to the device.
pub trait Memory {
    /// Fills `bytes` from `address` on.
    ///
    /// # Errors
    /// If any of it is not mapped.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Writes `bytes` from `address` on; the last byte becomes visible last.
    ///
    /// # Errors
    /// If any of it is not mapped, or is read-only.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Fault>;

    /// Big-endian doublewords at several places, each as [`read_u32`] reads it.
    fn read_words(&self, addresses: &[u64]) -> Vec<Result<u32, Fault>> {
        let word = |address: &u64| {
            let mut bytes = [0; 4];
            self.read(*address, &mut bytes).map(|()| u32::from_be_bytes(bytes))
        };
        addresses.iter().map(word).collect()
    }
}

/// The address space of this process.
///
/// The kernel copies, so that an address where nothing is mapped is a fault like any other, and not the end of the program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Process;

impl Memory for Process {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let length = bytes.len();
        let fault = Fault { address, length };
        let base = usize::try_from(address).map_err(|_| fault)?;
        match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(bytes)], &[RemoteIoVec { base, len: length }]) {
            Ok(read) if read == length => Ok(()),
            _ => Err(fault),
        }
    }

    fn read_words(&self, addresses: &[u64]) -> Vec<Result<u32, Fault>> {
        let mut bytes = vec![0; addresses.len() * 4];
        let place = |address: &u64| Some(RemoteIoVec { base: usize::try_from(*address).ok()?, len: 4 });
        let places: Vec<RemoteIoVec> = addresses.iter().filter_map(place).collect();
        match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut bytes)], &places) {
            Ok(read) if read == bytes.len() => {
                bytes.as_chunks().0.iter().map(|word| Ok(u32::from_be_bytes(*word))).collect()
            }
            // One of them is not there, or they are too many at a time.
            _ => addresses.iter().map(|address| read_u32(self, *address)).collect(),
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let Some((last, before)) = bytes.split_last() else { return Ok(()) };
        let fault = Fault { address, length: bytes.len() };
        let base = usize::try_from(address).map_err(|_| fault)?;
        for (at, part) in [(base, before), (base + before.len(), std::slice::from_ref(last))] {
            let place = RemoteIoVec { base: at, len: part.len() };
            match process_vm_writev(Pid::this(), &[IoSlice::new(part)], &[place]) {
                Ok(written) if written == part.len() => {}
                _ => return Err(fault),
            }
        }
        Ok(())
    }
}

/// A doubleword as the device keeps it, big endian.
///
/// # Errors
/// If it is not mapped.
pub fn read_u32(memory: &dyn Memory, address: u64) -> Result<u32, Fault> {
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

#[cfg(test)]
pub(crate) mod test {
    use std::cell::RefCell;

    use super::{Fault, Memory};

    /// Memory of a test, from address 0 on.
    pub(crate) struct Flat(pub(crate) RefCell<Vec<u8>>);

    impl Flat {
        pub(crate) fn new(length: usize) -> Self {
            Self(RefCell::new(vec![0; length]))
        }

        fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, Fault> {
            let start = usize::try_from(address).unwrap();
            let end = start + length;
            if end <= self.0.borrow().len() { Ok(start..end) } else { Err(Fault { address, length }) }
        }
    }

    impl Memory for Flat {
        fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
            let range = self.range(address, bytes.len())?;
            bytes.copy_from_slice(&self.0.borrow()[range]);
            Ok(())
        }

        fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
            let range = self.range(address, bytes.len())?;
            self.0.borrow_mut()[range].copy_from_slice(bytes);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Memory, Process};

    #[test]
    fn a_process_reaches_its_own_memory_and_no_other() {
        let mut bytes = vec![0_u8; 100];
        let address = bytes.as_mut_ptr() as u64;
        Process.write(address + 10, &[1, 2, 3]).unwrap();
        let mut read = [9; 5];
        Process.read(address + 9, &mut read).unwrap();
        assert_eq!(read, [0, 1, 2, 3, 0]);
        assert_eq!(bytes[10..13], [1, 2, 3]);
        let nowhere = 0x10;
        assert_eq!(Process.read(nowhere, &mut read), Err(Fault { address: nowhere, length: 5 }));
        assert_eq!(Process.write(nowhere, &read), Err(Fault { address: nowhere, length: 5 }));
    }
}
