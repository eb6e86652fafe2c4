//! Whether the device is well, as a driver sees it.

/// What is wrong with the device (PRM, "Health Buffer").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syndrome {
    /// Which illness it is: 0x1 for an internal error of the firmware, 0x10 for heat, and others; not 0.
    pub code: u8,
    /// The device asks for a reset. Until it is reset it carries out no command; packets go on as they did.
    pub is_fatal: bool,
}

/// The device's state, besides its registers.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The counter by which the driver sees that the device lives stands still.
    pub(crate) counter_is_held: bool,
    pub(crate) syndrome: Option<Syndrome>,
    /// The link to the device is lost: whatever is read is all ones.
    pub(crate) is_offline: bool,
    /// The function has been reset and its driver has not come back: doorbells do nothing.
    pub(crate) is_disabled: bool,
}

impl Health {
    /// Whether commands are carried out.
    pub(crate) fn takes_commands(&self) -> bool {
        !self.is_offline && !self.syndrome.is_some_and(|syndrome| syndrome.is_fatal)
    }
}
