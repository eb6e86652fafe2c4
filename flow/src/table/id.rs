//! Names of lives and of their states.

use std::fmt;

/// The name of one life of a flow: a slot of the table, and how often the slot was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId {
    /// The slot.
    pub slot: u32,
    /// Which life of the slot; wraps.
    pub incarnation: u32,
}

/// Counts the changes to what is wanted of a flow; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Generation(pub u32);

impl Generation {
    /// No change yet: nothing is installed.
    pub const NONE: Self = Self(0);

    /// The next one. Zero is left out, so that a wrapped count is still not "none".
    pub(super) const fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            next => Self(next),
        }
    }
}

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowState {
    /// Accepted; the device has yet to make what is wanted.
    Pending,
    /// In the device as wanted.
    Offloaded,
    /// As wanted, but only in software, or the device did not say where.
    Partial,
    /// Not in the device, for a reason that is known.
    Refused,
    /// No longer wanted; still in the device.
    Deleting,
}

impl FlowState {
    /// Every state.
    pub const ALL: &[Self] = &[Self::Pending, Self::Offloaded, Self::Partial, Self::Refused, Self::Deleting];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Offloaded => "offloaded",
            Self::Partial => "partial",
            Self::Refused => "refused",
            Self::Deleting => "deleting",
        }
    }
}

impl fmt::Display for FlowState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
