//! How entries are written that software owns, and where they are.

/// Bytes of an entry.
pub const ENTRY: usize = 64;

/// How entries are written: steering_format_version of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// ConnectX-5.
    Zero,
    /// ConnectX-6 Dx and BlueField-2.
    #[default]
    One,
    /// ConnectX-7 and BlueField-3.
    Two,
}

impl Format {
    /// The number in the capability.
    #[must_use]
    pub fn version(self) -> u64 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// Where the entries are, and the lists of rewrites.
pub trait SteeringMemory {
    /// Whether an address is in steering memory at all. A walk that comes to one without an entry ends there with that as the
    /// reason; at any other address it has left.
    fn covers(&self, address: u64) -> bool;

    /// The entry at an address; None if nobody wrote one.
    fn entry(&self, address: u64) -> Option<[u8; ENTRY]>;

    /// A line of 64 bytes, by number, of the memory for lists of rewrites; None past its end.
    fn rewrites(&self, line: u64) -> Option<[u8; ENTRY]>;

    /// The same of the memory for patterns.
    fn patterns(&self, line: u64) -> Option<[u8; ENTRY]>;
}
