//! What can be asked of the agent: typed requests with typed outcomes and errors.
//!
//! A codec makes a request, calls the service and writes what it returns; [`commands`](crate::commands) is the codec for unixctl, in
//! text and JSON. The service alone checks a request, makes it durable and waits for the device. It knows no text. To make a request, a
//! codec needs only the names of ports and the seed that names flows ([`AgentView::ports`], [`AgentView::seed`]).
//!
//! # Two faces
//!
//! [`AgentView`] takes requests that change nothing that survives a restart: [`explain`](AgentView::explain), [`dump`](AgentView::dump),
//! [`audit`](AgentView::audit), counters, names. [`Service`] takes the others. A command that only reads is handed the view, and cannot
//! change anything.
//!
//! # From request to answer
//!
//! ```text
//! AddFlow, ModifyFlow, DeleteFlow --Service--> Accepted --durable()--> Durable --outcome(at_most)--> Outcome
//! batch of FlowRequest                                                    |
//!                                                                         +--receipt()--> Receipt
//! ```
//!
//! * [`Accepted`]: the table has the change, and a worker makes it. It has no outcome and no receipt.
//! * [`Durable`]: the journal has the change, so that it survives the death of the agent. It has an outcome, for a caller who waits for
//!   the device, and a [`Receipt`].
//! * [`Receipt`]: a command that changes something must return one to succeed. A command that does not wait for the journal does not
//!   compile.
//!
//! [`Service::put`] and [`Service::remove`] make and remove ports, meters, mirrors and timeout policies. They ask the device, wait
//! for the file of objects, and return a [`Durable`].
//!
//! # Many at once
//!
//! A [`FlowStream`] accepts one request after the other. It waits for room instead of failing as busy, and hands new flows over to workers
//! in groups. One wait makes all of it durable, and the caller hears of each request what became of it. A [`FlowBatch`] counts the outcomes.
//! Two flows that come and go together are a [`Session`].

mod accepted;
mod audit;
mod batch;
mod dump;
mod error;
mod explain;
mod faces;
mod flows;
mod objects;
mod orphans;
mod owners;
mod patience;
mod sessions;
mod stream;
mod survey;
#[cfg(test)]
mod tests;
mod turns;
mod view;

pub use self::accepted::{Accepted, Durable, Pending, Receipt};
pub use self::audit::{AuditError, Audited};
pub use self::batch::{BatchOutcome, FlowBatch, FlowChanges};
pub use self::dump::{Dump, FlowKind};
pub use self::error::Error;
pub use self::explain::{Expires, Explain, Explanation, KnownFlow};
pub use self::faces::{AgentView, Service};
pub use self::flows::{AddFlow, DeleteFlow, FlowChange, FlowName, FlowRequest, Flush, ModifyFlow, Outcome};
pub use self::orphans::OrphanError;
pub use self::owners::{Replaced, Replacement, Step, Sweep};
pub(crate) use self::patience::Patience;
pub use self::sessions::{Session, SessionStatus};
pub use self::stream::FlowStream;
pub use self::survey::{RefusedFlows, Survey};
