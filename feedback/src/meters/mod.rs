//! The meters that ovs-vswitchd has set in the kernel's datapath. The kernel tells nobody of them, and their rates not even who asks: the
//! library tells of them, and the agent reads that.

mod setter;
mod table;

pub use setter::MeterSetter;
pub(crate) use table::{MeterTable, WORDS};

use sluice_flow::meter::MeterUnit;
use sluice_flow::ufid::Ufid;

/// Meters of this number and higher ones are not told of. ovs-vswitchd counts up from 0.
pub const COUNT: u32 = 3840;

/// What the kernel's datapath has under the number of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The datapath, by the number of its device.
    pub datapath: u32,
    /// Another one for each meter that has had the number.
    pub life: u16,
    /// What it is.
    pub kind: SettingKind,
}

/// What a [`Setting`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SettingKind {
    /// No meter, or none any more.
    #[default]
    None,
    /// A meter with one band, which drops.
    Band {
        /// What is counted.
        unit: MeterUnit,
        /// How much passes in a second.
        rate: u32,
        /// How much passes at once.
        burst: u32,
    },
    /// A meter of another kind.
    Other,
}

/// What is published of a meter, in a record with a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterCount {
    /// Packets that have reached it.
    Reached = 0,
    /// Those of them that it has dropped.
    Dropped = 1,
}

impl MeterCount {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Reached, Self::Dropped];
    /// What the names begin with.
    const LETTERS: u128 = u64::from_be_bytes(*b"SLUICEMT") as u128;

    /// The name of the record: the letters, the number of the meter, and which of the two counts.
    pub const fn name(self, meter: u32) -> Ufid {
        Ufid(Self::LETTERS << 64 | (meter as u128) << 32 | self as u128)
    }

    /// Whether a name is that of such a record, and of which meter.
    pub fn meter_of(name: Ufid) -> Option<u32> {
        let meter = u32::try_from(name.0 >> 32 & u128::from(u32::MAX)).ok()?;
        (name.0 >> 64 == Self::LETTERS).then_some(meter)
    }
}
