//! What can be asked of the agent: typed requests, with typed outcomes and errors.
//!
//! A codec ([`commands`](crate::commands) for unixctl, with its text and its JSON) makes a request, calls the service and writes down
//! what it returns. The service alone checks a request, makes it durable, waits for the device and says what may be answered; it
//! knows no text. A codec needs nothing of the agent to make a request but the names of ports and the seed that names flows
//! ([`AgentView::ports`], [`AgentView::seed`]).
//!
//! # Two faces
//!
//! [`AgentView`] is for requests that change nothing a restart would have to know of: [`explain`](AgentView::explain),
//! [`dump`](AgentView::dump), [`audit`](AgentView::audit), counters, names. [`Service`] is for the others. A codec hands a command that reads
//! the view alone, so that it cannot change anything.
//!
//! # From request to answer
//!
//! ```text
//! AddFlow, ModifyFlow, DeleteFlow --Service--> Accepted --durable()--> Durable --outcome(at_most)--> Outcome
//! batch of FlowRequest                                                    |
//!                                                                         +--receipt()--> Receipt
//! ```
//!
//! [`Accepted`]: the table has the change, and workers do it. Nothing can be learnt of it yet. [`Durable`]: the journal has it, so
//! that the agent may be killed. Only this has an outcome, and only this gives a [`Receipt`], which a command that changes something
//! must return to succeed. So nobody hears of a change that a restart would forget: a command that does not wait for the journal does
//! not compile. Who does not want to wait for the device leaves the outcome out.
//!
//! Ports, meters, mirrors and timeout policies ([`Service::put`], [`Service::remove`]) ask the device and write their file in one step,
//! which returns a [`Durable`].
//!
//! # Many at once
//!
//! [`FlowBatch`] takes requests on one after the other, waits for room instead of failing as busy, and hands new flows over to workers
//! in groups. All of it is made durable by one wait.

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
#[cfg(test)]
mod tests;
mod view;

pub use self::accepted::{Accepted, Durable, Pending, Receipt};
pub use self::audit::{AuditError, Audited};
pub use self::batch::{BatchOutcome, FlowBatch, FlowChanges};
pub use self::dump::{Dump, FlowKind, could_concern};
pub use self::error::Error;
pub use self::explain::{Expires, Explain, Explanation, KnownFlow};
pub use self::faces::{AgentView, Service};
pub use self::flows::{AddFlow, DeleteFlow, FlowChange, FlowName, FlowRequest, Flush, ModifyFlow, Outcome};
pub use self::orphans::OrphanError;
