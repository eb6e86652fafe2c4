//! Why a record cannot be read or written.

use sluice_flow::Ufid;

use crate::frame::{VERSION, WrongHeader};

/// Why a record cannot be read although its checksum is right, or a file is no log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The file begins with something else.
    #[error("it is no log of flows")]
    NotALog,
    /// The file was written in another form.
    #[error("it is of version {0}, this agent reads versions 1 and {VERSION}")]
    UnknownVersion(u16),
    /// What the file holds is said in another form.
    #[error("its contents are of kind {0}, which this agent does not know")]
    UnknownContents(u16),
    /// The kind of the record is not known.
    #[error("a record of kind {0}, which this agent does not know")]
    UnknownKind(u8),
    /// The record ends too early.
    #[error("a record that ends too early")]
    Short,
    /// A number is out of its range.
    #[error("a record with a wrong {0}")]
    Wrong(&'static str),
    /// A match on a field that there is not, or not with these bits.
    #[error("a match on {0}, which this agent does not know in this form")]
    UnknownField(String),
    /// The shape was not written before.
    #[error("a flow of shape {0}, which is not in the file")]
    UnknownShape(u32),
    /// The actions cannot be read.
    #[error("actions that this agent cannot read, {text}: {reason}")]
    Actions {
        /// The actions.
        text: String,
        /// Why not.
        reason: String,
    },
}

impl From<WrongHeader> for RecordError {
    fn from(wrong: WrongHeader) -> Self {
        match wrong {
            WrongHeader::NotALog => Self::NotALog,
            WrongHeader::Version(version) => Self::UnknownVersion(version),
            WrongHeader::Contents(contents) => Self::UnknownContents(contents),
        }
    }
}

/// A flow that cannot be written so that it would be read back as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("flow ufid:{ufid} cannot be kept: {reason}")]
pub struct NotWritable {
    /// The flow.
    pub ufid: Ufid,
    /// Why not.
    pub reason: &'static str,
}
