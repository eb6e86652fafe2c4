//! What is asked of the table, and what comes of it.

use std::sync::Arc;
use std::time::Duration;

use super::chains::Freed;
use super::queue::Lane;
use crate::backend::{Change, Placement};
use crate::counters::Counters;
use crate::flow::Flow;
use crate::id::FlowId;
use crate::origin::Origin;
use crate::refusal::Refusal;
use crate::ufid::Ufid;

/// How much a table may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Flows.
    pub flows: usize,
    /// Flows with an accepted change that has no outcome yet; deletions are not held back by it.
    pub unsettled: usize,
}

/// A request was taken on, and a worker must look at the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The life that it concerns. Its slot picks the worker.
    pub flow: FlowId,
    /// How it shall be [handed over](super::FlowTable::hand_over) to the worker.
    pub lane: Lane,
}

/// A request was not taken on, and nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// There is a flow with this UFID, or with this match and priority.
    #[error("flow ufid:{0} exists")]
    Exists(Ufid),
    /// There is no such flow.
    #[error("no such flow")]
    NotFound,
    /// The UFID belongs to a flow with another match or priority, which a modification cannot change.
    #[error("flow ufid:{0} has another match or priority")]
    OtherMatch(Ufid),
    /// The flow belongs to somebody else, who alone changes it.
    #[error("flow ufid:{_0} belongs to {}", .1.owner())]
    OtherOrigin(Ufid, Origin),
    /// A limit is reached.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The outcome of an accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The device has what was wanted.
    Installed(Placement),
    /// The device refused.
    Refused(Arc<Refusal>),
    /// The flow is gone, with these counters.
    Deleted(Counters),
    /// A later request changed what is wanted before this one had an outcome.
    Superseded,
}

/// Waits for outcomes. Called under the flow's lock: it must be quick and must not call the table.
pub trait Waiter: Send + Sync {
    /// One request that was made with this waiter is settled.
    fn settled(&self, flow: FlowId, outcome: &Settlement);
}

/// What a worker finds when it looks at a flow.
#[derive(Debug)]
pub enum Look {
    /// Nothing to do now; whatever will change that puts the id into the queue again.
    Nothing,
    /// Hand this to the backend, then call [`FlowTable::complete`](super::FlowTable::complete).
    Change(Change),
    /// The flow is gone. The life that waited for its end must be looked at next.
    Retired {
        /// The flow as it was last wanted.
        flow: Flow,
        /// Who waited.
        successor: Option<FlowId>,
        /// What waited at chains.
        freed: Freed,
    },
    /// It waits for flows of other chains, one of which [frees](Freed) it.
    Held,
}

/// What the end of a change came to.
#[derive(Debug, Default)]
pub struct Completed {
    /// The time from the wish to its outcome; `None` if the flow is gone.
    pub latency: Option<Duration>,
    /// What waited for it at chains.
    pub freed: Freed,
}
