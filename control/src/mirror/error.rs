//! Why a message is refused.

/// Why bytes are no message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It ends before its fields do, or goes on behind them.
    #[error("a {what} of {length} bytes has another length than its fields say")]
    Length {
        /// What the message, or the part of it, is.
        what: &'static str,
        /// The length, in bytes.
        length: usize,
    },
    /// It is of another version.
    #[error("version {0} of the messages of the mirror socket is not known here, where it is 1")]
    Version(u8),
    /// A field has a value that it cannot have.
    #[error("the {field} of a {what} is not one of this version")]
    Field {
        /// What the message is.
        what: &'static str,
        /// The field.
        field: &'static str,
    },
}
