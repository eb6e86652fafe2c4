//! What both ends send each other once they are connected, each a checked view of bytes and a plain value.
//!
//! All numbers are big endian, but for those in blocks of [`Layout::Ring`], which the kernel of the sender wrote.
//!
//! - The sender sends messages ([`Message`]): first a [`Hello`], then batches, and a heartbeat now and then.
//! - The collector answers with grants ([`Grant`]): credits of each class, and up to which frame it has taken over.
//! - While the sender waits for an answer, and nothing else is under way, it writes nothing ([`PROBE`]), which the device of the collector
//!   answers.
//!
//! A batch is a header and a payload. The payload is a sequence of frames, as [`frames`] or [`ring`] describe it.

mod drops;
pub mod frames;
mod grant;
mod hello;
mod message;
mod reader;
pub mod ring;
#[cfg(test)]
mod tests;

pub use self::drops::{CAUSES, Cause, Drops};
pub use self::grant::{ClassGrant, GRANT, Grant};
pub use self::hello::{Hello, Port};
pub use self::message::{HEADER, Header, Kind, Layout, Message};
pub(crate) use self::message::{HEARTBEAT, write_heartbeat};

pub use sluice_control::mirror::CLASSES;

use crate::terms::Terms;

/// What an end of this version offers.
#[must_use]
pub fn terms() -> Terms {
    #[expect(clippy::cast_possible_truncation, reason = "there are not so many classes")]
    Terms { features: FRAMES | RING | PROBE | GIVEN_UP | SOLICITED, classes: CLASSES as u8 }
}

/// Feature: batches of [`Layout::Frames`].
pub const FRAMES: u32 = 1;

/// Feature: batches of [`Layout::Ring`].
pub const RING: u32 = 2;

/// Feature: the queue pair of a collector takes an RDMA WRITE without bytes, which tells a sender that the link is there. No memory is
/// under a key for it.
pub const PROBE: u32 = 4;

/// Feature: a batch says how many frames before it the sender has given up, so that they are not counted as missing, too.
pub const GIVEN_UP: u32 = 8;

/// Feature: all messages of this end are solicited, so that the other one need not be woken for what it has sent itself.
pub const SOLICITED: u32 = 16;

/// Why bytes of the other end are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// They do not begin with the magic of such a message.
    #[error("the message does not begin with the magic of its kind")]
    Magic,
    /// Another version.
    #[error("the message has version {0}, and this end knows version {VERSION}")]
    Version(u16),
    /// Another length than the message says, or than its kind has.
    #[error("{what} has {length} bytes where {expected} are expected")]
    Length {
        /// What is too long or too short.
        what: &'static str,
        /// How many bytes it has.
        length: usize,
        /// How many it should have.
        expected: usize,
    },
    /// A field has a value that it cannot have.
    #[error("{field} cannot be {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A text is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// Another number of frames than the header says.
    #[error("the batch has {found} frames where its header says {expected}")]
    Frames {
        /// How many there are.
        found: u32,
        /// How many there should be.
        expected: u32,
    },
}

/// In place of a port's number: none is known (OVS's `ODPP_NONE`).
const NO_PORT: u32 = u32::MAX;

/// Version of all messages.
const VERSION: u16 = 1;
