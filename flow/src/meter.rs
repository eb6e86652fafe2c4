//! Meters: rate limits that flows refer to by number.

use std::fmt;

/// The number of a meter, as in `meter(N)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MeterId(pub u32);

impl fmt::Display for MeterId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A meter with one band that drops, which is what OVS's tc offload and hardware have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Its number.
    pub id: MeterId,
    /// How much passes.
    pub rate: MeterRate,
    /// How much may pass at once above the rate: kilobits or packets, in the unit of the rate.
    pub burst: u64,
}

/// The unit and size of a meter's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterRate {
    /// Kilobits (1,000 bits) a second.
    Kbps(u64),
    /// Packets a second.
    Pps(u64),
}
