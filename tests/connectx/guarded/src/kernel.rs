//! Accesses that the kernel makes.

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::Unmapped;

pub(super) fn read(address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
    let (base, len) = (usize::try_from(address).map_err(|_| Unmapped)?, bytes.len());
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(bytes)], &[RemoteIoVec { base, len }]) {
        Ok(read) if read == len => Ok(()),
        _ => Err(Unmapped),
    }
}

pub(super) fn load(address: u64) -> Result<[u8; 4], Unmapped> {
    let mut bytes = [0; 4];
    read(address, &mut bytes).map(|()| bytes)
}

pub(super) fn write(address: u64, before: &[u8], last: u8) -> Result<(), Unmapped> {
    let base = usize::try_from(address).map_err(|_| Unmapped)?;
    for (base, part) in [(base, before), (base + before.len(), &[last])] {
        let place = RemoteIoVec { base, len: part.len() };
        match process_vm_writev(Pid::this(), &[IoSlice::new(part)], &[place]) {
            Ok(written) if written == part.len() => {}
            _ => return Err(Unmapped),
        }
    }
    Ok(())
}
