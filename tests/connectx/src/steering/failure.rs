//! Why a steering command is refused.

/// A refusal as the device gives it, with the reason that real firmware keeps to itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("status {status:#04x}, syndrome {syndrome:#010x}: {reason}")]
pub struct Failure {
    /// PRM command status, as in [`status`].
    pub status: u8,
    /// A number of ours, one for each kind of reason; real firmware's syndromes are not published.
    pub syndrome: u32,
    /// What was wrong with which object.
    pub reason: String,
}

/// PRM command status values that steering answers with.
pub mod status {
    /// The opcode, or the operation modifier, is not one of the device's.
    pub const BAD_OPERATION: u8 = 0x02;
    /// A field of the command holds a value that is not allowed.
    pub const BAD_PARAMETER: u8 = 0x03;
    /// The command names an object that does not exist.
    pub const BAD_RESOURCE: u8 = 0x05;
    /// A limit of the device is exceeded.
    pub const EXCEEDS_LIMIT: u8 = 0x08;
    /// The object is in a state that does not allow this, such as being in use.
    pub const BAD_RESOURCE_STATE: u8 = 0x09;
    /// An index is out of range.
    pub const BAD_INDEX: u8 = 0x0a;
    /// The device has no room left for one more.
    pub const NO_RESOURCES: u8 = 0x0f;
    /// The command's input is shorter than its layout.
    pub const BAD_INPUT_LENGTH: u8 = 0x50;
}
