//! The memory of a program, by its own addresses.

use sluice_connectx::memory::{Fault, Memory};
use sluice_connectx_guarded as guarded;

/// The address space of this process. An address where nothing is mapped is a fault like any other, and not the end of the program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Process;

impl Memory for Process {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let length = bytes.len();
        guarded::read(address, bytes).map_err(|_| Fault { address, length })
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        guarded::write(address, bytes).map_err(|_| Fault { address, length: bytes.len() })
    }
}
