//! OPI's interface for sessions, `openoffload.v2`: a codec on [sessions](crate::service::Session), beside `sluice.v1` on the same sockets.
//!
//! The configuration has no switch for it: it is a service more for whom the sockets let in anyway, with the same rights. It costs nothing as
//! long as there is no session, and over TCP it does nothing for a client that the configuration does not give the flows of `opi`.

mod add;
mod reader;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use sluice_api::openoffload::v2 as opi;
use sluice_api::openoffload::v2::session_table_server::SessionTable;
use sluice_flow::ControllerName;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, async_trait};

use self::writer::{write_closed, write_deleted, write_none, write_session};
use super::access::{Access, turn_to_change};
use super::errors::{InputError, call_failed};
use super::streaming::{Answers, look_after};
use super::{Api, Shared, turn};
use crate::sessions::name::SessionId;

/// Closed sessions that are taken for a client at a time. If it leaves, the next one is told of those that were not sent.
const CLOSED: usize = 64;

/// Sessions in an answer at most, so that it stays far below the 4 MiB that clients take.
const PAGE: usize = 32_768;

/// How often it is looked for sessions that have ended by half, besides whenever there is news of one.
const LOOK: Duration = Duration::from_secs(1);

#[async_trait]
impl SessionTable for Shared {
    type GetClosedSessionsStream = ReceiverStream<Result<opi::SessionResponse, Status>>;

    async fn add_session(
        &self,
        request: Request<Streaming<opi::SessionRequest>>,
    ) -> Result<Response<opi::AddSessionResponse>, Status> {
        let access = Access::of(&request);
        access.owner(ControllerName::OPI)?;
        let turn = turn_to_change(&request)?;
        let answer = add::add(&self.0, &access, request.into_inner()).await;
        drop(turn);
        answer
    }

    async fn get_session(&self, request: Request<opi::SessionId>) -> Result<Response<opi::SessionResponse>, Status> {
        Access::of(&request).read()?;
        let id = request.get_ref().session_id;
        self.answer(move |api| Ok(write_known(api, id))).await
    }

    async fn delete_session(&self, request: Request<opi::SessionId>) -> Result<Response<opi::SessionResponse>, Status> {
        Access::of(&request).owner(ControllerName::OPI)?;
        let id = request.get_ref().session_id;
        self.answer(move |api| {
            let deleted = api.service.delete_session(SessionId(id)).map_err(|error| call_failed(&error))?;
            let now = api.service.view().now();
            Ok(deleted.map_or_else(|| write_none(id), |session| write_deleted(&session, now)))
        })
        .await
    }

    async fn get_all_sessions(
        &self,
        request: Request<opi::SessionRequestArgs>,
    ) -> Result<Response<opi::SessionResponses>, Status> {
        Access::of(&request).read()?;
        let turn = turn(&self.0.walks, "too many walks over the table are under way")?;
        let answer = self.answer(move |api| Ok(write_page(api, request.get_ref()))).await;
        drop(turn);
        answer
    }

    async fn get_closed_sessions(
        &self,
        request: Request<opi::SessionRequestArgs>,
    ) -> Result<Response<Self::GetClosedSessionsStream>, Status> {
        Access::of(&request).owner(ControllerName::OPI)?;
        let opi::SessionRequestArgs { page_size, page, start_session } = *request.get_ref();
        if page != 0 {
            return Err(InputError::new("page", "what was told is gone: the next call has the next sessions").into());
        }
        if start_session != 0 {
            return Err(InputError::new("start_session", "the first session to end is the first to be told").into());
        }
        let most = if page_size == 0 { usize::MAX } else { usize::try_from(page_size).unwrap_or(usize::MAX) };
        Ok(Response::new(ReceiverStream::new(tell_closed(&self.0, most))))
    }
}

/// Tells closed sessions as the client takes them, until it has so many or there are no more.
fn tell_closed(api: &Arc<Api>, most: usize) -> Answers<opi::SessionResponse> {
    let (answer, answers) = mpsc::channel(1);
    let (api, end) = (api.clone(), answer.clone());
    let task = tokio::spawn(async move {
        let ends = api.service.view().session_ends();
        let mut left = most;
        loop {
            let mut closed = ends.take_closed(left.min(CLOSED));
            if closed.is_empty() {
                return;
            }
            left -= closed.len();
            while let Some(first) = closed.first() {
                let response = write_closed(first, api.service.view().now());
                if answer.send(Ok(response)).await.is_err() {
                    // The client is gone. What was sent counts as told: nothing says what of it has arrived.
                    ends.give_back(closed);
                    return;
                }
                closed.remove(0);
            }
        }
    });
    look_after(task, end);
    answers
}

fn write_known(api: &Api, id: u64) -> opi::SessionResponse {
    let view = api.service.view();
    view.session(SessionId(id)).map_or_else(|| write_none(id), |session| write_session(&session, view.now()))
}

/// A page of sessions. Ids are collected first, so that a page is the same whatever order the table has.
fn write_page(api: &Api, args: &opi::SessionRequestArgs) -> opi::SessionResponses {
    let view = api.service.view();
    let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let page_size = if args.page_size == 0 { PAGE } else { size(args.page_size).min(PAGE) };
    let skipped = page_size.saturating_mul(size(args.page));
    let ids = view.sessions_from(SessionId(args.start_session));
    let mut ids = ids.into_iter().skip(skipped);
    let sessions = ids.by_ref().take(page_size).filter_map(|id| view.session(id));
    // One that has ended since then is left out.
    let session_info = sessions.map(|session| write_session(&session, view.now())).collect();
    opi::SessionResponses { session_info, next_key: ids.next().map_or(0, |SessionId(next)| next) }
}

/// Sees that sessions end as a whole, for as long as it is run.
pub(super) async fn end_sessions(api: Arc<Api>) {
    let ends = api.service.view().session_ends();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = ends.news() => {}
            _ = looks.tick() => {}
        }
        if ends.is_used() {
            // Fails only if the agent stops.
            let _ = api.blocking(|api| api.service.end_half_sessions()).await;
        }
    }
}
