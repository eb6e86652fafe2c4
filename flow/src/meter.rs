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

/// A meter: bands that drop, which is the one kind of band that datapaths have (`OVS_METER_BAND_TYPE_DROP`).
///
/// A packet passes if it exceeds none of the bands; of those that it exceeds, the one with the highest rate counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Its number.
    pub id: MeterId,
    /// What the bands count.
    pub unit: MeterUnit,
    /// The bands. The kernel's datapath and tc take one, OVS's userspace [`MeterBand::LIMIT`].
    pub bands: Vec<MeterBand>,
}

impl Meter {
    /// A meter with one band.
    pub fn simple(id: MeterId, unit: MeterUnit, rate: u64, burst: u64) -> Self {
        Self { id, unit, bands: vec![MeterBand { rate, burst }] }
    }
}

/// What the bands of a meter count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// Kilobits (1,000 bits).
    Kilobits,
    /// Packets.
    Packets,
}

impl MeterUnit {
    /// The word for so much in a second.
    pub const fn per_second(self) -> &'static str {
        match self {
            Self::Kilobits => "kbps",
            Self::Packets => "pps",
        }
    }
}

/// One band of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// How much passes in a second.
    pub rate: u64,
    /// How much passes at once; 0 for what the rate brings in a second.
    pub burst: u64,
}

impl MeterBand {
    /// As many bands as a meter can have (`MAX_BANDS` in `lib/dpif-netdev.c`).
    pub const LIMIT: usize = 8;
}
