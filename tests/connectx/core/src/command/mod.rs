//! The command interface: mailboxes in, mailboxes out.
//!
//! The table of commands (`hca/table.rs`) has a row for every command that is modelled: opcode, name, input and handler. Whatever is
//! not there, sets a bit that is not modelled, or names what does not exist, is refused with a status and a syndrome, and is
//! remembered decoded.

pub mod layouts;
pub mod queue;

use std::fmt;

use crate::layout::{Field, Layout};
use layouts::{header, output};

/// Why a command is refused (PRM, "Command Return Status").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// An opcode or a modifier that the device does not have.
    BadOperation = 0x02,
    /// A parameter out of what is allowed.
    BadParameter = 0x03,
    /// Not now: the device is not enabled, or not initialized.
    BadSystemState = 0x04,
    /// An object that does not exist.
    BadResource = 0x05,
    /// An object that another one uses.
    ResourceBusy = 0x06,
    /// Over a limit that the capabilities tell.
    LimitExceeded = 0x08,
    /// An object that is not in the state that the command needs.
    BadResourceState = 0x09,
    /// An index out of its table.
    BadIndex = 0x0a,
    /// All are in use.
    NoResources = 0x0f,
    /// The input ends too early.
    BadInputLength = 0x50,
}

/// A command refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("status {status:?}, syndrome {syndrome:#x}: {reason}")]
pub struct Failure {
    /// What the driver is told.
    pub status: Status,
    /// Which check it was, for the driver's log.
    pub syndrome: u32,
    /// For people.
    pub reason: String,
}

impl Failure {
    /// A refusal.
    #[must_use]
    pub fn new(status: Status, syndrome: u32, reason: impl Into<String>) -> Self {
        Self { status, syndrome, reason: reason.into() }
    }
}

/// A refused command as it came, for people: what a test prints, and what `strict` stops at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the command, or its number.
    pub command: String,
    /// Its fields that are not zero.
    pub input: String,
    /// What the driver was told.
    pub status: u8,
    /// Which check it was.
    pub syndrome: u32,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, input, status, syndrome, reason } = self;
        write!(f, "{command} refused with status {status:#x}, syndrome {syndrome:#x}: {reason} [{input}]")
    }
}

/// An input mailbox that is as long as its layout and sets nothing else.
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    layout: &'static Layout,
}

impl<'a> Input<'a> {
    pub(crate) fn new(layout: &'static Layout, bytes: &'a [u8]) -> Result<Self, Failure> {
        if bytes.len() < layout.length {
            let reason = format!("{} bytes instead of {}", bytes.len(), layout.length);
            return Err(Failure::new(Status::BadInputLength, 0x0c01, reason));
        }
        if let Some(offset) = layout.unmodelled(bytes) {
            let word = bytes.iter().skip(offset).take(4).fold(0, |word, byte| word << 8 | u32::from(*byte));
            let reason = format!("bits that are not modelled are set in the doubleword at {offset:#x}: {word:#010x}");
            return Err(Failure::new(Status::BadParameter, 0x0c02, reason));
        }
        Ok(Self { bytes, layout })
    }

    /// A field's value. It is of the layout that the input was checked for.
    pub(crate) fn get(&self, field: Field) -> u64 {
        debug_assert!(self.layout.fields.contains(&field), "{} is of another layout", field.name());
        field.read(self.bytes).unwrap_or_default()
    }

    /// The same of a field of another layout that has it at the same place.
    pub(crate) fn raw(&self, field: Field) -> u64 {
        field.read(self.bytes).unwrap_or_default()
    }

    pub(crate) fn get_u32(&self, field: Field) -> u32 {
        u32::try_from(self.get(field)).unwrap_or(u32::MAX)
    }

    pub(crate) fn get_u16(&self, field: Field) -> u16 {
        u16::try_from(self.get(field)).unwrap_or(u16::MAX)
    }

    pub(crate) fn is_set(&self, field: Field) -> bool {
        self.get(field) != 0
    }

    pub(crate) fn op_mod(&self) -> u16 {
        self.get_u16(header::OP_MOD)
    }

    /// What follows the layout.
    pub(crate) fn tail(&self) -> &'a [u8] {
        self.bytes.get(self.layout.length..).unwrap_or_default()
    }

    /// What follows the layout, as quadwords.
    pub(crate) fn quadwords(&self) -> Vec<u64> {
        let words = self.tail().chunks_exact(8);
        words.map(|word| word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))).collect()
    }

    /// What follows the layout, as doublewords.
    pub(crate) fn doublewords(&self) -> Vec<u32> {
        let words = self.tail().chunks_exact(4);
        words.map(|word| word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))).collect()
    }
}

/// An output mailbox, with status "ok" as long as nothing else is written.
pub(crate) struct Output(Vec<u8>);

impl Output {
    /// Status and syndrome only.
    pub(crate) fn empty() -> Self {
        Self(vec![0; output::LAYOUT.length])
    }

    pub(crate) fn new(layout: &Layout) -> Self {
        Self(vec![0; layout.length])
    }

    /// Status and syndrome, and then `data`.
    pub(crate) fn with_data(data: &[u8]) -> Self {
        let mut output = Self::empty();
        output.0.extend_from_slice(data);
        output
    }

    pub(crate) fn set(mut self, field: Field, value: impl Into<u64>) -> Self {
        let written = field.write(&mut self.0, value.into());
        debug_assert!(written, "{} is of another layout", field.name());
        self
    }

    pub(crate) fn append(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// What a handler says.
pub(crate) type Answer = Result<Output, Failure>;

/// An output that says no.
pub fn refusal_bytes(status: u8, syndrome: u32) -> Vec<u8> {
    Output::empty().set(output::STATUS, status).set(output::SYNDROME, syndrome).into_bytes()
}

/// The opcode of an input mailbox.
pub fn opcode(input: &[u8]) -> u16 {
    header::OPCODE.read(input).and_then(|opcode| u16::try_from(opcode).ok()).unwrap_or_default()
}

/// The user context of an input mailbox.
pub(crate) fn uid(input: &[u8]) -> u16 {
    header::UID.read(input).and_then(|uid| u16::try_from(uid).ok()).unwrap_or_default()
}

/// A condition that the command needs.
pub(crate) fn require(holds: bool, status: Status, syndrome: u32, reason: impl Into<String>) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::new(status, syndrome, reason)) }
}

/// An operation modifier that the command does not have.
pub(crate) fn modifier(op_mod: u16) -> Failure {
    Failure::new(Status::BadOperation, 0x0118, format!("op_mod {op_mod:#x} is not modelled"))
}
