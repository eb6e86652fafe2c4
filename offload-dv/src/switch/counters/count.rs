//! What a counter says.

/// Bytes of a counter in the device (`traffic_counter` of the PRM).
pub(super) const EACH: usize = 16;

/// What a rule has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, from the Ethernet header on.
    pub bytes: u64,
}

impl Count {
    pub(in crate::switch) fn since(self, base: Self) -> Self {
        Self { packets: self.packets.wrapping_sub(base.packets), bytes: self.bytes.wrapping_sub(base.bytes) }
    }
}
