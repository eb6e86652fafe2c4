//! Why a request to the kernel failed.

use std::fmt;
use std::time::Duration;

use rustix::io::Errno;

use crate::netlink::attribute::{Malformed, TooLong};
use crate::netlink::message::Acknowledgement;

/// Why a request to the kernel about devices failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The socket failed.
    #[error("netlink: {step}: {source}")]
    Socket {
        /// In which step.
        step: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel refused.
    #[error("{request}: {reason}")]
    Refused {
        /// What was asked.
        request: &'static str,
        /// Why.
        reason: KernelReason,
    },
    /// The kernel did not answer.
    #[error("{request}: no answer within {after:?}")]
    Unanswered {
        /// What was asked.
        request: &'static str,
        /// Within this time.
        after: Duration,
    },
    /// A list changed each time that it was read.
    #[error("{request}: the list changed each of {times} times that it was read")]
    Unsteady {
        /// What was asked.
        request: &'static str,
        /// So many times.
        times: u32,
    },
    /// The answer makes no sense.
    #[error("{request}: {source}")]
    Malformed {
        /// What was asked.
        request: &'static str,
        /// What is wrong with it.
        source: Malformed,
    },
    /// The request does not fit into a message.
    #[error("{request}: {source}")]
    TooLong {
        /// What was to be asked.
        request: &'static str,
        /// What does not fit.
        source: TooLong,
    },
}

impl LinkError {
    /// The kernel's reason, if the kernel refused.
    pub const fn reason(&self) -> Option<&KernelReason> {
        match self {
            Self::Refused { reason, .. } => Some(reason),
            _ => None,
        }
    }

    pub(crate) fn is(&self, errno: Errno) -> bool {
        self.reason().is_some_and(|reason| reason.errno == errno)
    }
}

/// Why the kernel refused: the error number, and the text of the extended acknowledgement if there is one (`NLMSGERR_ATTR_MSG`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelReason {
    /// The number of the error.
    pub errno: Errno,
    /// The text of the extended acknowledgement.
    pub words: Option<Box<str>>,
    /// Where in the request the attribute is that is at fault, in bytes from its start.
    pub offset: Option<u32>,
}

impl KernelReason {
    pub(crate) fn new(acknowledgement: &Acknowledgement<'_>) -> Self {
        // What is no error number would be a panic in rustix.
        let is_number = (1..4096).contains(&acknowledgement.errno);
        Self {
            errno: if is_number { Errno::from_raw_os_error(acknowledgement.errno) } else { Errno::PROTO },
            words: acknowledgement.text.map(Into::into),
            offset: acknowledgement.offset,
        }
    }
}

impl fmt::Display for KernelReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.errno)?;
        self.words.as_ref().map_or(Ok(()), |words| write!(out, ": {words}"))
    }
}
