//! `Replace`: the flows of an owner as it names them, and no others.

use std::sync::Arc;

use sluice_api::v1::replace_response::Answer;
use sluice_api::{MOST_FLOWS, rpc, v1};
use sluice_flow::{ControllerName, Origin};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::{Code, Status, Streaming};

use super::Api;
use super::access::Access;
use super::errors::{InputError, call_ended, call_failed, of_error};
use super::reader::{FlowReader, read_owner};
use super::streaming::{self, Answers, look_after};
use crate::agent::ANSWER_TIME;
use crate::service::{Error, Replaced, Replacement};

/// Failed flows that a message tells of at the most.
const FAILED: usize = 1_024;

/// Runs a stream to its end.
pub(super) fn replace(
    api: &Arc<Api>,
    access: Access,
    turn: OwnedSemaphorePermit,
    requests: Streaming<v1::ReplaceRequest>,
) -> Answers<v1::ReplaceResponse> {
    let (answer, answers) = mpsc::channel(4);
    let (api, end) = (api.clone(), answer.clone());
    let task = tokio::spawn(async move {
        if let Err(status) = take(&api, &access, requests, &answer).await {
            // Nobody reads it if the client is gone.
            let _ = answer.send(Err(status)).await;
        }
        drop(turn);
    });
    look_after(task, end);
    answers
}

async fn take(
    api: &Arc<Api>,
    access: &Access,
    mut requests: Streaming<v1::ReplaceRequest>,
    answer: &streaming::Answer<v1::ReplaceResponse>,
) -> Result<(), Status> {
    let Some(first) = requests.message().await? else {
        return Err(InputError::new("owner", "it is missing").into());
    };
    let owner = access.owner(read_owner(&first.owner)?)?;
    let mut replacement = api.service.replace(Origin::Controller(owner));
    let (mut request, mut index, mut unread) = (first, 0, 0);
    loop {
        // A certificate may end while a stream goes on, and the configuration may change.
        access.owner(owner)?;
        if !request.owner.is_empty() && *request.owner != *owner {
            return Err(InputError::new("owner", "it is another one than at first").into());
        }
        if request.flows.len() > MOST_FLOWS {
            return Err(InputError::new("flows", format!("there are more than {MOST_FLOWS}")).into());
        }
        let (flows, commit) = (std::mem::take(&mut request.flows), request.commit);
        let count = flows.len() as u64;
        let (failed, not_read);
        (replacement, failed, not_read) =
            api.blocking(move |api| want(api, owner, replacement, index, &flows)).await??;
        index += count;
        unread += not_read;
        for flows in failed.chunks(FAILED) {
            let failed = Answer::Failed(v1::FailedFlows { flows: flows.to_vec() });
            if answer.send(Ok(v1::ReplaceResponse { answer: Some(failed) })).await.is_err() {
                return Ok(());
            }
        }
        if commit {
            if unread > 0 {
                // Which flows they mean is not known, so that these cannot be spared.
                let reason = format!("{unread} flows cannot be understood: nothing is deleted");
                let flows = [("flows", unread.to_string())];
                return Err(call_ended("NOT_UNDERSTOOD", Code::FailedPrecondition, flows, reason));
            }
            let swept = api.blocking(move |api| sweep(api, replacement)).await?;
            let Replaced { added, changed, unchanged, deleted, failed, refused } =
                swept.map_err(|error| call_failed(&error))?;
            let replaced = v1::Replaced { added, changed, unchanged, deleted, failed, refused };
            // The client may have left as soon as it had said all.
            let _ = answer.send(Ok(v1::ReplaceResponse { answer: Some(Answer::Replaced(replaced)) })).await;
            return Ok(());
        }
        request = match requests.message().await? {
            Some(request) => request,
            None => {
                let reason = "the stream has ended without `commit`: nothing was deleted";
                return Err(call_ended("NOT_COMMITTED", Code::Aborted, [], reason));
            }
        };
    }
}

/// Says that flows are wanted, of which the first is the one of this index. Returns those that failed, and how many of them cannot be understood.
/// Fails once another replacement has begun.
fn want(
    api: &Api,
    owner: ControllerName,
    mut replacement: Replacement,
    index: u64,
    flows: &[v1::Flow],
) -> Result<(Replacement, Vec<v1::FailedFlow>, u64), Status> {
    let view = api.service.view();
    let ports = view.ports();
    let mut reader = FlowReader::new(&ports, view.seed(), Origin::Controller(owner)).sharing(view.parts());
    let (mut failed, mut unread) = (Vec::new(), 0);
    for (index, flow) in (index..).zip(flows) {
        let error = match reader.read(flow) {
            Ok(flow) => match api.service.want(&mut replacement, &flow) {
                Err(error @ Error::Overtaken(_)) => return Err(call_failed(&error)),
                wanted => wanted.err().map(|error| of_error(&error)),
            },
            Err(error) => {
                unread += 1;
                Some(rpc::Status::from(error))
            }
        };
        failed.extend(error.map(|error| v1::FailedFlow { index, error: Some(error) }));
    }
    Ok((replacement, failed, unread))
}

fn sweep(api: &Api, replacement: Replacement) -> Result<Replaced, Error> {
    api.service.sweep(replacement)?.durable()?.outcome(ANSWER_TIME)
}
