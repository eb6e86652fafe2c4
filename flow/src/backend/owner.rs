//! Whose rules are in a device.

/// An agent, the same over its restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

impl Owner {
    /// As much of it as there is room for in a device's notes. It is random, so that two agents of a machine that share it need not
    /// be feared.
    #[expect(clippy::cast_possible_truncation, reason = "half of it")]
    pub const fn mark(self) -> u32 {
        self.0 as u32
    }
}
