//! Configuration space of the function (PCI Local Bus 3.0, chapter 6; PCI Express, chapter 7).

use sluice_connectx::profile::Profile;

/// Bytes of it.
pub(crate) const SIZE: usize = 4096;
/// Interrupt vectors.
pub(crate) const VECTORS: u16 = 16;
/// Where in the first region the table of MSI-X is, and its pending bits. Both are the virtual machine's to carry out.
pub(crate) const MSIX_TABLE: u32 = 0x2000;
const MSIX_PENDING: u32 = 0x3000;

const MELLANOX: u16 = 0x15b3;
const ETHERNET_CONTROLLER: u32 = 0x02_0000;

/// What the virtual functions of all newer ConnectX are ("ConnectX Family mlx5Gen Virtual Function").
const VIRTUAL_FUNCTION: u16 = 0x101e;
/// Where the first virtual function is, behind the physical one: `tests/lab/connectx` has a place for it there.
const FIRST_FUNCTION: u16 = 9;

// Places of the capabilities, which form a list.
const POWER: usize = 0x40;
const EXPRESS: usize = 0x60;
const MSIX: usize = 0x9c;
const LIST: [u8; 3] = [0x40, 0x60, 0x9c];
/// The only one in extended space.
const FUNCTIONS: usize = 0x100;

/// What a driver may change: offset and bits.
const WRITABLE: &[(usize, u8)] = &[
    (0x04, 0x47),
    (0x05, 0x05),
    (0x0c, 0xff),
    (0x3c, 0xff),
    (POWER + 4, 0x03),
    (EXPRESS + 8, 0xff),
    (EXPRESS + 9, 0x7f),
    (EXPRESS + 0x28, 0x1f),
    (MSIX + 3, 0xc0),
];
/// The same of virtual functions: that they are enabled, how many, and how large pages are.
const FUNCTIONS_WRITABLE: &[(usize, u8)] =
    &[(FUNCTIONS + 0x08, 0x19), (FUNCTIONS + 0x10, 0xff), (FUNCTIONS + 0x11, 0xff), (FUNCTIONS + 0x20, 0x01)];

/// The space: little endian, as the bus is.
#[derive(Debug)]
pub(crate) struct Config {
    bytes: Vec<u8>,
    /// Bits of each byte that a driver may change.
    writable: Vec<u8>,
}

impl Config {
    /// As QEMU finds it: without virtual functions. QEMU makes its own list of extended capabilities of what it finds then, and leaves
    /// virtual functions out of it (`vfio_add_ext_cap`); where it finds none it has no list, and passes on what is read later.
    pub(crate) fn new(profile: &Profile) -> Self {
        let mut config = Self { bytes: vec![0; SIZE], writable: vec![0; SIZE] };
        config.may_change(WRITABLE);
        config.u16(0x00, MELLANOX);
        config.u16(0x02, profile.device_id);
        const HAS_CAPABILITIES: u16 = 0x10;
        config.u16(0x06, HAS_CAPABILITIES);
        config.u32(0x08, ETHERNET_CONTROLLER << 8);
        const MEMORY_64_PREFETCHABLE: u32 = 0xc;
        config.u32(0x10, MEMORY_64_PREFETCHABLE);
        config.u16(0x2c, MELLANOX);
        config.u16(0x2e, profile.device_id);
        let [power, express, msix] = LIST;
        config.bytes[0x34] = power;

        config.capability(POWER, 0x01, express);
        const VERSION_3: u16 = 3;
        config.u16(POWER + 2, VERSION_3);

        config.capability(EXPRESS, 0x10, msix);
        const ENDPOINT_VERSION_2: u16 = 0x0002;
        config.u16(EXPRESS + 2, ENDPOINT_VERSION_2);
        const ROLE_BASED_ERRORS_AND_RESET: u32 = 1 << 15 | 1 << 28;
        config.u32(EXPRESS + 4, ROLE_BASED_ERRORS_AND_RESET);
        // 16 lanes at 16 GT/s, of which all are used.
        config.u32(EXPRESS + 0xc, 0x104);
        config.u16(EXPRESS + 0x12, 0x104);

        config.capability(MSIX, 0x11, 0);
        config.u16(MSIX + 2, VECTORS - 1);
        config.u32(MSIX + 4, MSIX_TABLE);
        config.u32(MSIX + 8, MSIX_PENDING);
        config
    }

    /// The same with virtual functions, if there can be any, for the machine's own kernel (PCI Express, "Single Root I/O Virtualization").
    /// They have no regions: nobody drives them.
    pub(crate) fn with_functions(profile: &Profile) -> Self {
        const IO_VIRTUALIZATION: u32 = 0x0010;
        const VERSION_1: u32 = 1 << 16;
        let mut config = Self::new(profile);
        if profile.embedded_cpu || profile.host_total_vfs == 0 {
            return config;
        }
        config.may_change(FUNCTIONS_WRITABLE);
        config.u32(FUNCTIONS, IO_VIRTUALIZATION | VERSION_1);
        // At first, and in all.
        config.u16(FUNCTIONS + 0x0c, profile.host_total_vfs);
        config.u16(FUNCTIONS + 0x0e, profile.host_total_vfs);
        config.u16(FUNCTIONS + 0x14, FIRST_FUNCTION);
        config.u16(FUNCTIONS + 0x16, 1);
        config.u16(FUNCTIONS + 0x1a, VIRTUAL_FUNCTION);
        // Pages of 4 KiB are had, and used.
        config.u32(FUNCTIONS + 0x1c, 1);
        config.u32(FUNCTIONS + 0x20, 1);
        config
    }

    pub(crate) fn read(&self, offset: usize, data: &mut [u8]) {
        for (at, byte) in (offset..).zip(data) {
            *byte = self.bytes.get(at).copied().unwrap_or(0xff);
        }
    }

    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        for (at, value) in (offset..).zip(data) {
            if let (Some(byte), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
                *byte = *byte & !mask | value & mask;
            }
        }
    }

    fn may_change(&mut self, bits: &[(usize, u8)]) {
        bits.iter().for_each(|(at, mask)| self.writable[*at] = *mask);
    }

    fn capability(&mut self, at: usize, id: u8, next: u8) {
        self.bytes[at] = id;
        self.bytes[at + 1] = next;
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_connectx::profile::{BLUEFIELD_2, CONNECTX_6_DX_VFS};

    #[test]
    fn the_capabilities_form_a_chain_that_ends() {
        let config = Config::new(&BLUEFIELD_2);
        let mut ids = vec![];
        let mut at = usize::from(config.bytes[0x34]);
        while at != 0 {
            ids.push(config.bytes[at]);
            at = usize::from(config.bytes[at + 1]);
            assert!(ids.len() < 10);
        }
        assert_eq!(ids, [0x01, 0x10, 0x11]);
    }

    #[test]
    fn identity_cannot_be_written_but_the_command_register_can() {
        let mut config = Config::new(&BLUEFIELD_2);
        config.write(0, &[0xff; 8]);
        let mut bytes = [0; 6];
        config.read(0, &mut bytes);
        assert_eq!(bytes, [0xb3, 0x15, 0xd6, 0xa2, 0x47, 0x05]);
    }
    #[test]
    fn a_machine_is_told_of_virtual_functions_after_its_start() {
        let extended = |config: &Config| {
            let mut bytes = [0; 0x24];
            config.read(FUNCTIONS, &mut bytes);
            bytes
        };
        assert_eq!(extended(&Config::new(&CONNECTX_6_DX_VFS)), [0; 0x24]);
        assert_eq!(extended(&Config::with_functions(&BLUEFIELD_2)), [0; 0x24], "they are another driver's");
        let mut config = Config::with_functions(&CONNECTX_6_DX_VFS);
        let said = extended(&config);
        assert_eq!((&said[..4], &said[0xc..0x10]), (&[0x10, 0, 1, 0][..], &[8, 0, 8, 0][..]));
        config.write(FUNCTIONS + 0x08, &[0xff, 0xff]);
        config.write(FUNCTIONS + 0x0c, &[0xff; 4]);
        config.write(FUNCTIONS + 0x10, &[3, 0]);
        let changed = extended(&config);
        assert_eq!((changed[8], changed[9], changed[0xc], changed[0x10]), (0x19, 0, 8, 3));
    }
}
