//! What is asked of the table, and what comes of it.

use std::fmt;
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

/// Waits for outcomes. Called under the flow's lock, or a little later: it must be quick and must not call the table.
pub trait Waiter: Send + Sync {
    /// One request that was to be answered here, under this number, is settled.
    fn settled(&self, request: u32, flow: FlowId, outcome: &Settlement);
}

impl<W: Waiter + ?Sized> Waiter for Arc<W> {
    fn settled(&self, request: u32, flow: FlowId, outcome: &Settlement) {
        W::settled(self, request, flow, outcome);
    }
}

/// Where the outcome of a request goes. Clones share the waiter, so that a flow which waits takes little memory for that.
#[derive(Clone)]
pub struct ReplyTo {
    pub(super) waiter: SharedWaiter,
    /// Which of the waiter's requests it is.
    pub(super) request: u32,
}

/// A waiter behind a thin pointer.
pub(super) type SharedWaiter = Arc<Box<dyn Waiter>>;

impl ReplyTo {
    /// To this waiter, as its request 0.
    pub fn new(waiter: impl Waiter + 'static) -> Self {
        Self { waiter: Arc::new(Box::new(waiter)), request: 0 }
    }

    /// To the same waiter, as another of its requests.
    #[must_use]
    pub fn request(&self, request: u32) -> Self {
        Self { waiter: self.waiter.clone(), request }
    }

    pub(super) fn settled(&self, flow: FlowId, outcome: &Settlement) {
        self.waiter.settled(self.request, flow, outcome);
    }
}

impl<W: Waiter + 'static> From<Arc<W>> for ReplyTo {
    fn from(waiter: Arc<W>) -> Self {
        Self::new(waiter)
    }
}

/// What a worker finds when it looks at a flow.
#[derive(Debug)]
pub enum Look {
    /// Nothing to do now; whatever will change that puts the id into the queue again.
    Nothing,
    /// Nothing to do now either, but this waited for it at chains; it may be among them itself.
    Freed(Freed),
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
    /// What somebody is yet to hear.
    pub reply: Option<Reply>,
}

/// Tells who waits that a flow is installed, when it is dropped: whoever completes changes drops it once it has counted them.
#[must_use]
pub struct Reply {
    pub(super) reply_to: ReplyTo,
    pub(super) flow: FlowId,
    pub(super) placement: Placement,
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.reply_to.settled(self.flow, &Settlement::Installed(self.placement));
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reply").field("flow", &self.flow).field("placement", &self.placement).finish_non_exhaustive()
    }
}
