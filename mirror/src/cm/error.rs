//! Why a connection manager does not connect.

use std::io;

use super::event::{Event, EventKind};
use super::rejection::reason;
use crate::connection::NoPlace;
use crate::terms::Refusal;
use crate::verbs::CallError;

/// Why two ends do not connect.
#[derive(Debug, thiserror::Error)]
pub enum CmError {
    /// A call of librdmacm failed, or the queue pair cannot be connected so.
    #[error(transparent)]
    Call(#[from] CallError),
    /// No device or no path leads to the address.
    #[error("{kind}: {source}")]
    Unresolved {
        /// Address or route.
        kind: EventKind,
        /// Why.
        source: io::Error,
    },
    /// The address belongs to another device than the one that is used.
    #[error("the address is reached by the RDMA device {found}, not by {used}")]
    Device {
        /// The device of the address.
        found: String,
        /// The device that is used.
        used: String,
    },
    /// Nobody listens at that port.
    #[error("nobody listens at that port")]
    NobodyListens,
    /// The other end refuses, for this reason.
    #[error("the other end refuses: {0}")]
    RefusedThere(String),
    /// The other end rejects without a reason in words.
    #[error("the other end rejects the connection, reason {0} of IBTA 12.6.7.2")]
    Rejected(i32),
    /// The terms of the other end are refused here. It was told.
    #[error("the other end is refused: {0}")]
    Refused(Refusal),
    /// There is no place for another connection here. The other end was told.
    #[error(transparent)]
    NoPlace(#[from] NoPlace),
    /// Who asked for the connection waits for it no more: one attempt of several has succeeded, or all took too long.
    #[error("the other end has given up its request")]
    GivenUp,
    /// Nothing happened for too long.
    #[error("the other end has not answered in time")]
    Silence,
    /// Something happened that ends the attempt.
    #[error("{kind} (status {status})")]
    Failed {
        /// What happened.
        kind: EventKind,
        /// The status that came with it.
        status: i32,
    },
}

impl CmError {
    /// The reason in words for the other end, which knows that it is refused.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.to_string(),
            error => error.to_string(),
        }
    }

    /// That this happened where something else was waited for.
    pub(super) fn of(event: Event) -> Self {
        const INVALID_SERVICE: i32 = 8;
        let Event { kind, status, private_data, .. } = event;
        match kind {
            EventKind::AddressError | EventKind::RouteError => {
                Self::Unresolved { kind, source: io::Error::from_raw_os_error(status.saturating_abs()) }
            }
            EventKind::Rejected => match reason(&private_data) {
                Some(words) => Self::RefusedThere(words),
                None if status == INVALID_SERVICE => Self::NobodyListens,
                None => Self::Rejected(status),
            },
            _ => Self::Failed { kind, status },
        }
    }
}
