//! Why a steering command is refused.

use super::domain::TableKind;

/// A refusal as the device gives it, with the reason that real firmware keeps to itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("status {status:#04x}, syndrome {syndrome:#010x}: {reason}")]
pub struct Failure {
    /// PRM command status, as in [`status`].
    pub status: u8,
    /// A number of ours, one for each kind of reason; those of real firmware are not published.
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
    /// The command's input is shorter than its layout.
    pub const BAD_INPUT_LENGTH: u8 = 0x50;
}

/// Syndromes are from here on.
const OURS: u32 = 0x51c0_0000;
/// The syndrome of whatever is refused for want of room, which is nobody's mistake.
pub(crate) const NO_ROOM: u32 = OURS + 8;

/// The reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("opcode {0:#x} is not a steering command that is modelled")]
    Opcode(u16),
    #[error("operation modifier {0:#x} is not modelled here")]
    Modifier(u16),
    #[error("the input has {has} bytes and needs {needs}")]
    Short { has: usize, needs: usize },
    #[error("{what} {id:#x} does not exist")]
    Unknown { what: &'static str, id: u32 },
    #[error("{what} {id:#x} is used {uses} times")]
    InUse { what: &'static str, id: u32, uses: u32 },
    #[error("table {table:#x} still has {left} {what}")]
    NotEmpty { table: u32, left: usize, what: &'static str },
    #[error("group {group:#x} still has {left} entries")]
    GroupNotEmpty { group: u32, left: usize },
    #[error("the device has room for {limit} of {what}")]
    Full { what: &'static str, limit: usize },
    #[error("{what} {value} exceeds the limit of {limit}")]
    Limit { what: &'static str, value: usize, limit: usize },
    #[error("table type {0:#x} is not modelled")]
    Kind(u8),
    #[error("table {table:#x} is of {is}, and the command says {said}")]
    OtherDomain { table: u32, is: String, said: String },
    #[error("{what} {value:#x} is not modelled")]
    NotModelled { what: &'static str, value: u32 },
    #[error("level {to} of table {table:#x} is not above level {from} of the table that leads to it")]
    Level { table: u32, from: u8, to: u8 },
    #[error("table {table:#x} is of {is}: a table of {from} cannot lead to it")]
    CrossKind { table: u32, is: TableKind, from: TableKind },
    #[error("indexes {first} to {last} do not lie within the {size} entries of table {table:#x}")]
    OutsideTable { table: u32, first: u32, last: u32, size: u64 },
    #[error("indexes {first} to {last} overlap those of group {group:#x}")]
    Overlap { group: u32, first: u32, last: u32 },
    #[error("the mask has bit {0:#x} set, which is no field of the device's")]
    MaskBit(usize),
    #[error("match_criteria_enable {0:#x} names blocks that do not exist")]
    Blocks(u8),
    #[error("index {index} does not lie within indexes {first} to {last} of group {group:#x}")]
    OutsideGroup { group: u32, index: u32, first: u32, last: u32 },
    #[error("the value has bits outside the mask of group {group:#x}: {fields}")]
    OutsideMask { group: u32, fields: String },
    #[error("table {table:#x} already has entry {index}")]
    EntryExists { table: u32, index: u32 },
    #[error("table {table:#x} has no entry {index}")]
    NoEntry { table: u32, index: u32 },
    #[error("entry {index} belongs to group {group:#x}, and the command says {said:#x}")]
    OtherGroup { index: u32, group: u32, said: u32 },
    #[error("action {action} is not allowed in a table of {kind}")]
    Action { action: &'static str, kind: TableKind },
    #[error("action bits {0:#x} are not modelled")]
    ActionBits(u16),
    #[error("actions {0:#x} do not name exactly one of allow, drop and forward")]
    Verdict(u16),
    #[error("action {action} {problem}")]
    Incomplete { action: &'static str, problem: &'static str },
    #[error("a destination of type {kind} is not allowed in a table of {table}")]
    Destination { kind: &'static str, table: TableKind },
    #[error("{what} {value:#x} {problem}")]
    Value { what: &'static str, value: u32, problem: &'static str },
    #[error("root {0:#x} of the table is not in steering memory that was handed out")]
    Root(u64),
    #[error("action {number} of the list: {problem}")]
    Rewrite { number: usize, problem: String },
}

impl Refusal {
    fn status(&self) -> u8 {
        match self {
            Self::Opcode(_) | Self::Modifier(_) => status::BAD_OPERATION,
            Self::Short { .. } => status::BAD_INPUT_LENGTH,
            Self::Unknown { .. } | Self::NoEntry { .. } => status::BAD_RESOURCE,
            Self::InUse { .. } | Self::NotEmpty { .. } | Self::GroupNotEmpty { .. } | Self::EntryExists { .. } => {
                status::BAD_RESOURCE_STATE
            }
            // Not "no resources": Linux takes that for "again", and tc then asks at once and for ever.
            Self::Full { .. } | Self::Limit { .. } => status::EXCEEDS_LIMIT,
            Self::OutsideTable { .. } | Self::OutsideGroup { .. } => status::BAD_INDEX,
            Self::Kind(_)
            | Self::OtherDomain { .. }
            | Self::NotModelled { .. }
            | Self::Level { .. }
            | Self::CrossKind { .. }
            | Self::Overlap { .. }
            | Self::MaskBit(_)
            | Self::Blocks(_)
            | Self::OutsideMask { .. }
            | Self::OtherGroup { .. }
            | Self::Action { .. }
            | Self::ActionBits(_)
            | Self::Verdict(_)
            | Self::Incomplete { .. }
            | Self::Destination { .. }
            | Self::Value { .. }
            | Self::Root(_)
            | Self::Rewrite { .. } => status::BAD_PARAMETER,
        }
    }

    /// Above all numbers that firmware is known to use, so that nobody takes one for the other.
    fn syndrome(&self) -> u32 {
        let kind = match self {
            Self::Opcode(_) => 1,
            Self::Modifier(_) => 2,
            Self::Short { .. } => 3,
            Self::Unknown { .. } => 4,
            Self::InUse { .. } => 5,
            Self::NotEmpty { .. } => 6,
            Self::GroupNotEmpty { .. } => 7,
            Self::Full { .. } => return NO_ROOM,
            Self::Limit { .. } => 9,
            Self::Kind(_) => 10,
            Self::OtherDomain { .. } => 11,
            Self::NotModelled { .. } => 12,
            Self::Level { .. } => 13,
            Self::CrossKind { .. } => 14,
            Self::OutsideTable { .. } => 15,
            Self::Overlap { .. } => 16,
            Self::MaskBit(_) => 17,
            Self::Blocks(_) => 18,
            Self::OutsideGroup { .. } => 19,
            Self::OutsideMask { .. } => 20,
            Self::EntryExists { .. } => 21,
            Self::NoEntry { .. } => 22,
            Self::OtherGroup { .. } => 23,
            Self::Action { .. } => 24,
            Self::ActionBits(_) => 25,
            Self::Verdict(_) => 26,
            Self::Incomplete { .. } => 27,
            Self::Destination { .. } => 28,
            Self::Value { .. } => 29,
            Self::Rewrite { .. } => 30,
            Self::Root(_) => 31,
        };
        OURS + kind
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { status: refusal.status(), syndrome: refusal.syndrome(), reason: refusal.to_string() }
    }
}
