//! `Apply`: operations in, acceptances and outcomes out.

use std::sync::Arc;

use sluice_api::v1::apply_response::Answer as Told;
use sluice_api::v1::operation::Change;
use sluice_api::{Acceptances, MOST_OPERATIONS, rpc, v1};
use sluice_flow::table::ReplyTo;
use sluice_flow::{ControllerName, Origin, Ufid};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::{Status, Streaming};

use super::Api;
use super::access::Access;
use super::errors::{Errors, InputError, call_failed, cut_off, of_error};
use super::outcomes::Operations;
use super::reader::{FlowReader, read_name, read_owner};
use super::streaming::{Answer, Answers, look_after};
use super::writer::rewrite_ufid;
use crate::service::{AddFlow, DeleteFlow, FlowRequest, ModifyFlow};

/// Bytes of an acceptance without an error, or somewhat more.
const ACCEPTANCE: usize = 64;

/// Batches of one stream that wait for the log, and whose outcomes are still to be told. With more, the stream is not read from.
const BATCHES: usize = 4;

/// Messages that wait for a client who reads them.
const ANSWERS: usize = 4;

/// A batch that was accepted.
struct Batch {
    acceptances: Acceptances,
    operations: Arc<Operations>,
    /// The places of those that have an outcome.
    accepted: Vec<usize>,
}

/// Runs a stream to its end.
pub(super) fn apply(
    api: &Arc<Api>,
    access: Access,
    turn: OwnedSemaphorePermit,
    requests: Streaming<v1::ApplyRequest>,
) -> Answers<v1::ApplyResponse> {
    let (answer, answers) = mpsc::channel(ANSWERS);
    let (api, end) = (api.clone(), answer.clone());
    let task = tokio::spawn(async move {
        let (taken, to_accept) = mpsc::channel(BATCHES);
        let (accepted, to_tell) = mpsc::channel(BATCHES);
        // What was accepted is answered before the stream ends, well or badly.
        let (taking, accepting, ()) = tokio::join!(
            take(&api, &access, requests, taken),
            tell_acceptances(to_accept, accepted, &answer),
            tell_outcomes(&api, to_tell, &answer),
        );
        if let Err(status) = accepting.and(taking) {
            // Nobody reads it if the client is gone.
            let _ = answer.send(Err(status)).await;
        }
        drop(turn);
    });
    look_after(task, end);
    answers
}

/// A batch that the table takes on, or has taken on, and that the log may not have yet.
type Taken = JoinHandle<Result<Batch, Status>>;

/// Takes batches on, one after the other, while earlier ones wait for the log.
async fn take(
    api: &Arc<Api>,
    access: &Access,
    mut requests: Streaming<v1::ApplyRequest>,
    taken: mpsc::Sender<Taken>,
) -> Result<(), Status> {
    let mut owner: Option<ControllerName> = None;
    loop {
        let request = tokio::select! {
            request = requests.message() => request?,
            // Nobody reads answers, or a batch has failed as a whole.
            () = taken.closed() => return Ok(()),
        };
        let Some(request) = request else { return Ok(()) };
        let owner = match owner {
            Some(owner) if request.owner.is_empty() => owner,
            Some(owner) if *request.owner == *owner => owner,
            Some(_) => return Err(InputError::new("owner", "it is another one than at first").into()),
            None => *owner.insert(read_owner(&request.owner)?),
        };
        // A certificate may end while a stream goes on, and the configuration may change.
        access.owner(owner)?;
        if request.operations.len() > MOST_OPERATIONS {
            return Err(InputError::new("operations", format!("there are more than {MOST_OPERATIONS}")).into());
        }
        let (is_taken, turn) = oneshot::channel();
        let batch = api.spawn_blocking(move |api| accept(api, owner, request.operations, is_taken)).await;
        // The operations of the next batch come after those of this one. An error means that this one has failed, which its answer says.
        let _ = turn.await;
        if taken.send(batch).await.is_err() {
            return Ok(());
        }
    }
}

/// Tells the acceptances of one batch after the other, each once the log has it.
async fn tell_acceptances(
    mut taken: mpsc::Receiver<Taken>,
    accepted: mpsc::Sender<Batch>,
    answer: &Answer<v1::ApplyResponse>,
) -> Result<(), Status> {
    while let Some(batch) = taken.recv().await {
        let mut batch = batch.await.map_err(|error| cut_off(&error))??;
        let acceptances = Some(Told::Accepted(std::mem::take(&mut batch.acceptances)));
        if answer.send(Ok(v1::ApplyResponse { answer: acceptances })).await.is_err()
            || accepted.send(batch).await.is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Takes a batch on, says so, and waits until it survives the death of the agent.
fn accept(
    api: &Api,
    owner: ControllerName,
    operations: Vec<v1::Operation>,
    is_taken: oneshot::Sender<()>,
) -> Result<Batch, Status> {
    let (service, origin) = (&api.service, Origin::Controller(owner));
    let view = service.view();
    let ports = view.ports();
    let mut reader = FlowReader::new(&ports, view.seed(), origin).sharing(view.parts());
    let mut stream = service.stream();
    let settling = Operations::new(operations.iter().map(|operation| operation.id).collect());
    let mut accepted = Vec::with_capacity(operations.len());
    let mut acceptances = Acceptances::with_capacity(operations.len() * ACCEPTANCE);
    let mut acceptance = v1::Acceptance::default();
    let (reply_to, mut errors) = (ReplyTo::from(settling.clone()), Errors::default());
    for (number, operation) in (0..).zip(operations) {
        let read = read_change(&mut reader, &ports, origin, operation.change.as_ref());
        let result = read.map_err(rpc::Status::from).and_then(|(request, named)| {
            let accepted = stream.request(|| (request.clone(), reply_to.request(number)));
            let life = accepted.map_err(|error| of_error(&error))?;
            Ok(match request {
                // Its match may have led to a flow that was given another name.
                FlowRequest::Modify(_) if named.is_some() => view.flow(life).map(|known| known.flow.ufid).or(named),
                _ => named,
            })
        });
        let (named, error) = match result {
            Ok(named) => {
                accepted.push(number as usize);
                (named, None)
            }
            Err(error) => (None, Some(errors.fit(error))),
        };
        (acceptance.id, acceptance.error) = (operation.id, error);
        rewrite_ufid(&mut acceptance.ufid, named);
        acceptances.push(&acceptance);
    }
    let stream = stream.accepted();
    // A stream that is gone meanwhile waits for nothing.
    let _ = is_taken.send(());
    // A receipt is no use to a caller who goes on to hear the outcome.
    let durable = stream.durable().map_err(|error| call_failed(&error))?;
    let _ = durable.receipt();
    Ok(Batch { acceptances, operations: settling, accepted })
}

/// What is asked, and the name that the agent gives the flow if the caller gives none.
fn read_change(
    reader: &mut FlowReader<'_>,
    ports: &sluice_flow::port::PortMap,
    origin: Origin,
    change: Option<&Change>,
) -> Result<(FlowRequest, Option<Ufid>), InputError> {
    let mut read = |flow: &Option<v1::Flow>| {
        let message = flow.as_ref().ok_or_else(|| InputError::new("flow", "it is missing"))?;
        let flow = reader.read(message)?;
        let named = message.ufid.is_empty().then_some(flow.ufid);
        Ok((flow, named))
    };
    match change {
        None => Err(InputError::new("change", "it is missing")),
        Some(Change::Add(v1::AddFlow { flow })) => {
            let (flow, named) = read(flow)?;
            Ok((FlowRequest::Add(AddFlow { flow }), named))
        }
        Some(Change::Modify(v1::ModifyFlow { flow, may_create, keep_old_rule })) => {
            let (flow, named) = read(flow)?;
            let (may_create, keep_old_rule) = (*may_create, *keep_old_rule);
            Ok((FlowRequest::Modify(ModifyFlow { flow, may_create, keep_old_rule }), named))
        }
        Some(Change::Delete(v1::DeleteFlow { name })) => {
            let flow = read_name(name.as_ref(), ports)?;
            Ok((FlowRequest::Delete(DeleteFlow { flow, of: Some(origin) }), None))
        }
    }
}

/// Tells the outcomes of one batch after the other.
async fn tell_outcomes(api: &Api, mut accepted: mpsc::Receiver<Batch>, answer: &Answer<v1::ApplyResponse>) {
    while let Some(Batch { operations, accepted, .. }) = accepted.recv().await {
        let mut rest = accepted.iter();
        while !rest.as_slice().is_empty() {
            let clock = &*api.clock;
            let outcomes = tokio::select! {
                outcomes = operations.outcomes(&mut rest, clock) => outcomes,
                () = answer.closed() => return,
            };
            let outcomes = v1::ApplyResponse { answer: Some(Told::Outcomes(outcomes)) };
            if answer.send(Ok(outcomes)).await.is_err() {
                return;
            }
        }
    }
}
