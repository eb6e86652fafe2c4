//! Why a request failed.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::table::TableError;
use sluice_flow::{Origin, Priority, Refusal, Ufid};
use sluice_journal::NotWritten;
use sluice_objects::ChangeError;

/// Why a request was not accepted, is not durable, or did not end as wanted. Display is the plain reason, without what was
/// attempted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The match leaves the input port open. The datapath of OVS takes no flow for all ports.
    #[error("in_port() is missing")]
    InPortMissing,
    /// There is a flow with this UFID, or with this match and priority.
    #[error("flow ufid:{0} exists")]
    Exists(Ufid),
    /// There is no such flow.
    #[error("no such flow")]
    NotFound,
    /// There is no flow with this match at this priority, but at others.
    #[error("no such flow")]
    OtherPriority {
        /// The priority that was asked for.
        wanted: Priority,
        /// The priorities at which there is a flow with this match.
        found: Vec<Priority>,
    },
    /// The UFID belongs to a flow with another match or priority, which a modification cannot change.
    #[error("flow ufid:{0} has another match or priority")]
    OtherMatch(Ufid),
    /// The flow belongs to a source, which alone changes it.
    #[error("flow ufid:{_0} belongs to {}", .1.owner())]
    OtherOrigin(Ufid, Origin),
    /// A replacement is over: another one of the same owner has begun.
    #[error("another replacement of the flows of {0} has begun")]
    Overtaken(Origin),
    /// There is too much to do; the same request may succeed later.
    #[error(transparent)]
    Busy(Arc<Refusal>),
    /// A limit, the graph of chains or the device refuses it.
    #[error(transparent)]
    Refused(Arc<Refusal>),
    /// The change is accepted, and the journal does not have it in time.
    #[error(transparent)]
    NotDurable(#[from] NotWritten),
    /// The change is durable, and the device has not answered in time.
    #[error("{flows} flows accepted, but the device has not answered within {} s", within.as_secs())]
    Unanswered {
        /// Changes without an outcome.
        flows: usize,
        /// How long the device was waited for.
        within: Duration,
    },
    /// All flows are gone, and the device does not say whether it has rules that no flow has.
    #[error(transparent)]
    NotListed(Refusal),
    /// All flows are gone, and the device does not let go of rules that no flow has.
    #[error("{rules} rules are still in the device: {refusal}")]
    LeftInDevice {
        /// How many.
        rules: usize,
        /// The reason for the first one.
        refusal: Refusal,
    },
    /// A port, meter, mirror or timeout policy cannot be as wanted, or is and does not survive a restart.
    #[error(transparent)]
    Object(#[from] ChangeError),
}

impl From<TableError> for Error {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Exists(ufid) => Self::Exists(ufid),
            TableError::NotFound => Self::NotFound,
            TableError::OtherMatch(ufid) => Self::OtherMatch(ufid),
            TableError::OtherOrigin(ufid, origin) => Self::OtherOrigin(ufid, origin),
            TableError::Refused(refusal @ Refusal::Busy { .. }) => Self::Busy(refusal.into()),
            TableError::Refused(refusal) => Self::Refused(refusal.into()),
        }
    }
}

impl Error {
    /// The refusal, if it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Busy(refusal) | Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether there is as much as there may be already.
    pub(super) fn is_at_limit(&self) -> bool {
        matches!(self.refusal(), Some(Refusal::Limit { .. }))
    }
}
