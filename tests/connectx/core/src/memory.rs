//! Memory that the device reads and writes, behind a trait.

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
    /// Fills `bytes` from `address` on. An aligned doubleword is read at once.
    ///
    /// # Errors
    /// If any of it is not mapped.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Writes `bytes` from `address` on; the last byte becomes visible last.
    ///
    /// # Errors
    /// If any of it is not mapped, or is read-only.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Fault>;
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
