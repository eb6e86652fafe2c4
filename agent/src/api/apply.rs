//! `Apply`: operations in, acceptances and outcomes out.

use std::sync::Arc;

use sluice_api::v1::apply_response::Answer;
use sluice_api::v1::operation::Change;
use sluice_api::{rpc, v1};
use sluice_flow::{ControllerName, Origin};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::Api;
use super::access::Access;
use super::errors::{InputError, call_failed, of_error};
use super::outcomes::Operations;
use super::reader::{FlowReader, read_name, read_owner};
use super::writer::ufid_text;
use crate::service::{AddFlow, DeleteFlow, FlowRequest, ModifyFlow};

/// Operations in one message at the most.
const MOST_OPERATIONS: usize = 16_384;

/// Batches of one stream whose outcomes are still to be told. With more, the stream is not read from.
const BATCHES: usize = 4;

/// Messages that wait for a client who reads them.
const ANSWERS: usize = 4;

/// What a client of a stream of answers reads.
pub(super) type Answers<T> = mpsc::Receiver<Result<T, Status>>;

/// A batch that was accepted.
struct Batch {
    acceptances: v1::Acceptances,
    operations: Arc<Operations>,
    /// The places of those that have an outcome.
    accepted: Vec<usize>,
}

/// Runs a stream to its end.
pub(super) fn apply(
    api: &Arc<Api>,
    access: Access,
    requests: Streaming<v1::ApplyRequest>,
) -> Answers<v1::ApplyResponse> {
    let (answer, answers) = mpsc::channel(ANSWERS);
    let api = api.clone();
    tokio::spawn(async move {
        let (told, to_tell) = mpsc::channel(BATCHES);
        let telling = tokio::spawn(tell_outcomes(api.clone(), to_tell, answer.clone()));
        let result = take(&api, &access, requests, &told, &answer).await;
        drop(told);
        // What was accepted is answered before the stream ends, well or badly.
        let _ = telling.await;
        if let Err(status) = result {
            // Nobody reads it if the client is gone.
            let _ = answer.send(Err(status)).await;
        }
    });
    answers
}

async fn take(
    api: &Arc<Api>,
    access: &Access,
    mut requests: Streaming<v1::ApplyRequest>,
    told: &mpsc::Sender<Batch>,
    answer: &mpsc::Sender<Result<v1::ApplyResponse, Status>>,
) -> Result<(), Status> {
    let mut owner: Option<ControllerName> = None;
    while let Some(request) = requests.message().await? {
        // A certificate may end while a stream goes on.
        access.read()?;
        let owner = match owner {
            Some(owner) if request.owner.is_empty() => owner,
            Some(owner) if *request.owner == *owner => owner,
            Some(_) => return Err(InputError::new("owner", "it is another one than at first").into()),
            None => *owner.insert(access.owner(read_owner(&request.owner)?)?),
        };
        if request.operations.len() > MOST_OPERATIONS {
            let reason = format!("there are {}, and at most {MOST_OPERATIONS}", request.operations.len());
            return Err(InputError::new("operations", reason).into());
        }
        let mut batch = api.blocking(move |api| accept(api, owner, request.operations)).await??;
        let acceptances = Answer::Accepted(std::mem::take(&mut batch.acceptances));
        if answer.send(Ok(v1::ApplyResponse { answer: Some(acceptances) })).await.is_err() {
            return Ok(());
        }
        // Ends only if nobody reads outcomes.
        if told.send(batch).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Takes a batch on, and waits until it survives the death of the agent.
fn accept(api: &Api, owner: ControllerName, operations: Vec<v1::Operation>) -> Result<Batch, Status> {
    let (service, origin) = (&api.service, Origin::Controller(owner));
    let ports = service.view().ports();
    let mut reader = FlowReader::new(&ports, service.view().seed(), origin);
    let mut stream = service.stream();
    let settling = Operations::new(operations.iter().map(|operation| operation.id).collect());
    let mut accepted = Vec::with_capacity(operations.len());
    let mut acceptances = Vec::with_capacity(operations.len());
    for (place, operation) in operations.into_iter().enumerate() {
        let read = read_change(&mut reader, &ports, origin, operation.change.as_ref());
        let result = read.map_err(rpc::Status::from).and_then(|(request, named)| {
            let request = stream.request(&settling.waiter(place), || request.clone());
            request.map_err(|error| of_error(&error)).map(|_| named)
        });
        let (ufid, error) = match result {
            Ok(named) => {
                accepted.push(place);
                (named, None)
            }
            Err(error) => (String::new(), Some(error)),
        };
        acceptances.push(v1::Acceptance { id: operation.id, ufid, error });
    }
    // A receipt is no use to a caller who goes on to hear the outcome.
    let durable = stream.accepted().durable().map_err(|error| call_failed(&error))?;
    let _ = durable.receipt();
    Ok(Batch { acceptances: v1::Acceptances { acceptances }, operations: settling, accepted })
}

/// What is asked, and the name of the flow if the agent gives it.
fn read_change(
    reader: &mut FlowReader<'_>,
    ports: &sluice_flow::port::PortMap,
    origin: Origin,
    change: Option<&Change>,
) -> Result<(FlowRequest, String), InputError> {
    let mut read = |flow: &Option<v1::Flow>| {
        let message = flow.as_ref().ok_or_else(|| InputError::new("flow", "it is missing"))?;
        let flow = reader.read(message)?;
        let named = if message.ufid.is_empty() { ufid_text(flow.ufid) } else { String::new() };
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
            Ok((FlowRequest::Delete(DeleteFlow { flow, of: Some(origin) }), String::new()))
        }
    }
}

/// Tells the outcomes of one batch after the other.
async fn tell_outcomes(
    api: Arc<Api>,
    mut batches: mpsc::Receiver<Batch>,
    answer: mpsc::Sender<Result<v1::ApplyResponse, Status>>,
) {
    while let Some(Batch { operations, accepted, .. }) = batches.recv().await {
        let mut rest = accepted.iter();
        while !rest.as_slice().is_empty() {
            let clock = &*api.clock;
            let outcomes = tokio::select! {
                outcomes = operations.outcomes(&mut rest, clock) => outcomes,
                () = answer.closed() => return,
            };
            let outcomes = v1::ApplyResponse { answer: Some(Answer::Outcomes(outcomes)) };
            if answer.send(Ok(outcomes)).await.is_err() {
                return;
            }
        }
    }
}
