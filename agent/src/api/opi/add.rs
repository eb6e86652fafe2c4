//! `AddSession`: a stream of sessions in, one answer at its end.

use std::sync::Arc;
use std::time::SystemTime;

use sluice_api::openoffload::v2 as opi;
use sluice_api::openoffload::v2::AddSessionStatus;
use sluice_api::rpc;
use sluice_flow::{ControllerName, Refusal};
use tonic::metadata::MetadataValue;
use tonic::{Code, Response, Status, Streaming};

use super::reader::read_session;
use crate::agent::ANSWER_TIME;
use crate::api::Api;
use crate::api::access::Access;
use crate::api::errors::{call_ended, of_error};
use crate::service::Error;
use crate::sessions::name::SessionId;

/// Sessions that are added in one go, of those that have come.
const BATCH: usize = 256;

/// Sessions of a stream at most. Their ids are kept until it ends, because all of them go if there is no room for one.
const MOST_SESSIONS: usize = 65_536;

/// The answer has no place for reasons. They travel beside it, each a `google.rpc.Status`, the first ones as far as they find room: a client
/// of gRPC may take 8 KiB of metadata and no more.
const REASONS: &str = "sluice-rejection-bin";
const REASONS_BYTES: usize = 4_096;

/// Why a session is not added.
struct Rejection {
    session_id: u64,
    status: AddSessionStatus,
    reason: rpc::Status,
}

/// A stream so far.
struct Progress {
    began: SystemTime,
    /// Sessions that came.
    seen: usize,
    added: Vec<SessionId>,
    rejections: Vec<Rejection>,
    /// As the answer has it.
    mask: u64,
}

/// Runs a stream to its end.
pub(super) async fn add(
    api: &Arc<Api>,
    access: &Access,
    mut requests: Streaming<opi::SessionRequest>,
) -> Result<Response<opi::AddSessionResponse>, Status> {
    let began = SystemTime::now();
    let mut progress = Progress { began, seen: 0, added: Vec::new(), rejections: Vec::new(), mask: 0 };
    loop {
        let batch = next_batch(&mut requests).await?;
        if batch.is_empty() {
            return Ok(progress.answer());
        }
        // A certificate may end while a stream goes on, and the configuration may change.
        access.owner(ControllerName::OPI)?;
        if progress.seen + batch.len() > MOST_SESSIONS {
            let words = format!("a stream has at most {MOST_SESSIONS} sessions");
            return Err(call_ended("TOO_LONG", Code::OutOfRange, [("limit", MOST_SESSIONS.to_string())], words));
        }
        let is_full;
        (progress, is_full) = api.blocking(move |api| take(api, progress, &batch)).await?;
        if is_full {
            let added = std::mem::take(&mut progress.added);
            api.blocking(move |api| api.service.withdraw_sessions(&added)).await?;
            return Ok(progress.answer());
        }
    }
}

/// Waits for a session, and takes those that have come by then. None at the end of the stream.
async fn next_batch(requests: &mut Streaming<opi::SessionRequest>) -> Result<Vec<opi::SessionRequest>, Status> {
    let mut batch: Vec<_> = requests.message().await?.into_iter().collect();
    while !batch.is_empty() && batch.len() < BATCH {
        let next = tokio::select! {
            biased;
            next = requests.message() => next?,
            () = std::future::ready(()) => break,
        };
        let Some(next) = next else { break };
        batch.push(next);
    }
    Ok(batch)
}

/// Adds a batch. Says whether there was no room for one.
fn take(api: &Api, mut progress: Progress, batch: &[opi::SessionRequest]) -> (Progress, bool) {
    let (mut sessions, mut read) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    for request in batch {
        let session = read_session(request, api.service.view().seed());
        read.push(session.map(|session| sessions.push(session)));
    }
    let mut outcomes = api.service.add_sessions(sessions, ANSWER_TIME).map(Vec::into_iter);
    let mut is_full = false;
    for (request, read) in batch.iter().zip(read) {
        let rejected = match (read, &mut outcomes) {
            (Err(error), _) => Some((AddSessionStatus::SessionRejected, error.into())),
            (Ok(()), Ok(outcomes)) => outcomes.next().and_then(Result::err).map(|error| rejection(&error)),
            (Ok(()), Err(error)) => Some(rejection(error)),
        };
        is_full |= matches!(rejected, Some((AddSessionStatus::SessionTableFull, _)));
        progress.note(request.session_id, rejected);
    }
    (progress, is_full)
}

fn rejection(error: &Error) -> (AddSessionStatus, rpc::Status) {
    let status = match error {
        Error::Exists(_) => AddSessionStatus::SessionAlreadyExists,
        Error::Busy(_) | Error::NotDurable(_) | Error::Unanswered { .. } => AddSessionStatus::SessionTableUnavailable,
        Error::Refused(refusal) if is_limit(refusal) => AddSessionStatus::SessionTableFull,
        _ => AddSessionStatus::SessionRejected,
    };
    (status, of_error(error))
}

fn is_limit(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Until { refusal, .. } => is_limit(refusal),
        Refusal::Limit { .. } => true,
        _ => false,
    }
}

impl Progress {
    fn note(&mut self, session_id: u64, rejected: Option<(AddSessionStatus, rpc::Status)>) {
        match rejected {
            None => self.added.push(SessionId(session_id)),
            Some((status, reason)) => {
                // Those behind the 64th have no bit.
                self.mask |= u32::try_from(self.seen).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0);
                self.rejections.push(Rejection { session_id, status, reason });
            }
        }
        self.seen += 1;
    }

    fn answer(self) -> Response<opi::AddSessionResponse> {
        use AddSessionStatus::{
            SessionAccepted, SessionAlreadyExists, SessionRejected, SessionTableFull, SessionTableUnavailable,
        };
        let is_any = |wanted| self.rejections.iter().any(|rejection| rejection.status == wanted);
        let only_exist = || self.rejections.iter().all(|rejection| rejection.status == SessionAlreadyExists);
        let worst = match self.rejections.is_empty() {
            true => SessionAccepted,
            false if is_any(SessionTableFull) => SessionTableFull,
            false if is_any(SessionTableUnavailable) => SessionTableUnavailable,
            false if only_exist() => SessionAlreadyExists,
            false => SessionRejected,
        };
        let error = |rejection: &Rejection| opi::SessionResponseError {
            session_id: rejection.session_id,
            error_status: rejection.status.into(),
        };
        let mut response = Response::new(opi::AddSessionResponse {
            request_status: worst.into(),
            error_status: self.mask,
            start_time: Some(self.began.into()),
            response_error: self.rejections.iter().map(error).collect(),
        });
        let mut room = REASONS_BYTES;
        for rejection in self.rejections {
            let words = format!("session {}: {}", rejection.session_id, rejection.reason.message);
            let status = Status::from(rpc::Status { message: words, ..rejection.reason });
            let Some(left) = room.checked_sub(status.details().len()) else { break };
            room = left;
            response.metadata_mut().append_bin(REASONS, MetadataValue::from_bytes(status.details()));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use sluice_api::Details;

    use super::*;
    use crate::api::errors::InputError;

    fn progress() -> Progress {
        Progress { began: SystemTime::now(), seen: 0, added: Vec::new(), rejections: Vec::new(), mask: 0 }
    }

    #[test]
    fn the_answer_says_which_sessions_of_the_stream_were_not_added_and_the_worst_of_it() {
        let mut progress = progress();
        for place in 0..100 {
            let rejected = [0, 63, 64].contains(&place).then(|| {
                (
                    AddSessionStatus::SessionAlreadyExists,
                    Details::new("EXISTS", []).status(Code::AlreadyExists, "it is"),
                )
            });
            progress.note(place + 1, rejected);
        }
        assert_eq!(progress.added.len(), 97);
        let answer = progress.answer();
        let reasons = answer.metadata().get_all_bin(REASONS).iter().count();
        let answer = answer.into_inner();
        assert_eq!(answer.request_status(), AddSessionStatus::SessionAlreadyExists);
        assert_eq!(answer.error_status, 1 | 1 << 63);
        let failed: Vec<_> = answer.response_error.iter().map(|error| error.session_id).collect();
        assert_eq!((failed, reasons), (vec![1, 64, 65], 3));
    }

    #[test]
    fn reasons_beside_the_answer_are_as_many_as_any_client_takes() {
        let mut progress = progress();
        for place in 0..10_000 {
            let error = InputError::new("action", "it is missing");
            progress.note(place, Some((AddSessionStatus::SessionRejected, error.into())));
        }
        let answer = progress.answer();
        let bytes: usize =
            answer.metadata().get_all_bin(REASONS).iter().map(|value| value.as_encoded_bytes().len()).sum();
        assert!((1_000..REASONS_BYTES * 4 / 3 + 200).contains(&bytes), "{bytes}");
        assert_eq!(answer.into_inner().response_error.len(), 10_000);
    }
}
