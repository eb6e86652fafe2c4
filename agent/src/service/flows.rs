//! Requests that change one flow, or remove all.

use std::sync::Arc;
use std::time::Duration;

use sluice_flow::table::{FlowView, ReplyTo, TableError};
use sluice_flow::{ActionList, EndReason, Expiry, Field, Flow, FlowId, MaskedKey, Origin, Priority, Ufid};
use sluice_offload::{Batch, Tally};

use super::accepted::{Accepted, Pending};
use super::error::Error;
use super::faces::Service;
use crate::agent::Agent;
use crate::upkeep::audit;

/// Adds a flow that does not exist.
#[derive(Clone, Debug)]
pub struct AddFlow {
    /// The flow.
    pub flow: Flow,
}

/// Changes actions and expiry of a flow.
#[derive(Clone, Debug)]
pub struct ModifyFlow {
    /// The flow with its new actions and expiry.
    pub flow: Flow,
    /// Whether the flow is added if it does not exist.
    pub may_create: bool,
    /// Whether the old rule stays in the device if the new one is refused.
    pub keep_old_rule: bool,
}

/// Deletes a flow.
#[derive(Clone, Debug)]
pub struct DeleteFlow {
    /// Which one.
    pub flow: FlowName,
    /// Whose flow it must be, if not anybody's.
    pub of: Option<Origin>,
}

/// What a flow is found by.
#[derive(Clone, Debug)]
pub enum FlowName {
    /// Its UFID.
    Ufid(Ufid),
    /// Its match and priority.
    Match {
        /// The match.
        matching: MaskedKey<'static>,
        /// The priority.
        priority: Priority,
    },
    /// The UFID of this flow or, if no flow has that, its match and priority.
    Like(Flow),
}

/// A request of a [batch](super::FlowBatch).
#[derive(Clone, Debug)]
pub enum FlowRequest {
    /// Adds a flow.
    Add(AddFlow),
    /// Changes actions and expiry of a flow.
    Modify(ModifyFlow),
    /// Deletes a flow.
    Delete(DeleteFlow),
}

/// An accepted change of one flow.
pub struct FlowChange {
    flow: FlowId,
    batch: Arc<Batch>,
    /// The flow before its deletion.
    deleted: Option<Box<FlowView>>,
}

/// The accepted end of all flows.
pub struct Flush {
    batch: Arc<Batch>,
}

/// What became of a change that the device did not refuse.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The device has the flow as wanted.
    Installed,
    /// A later request overtook this one before it had an outcome.
    Superseded,
    /// The flow is gone: as it was, with all that it ever counted. `None` if somebody else deleted it first.
    Deleted(Option<Box<FlowView>>),
}

impl Service {
    /// Adds a flow.
    pub fn add(&self, request: AddFlow) -> Result<Accepted<'_, FlowChange>, Error> {
        self.change(FlowRequest::Add(request))
    }

    /// Changes actions and expiry of a flow.
    pub fn modify(&self, request: ModifyFlow) -> Result<Accepted<'_, FlowChange>, Error> {
        self.change(FlowRequest::Modify(request))
    }

    /// Deletes a flow. Never busy.
    pub fn delete(&self, request: DeleteFlow) -> Result<Accepted<'_, FlowChange>, Error> {
        let (agent, batch) = (self.agent(), Arc::new(Batch::default()));
        let flow = find_owned(agent, &request)?;
        let deleted = agent.table.view(flow).map(Box::new);
        batch.expect_one();
        agent.queue.delete(flow, EndReason::Deleted, Some(batch.clone().into()))?;
        Ok(Accepted::new(agent, FlowChange { flow, batch, deleted }))
    }

    /// Deletes all flows, and takes every rule of ours out of the device that no flow has.
    pub fn flush(&self) -> Accepted<'_, Flush> {
        let batch = Arc::new(Batch::default());
        self.agent().queue.delete_all(EndReason::Flushed, &batch);
        Accepted::new(self.agent(), Flush { batch })
    }

    fn change(&self, request: FlowRequest) -> Result<Accepted<'_, FlowChange>, Error> {
        let (agent, batch) = (self.agent(), Arc::new(Batch::default()));
        let flow = request.check().and_then(|()| submit(agent, request, &batch));
        let flow = flow.inspect_err(|error| count_refusal(agent, error))?;
        Ok(Accepted::new(agent, FlowChange { flow, batch, deleted: None }))
    }
}

impl FlowRequest {
    /// Checks what the table does not.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Add(AddFlow { flow })
            | Self::Modify(ModifyFlow { flow, .. })
            | Self::Delete(DeleteFlow { flow: FlowName::Like(flow), .. }) => check_in_port(flow),
            Self::Delete(DeleteFlow { flow: FlowName::Ufid(_) | FlowName::Match { .. }, .. }) => Ok(()),
        }
    }
}

/// Fails if a flow is for all ports.
pub(super) fn check_in_port(flow: &Flow) -> Result<(), Error> {
    let (_, mask) = flow.matching().get(Field::InPort);
    if mask == Field::InPort.full_mask() { Ok(()) } else { Err(Error::InPortMissing) }
}

/// Takes a request on, whose outcome a batch counts.
pub(super) fn submit(agent: &Agent, request: FlowRequest, batch: &Arc<Batch>) -> Result<FlowId, Error> {
    batch.expect_one();
    submit_for(agent, request, batch.clone().into()).inspect_err(|_| batch.expect_one_less())
}

/// Takes a request on, and sends its outcome to who waits for it.
pub(super) fn submit_for(agent: &Agent, request: FlowRequest, reply_to: ReplyTo) -> Result<FlowId, Error> {
    let add = |flow, reply_to| agent.queue.add(flow, Some(reply_to)).map_err(Error::from);
    match request {
        FlowRequest::Add(AddFlow { flow }) => add(flow, reply_to),
        FlowRequest::Modify(ModifyFlow { flow, may_create, keep_old_rule }) => {
            let otherwise = may_create.then(|| flow.clone());
            match (agent.queue.modify(flow, keep_old_rule, Some(reply_to.clone())), otherwise) {
                (Err(TableError::NotFound), Some(flow)) => add(flow, reply_to),
                (modified, _) => modified.map_err(Error::from),
            }
        }
        FlowRequest::Delete(request) => {
            let flow = find_owned(agent, &request)?;
            Ok(agent.queue.delete(flow, EndReason::Deleted, Some(reply_to))?)
        }
    }
}

/// Finds the flow that is to be deleted. A life has the same owner to its end.
fn find_owned(agent: &Agent, DeleteFlow { flow, of }: &DeleteFlow) -> Result<FlowId, Error> {
    let id = find(agent, flow)?;
    let Some(owner) = of else { return Ok(id) };
    let view = agent.table.view(id).ok_or(Error::NotFound)?;
    if view.flow.origin == *owner { Ok(id) } else { Err(Error::OtherOrigin(view.flow.ufid, view.flow.origin)) }
}

/// A request that is turned away is a refusal, too, told to the caller and counted once.
pub(super) fn count_refusal(agent: &Agent, error: &Error) {
    if let Some(refusal) = error.refusal() {
        agent.events.count_refusal(refusal);
    }
}

/// Finds a flow.
pub(super) fn find(agent: &Agent, name: &FlowName) -> Result<FlowId, Error> {
    let table = &agent.table;
    match name {
        FlowName::Ufid(ufid) => table.find(*ufid).ok_or(Error::NotFound),
        FlowName::Like(flow) => table.find(flow.ufid).or_else(|| table.find_same(flow)).ok_or(Error::NotFound),
        FlowName::Match { matching, priority: wanted } => {
            let at = |priority| {
                let matching = matching.clone();
                let flow = Flow::new(None, matching, ActionList::default(), priority, Expiry::default(), table.seed());
                table.find_same(&flow)
            };
            at(*wanted).ok_or_else(|| {
                let found = (0..=Priority::MAX).filter_map(Priority::new).filter(|priority| at(*priority).is_some());
                let found: Vec<_> = found.collect();
                if found.is_empty() { Error::NotFound } else { Error::OtherPriority { wanted: *wanted, found } }
            })
        }
    }
}

impl FlowChange {
    /// The flow that it is about.
    pub fn flow(&self) -> FlowId {
        self.flow
    }
}

impl Pending for FlowChange {
    type Outcome = Outcome;

    fn outcome(&self, _: &Agent, at_most: Duration) -> Result<Outcome, Error> {
        let tally = settled(&self.batch, at_most)?;
        Ok(match tally.last_deleted {
            Some(counters) => {
                Outcome::Deleted(self.deleted.clone().map(|view| Box::new(FlowView { counters, ..*view })))
            }
            None if tally.superseded > 0 => Outcome::Superseded,
            None => Outcome::Installed,
        })
    }
}

impl Pending for Flush {
    /// How many flows were deleted.
    type Outcome = usize;

    fn outcome(&self, agent: &Agent, at_most: Duration) -> Result<usize, Error> {
        let tally = settled(&self.batch, at_most)?;
        // The device has the last word.
        let swept = audit::sweep(agent).map_err(Error::NotListed)?;
        let mut left = swept.into_iter().filter_map(|mending| mending.result.err());
        match left.next() {
            Some(refusal) => Err(Error::LeftInDevice { rules: 1 + left.count(), refusal }),
            None => Ok(tally.deleted),
        }
    }
}

/// Waits for the outcome of each request of a batch. Fails if one was refused or is not there in time.
pub(super) fn settled(batch: &Batch, within: Duration) -> Result<Tally, Error> {
    let tally = batch.wait(within);
    match (tally.refusals.first(), tally.outstanding) {
        (Some((_, refusal)), _) => Err(Error::Refused(refusal.clone())),
        (None, 0) => Ok(tally),
        (None, flows) => Err(Error::Unanswered { flows, within }),
    }
}
