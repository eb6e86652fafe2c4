//! How far a flow has come.

use std::fmt;

use crate::backend::Placement;

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

/// How far a flow has come, with where its rule is if it is there as wanted. This is what the census counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Pending,
    Placed(Placement),
    Refused,
    Deleting,
}

impl Standing {
    pub(super) const fn state(self) -> FlowState {
        match self {
            Self::Pending => FlowState::Pending,
            Self::Placed(placement) if placement.is_in_hardware() => FlowState::Offloaded,
            Self::Placed(_) => FlowState::Partial,
            Self::Refused => FlowState::Refused,
            Self::Deleting => FlowState::Deleting,
        }
    }
}
