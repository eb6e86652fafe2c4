//! Why requests fail, in words.

use std::fmt;

use rdma_sys::ibv_wc_status as status;

/// Why a request failed, as its completion says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// In the words of the standard.
    pub reason: Reason,
    /// The device's own number, whose meaning its vendor knows.
    pub vendor: u32,
}

macro_rules! reasons {
    ($($(#[$meta:meta])* $name:ident $code:ident $words:literal,)*) => {
        /// Why a request failed (`enum ibv_wc_status`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$meta])* $name,)*
            /// A number that no header has.
            Unknown(u32),
        }

        impl Reason {
            pub(super) fn new(code: status::Type) -> Self {
                match code {
                    $(status::$code => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => write!(out, "{} ({})", $words, stringify!($code)),)*
                    Self::Unknown(code) => write!(out, "status {code} of a completion, which has no name"),
                }
            }
        }
    };
}

reasons! {
    /// A message is longer than the buffers that it came to, or than a request can be.
    LocalLength IBV_WC_LOC_LEN_ERR "the message is longer than the buffers of its receive request",
    /// The queue pair cannot carry the request out.
    LocalOperation IBV_WC_LOC_QP_OP_ERR "the queue pair cannot carry out this request",
    /// A buffer is not under its key, or the key is of another domain.
    LocalProtection IBV_WC_LOC_PROT_ERR "a buffer of the request is not under its key",
    /// The queue pair failed before it came to this request.
    Flushed IBV_WC_WR_FLUSH_ERR "the queue pair had failed before it came to this request",
    /// A memory window could not be bound.
    WindowBind IBV_WC_MW_BIND_ERR "the memory window cannot be bound so",
    /// The other side sent an answer that is none.
    BadResponse IBV_WC_BAD_RESP_ERR "the other side sent an answer that is none",
    /// What was received may not be written where it should go.
    LocalAccess IBV_WC_LOC_ACCESS_ERR "what was received may not be written where it should go",
    /// The other side takes no such requests, or has too small buffers.
    RemoteRequest IBV_WC_REM_INV_REQ_ERR "the other side does not take such a request, or its buffers are too small for it",
    /// The key or the address at the other side is wrong.
    RemoteAccess IBV_WC_REM_ACCESS_ERR "the other side does not allow access to that memory by that key",
    /// The other side could not carry the request out.
    RemoteOperation IBV_WC_REM_OP_ERR "the other side could not carry out the request",
    /// The other side did not answer, as often as it was tried.
    NoAnswer IBV_WC_RETRY_EXC_ERR "the other side did not answer within all retries",
    /// The other side had no receive request posted, as often as it was tried.
    NoBuffer IBV_WC_RNR_RETRY_EXC_ERR "the other side had no receive request posted within all retries",
    /// The other side ended the request.
    RemoteAborted IBV_WC_REM_ABORT_ERR "the other side has aborted the request",
    /// The device failed.
    Fatal IBV_WC_FATAL_ERR "the device has failed",
    /// An answer took too long.
    ResponseTimeout IBV_WC_RESP_TIMEOUT_ERR "an answer took too long",
    /// Something else.
    General IBV_WC_GENERAL_ERR "a failure that the device does not explain",
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, vendor error {:#x}", self.reason, self.vendor)
    }
}

impl std::error::Error for Failure {}
