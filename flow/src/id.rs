//! Names: of one life of a flow, and of what was wanted of it at a time.

/// The name of one life of a flow: a slot of the table, and how often the slot was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId {
    /// Its place in the table, which has one life at a time.
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
    pub(crate) const fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            next => Self(next),
        }
    }
}
