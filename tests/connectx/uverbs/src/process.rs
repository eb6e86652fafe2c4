//! The memory of a program, by its own addresses.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use sluice_connectx::memory::{Fault, Memory, read_u32};

/// The address space of this process.
///
/// The kernel copies, so that an address where nothing is mapped is a fault like any other, and not the end of the program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Process;

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

#[cfg(test)]
mod tests {
    use super::*;

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
