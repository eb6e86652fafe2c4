//! Sessions, written as OPI's messages.

use std::time::SystemTime;

use prost_types::Timestamp as WallTime;
use sluice_api::openoffload::v2 as opi;
use sluice_api::openoffload::v2::{RequestStatus, SessionCloseCode, SessionState};
use sluice_flow::{Counters, EndReason, Timestamp};

use crate::service::SessionStatus;
use crate::sessions::ends::Closed;
use crate::sessions::name::{Direction, SessionId};

/// A session that there is.
pub(super) fn write_session(session: &SessionStatus, now: Timestamp) -> opi::SessionResponse {
    let SessionStatus { id, forward, reverse, accepted, is_ending } = *session;
    let state = if is_ending { SessionState::Closing1 } else { SessionState::Established };
    response(id, [forward, reverse], (state, SessionCloseCode::NotClosed), (wall_time(accepted, now), None))
}

/// A session that was deleted just now.
pub(super) fn write_deleted(session: &SessionStatus, now: Timestamp) -> opi::SessionResponse {
    let SessionStatus { id, forward, reverse, accepted, .. } = *session;
    let how = (SessionState::Closed, SessionCloseCode::UnknownCloseCode);
    response(id, [forward, reverse], how, (wall_time(accepted, now), Some(SystemTime::now().into())))
}

/// A session that has ended by itself.
pub(super) fn write_closed(closed: &Closed, now: Timestamp) -> opi::SessionResponse {
    let Closed { session, ending } = closed;
    let counters = Direction::BOTH.map(|direction| ending.counters(direction));
    let how = (SessionState::Closed, close_code(ending.reason));
    response(*session, counters, how, (wall_time(ending.accepted, now), Some(ending.at.into())))
}

/// There is no such session.
pub(super) fn write_none(session_id: u64) -> opi::SessionResponse {
    opi::SessionResponse {
        session_id,
        session_state: SessionState::UnknownState.into(),
        session_close_code: SessionCloseCode::UnknownCloseCode.into(),
        request_status: RequestStatus::RejectedSessionNonexistent.into(),
        ..opi::SessionResponse::default()
    }
}

fn response(
    SessionId(session_id): SessionId,
    [forward, reverse]: [Option<Counters>; 2],
    (state, close_code): (SessionState, SessionCloseCode),
    (start_time, end_time): (Option<WallTime>, Option<WallTime>),
) -> opi::SessionResponse {
    // The message has no word for a number that is not known.
    let (forward, reverse) = (forward.unwrap_or_default(), reverse.unwrap_or_default());
    opi::SessionResponse {
        session_id,
        in_packets: forward.packets,
        out_packets: reverse.packets,
        in_bytes: forward.bytes,
        out_bytes: reverse.bytes,
        session_state: state.into(),
        session_close_code: close_code.into(),
        request_status: RequestStatus::Accepted.into(),
        start_time,
        end_time,
    }
}

const fn close_code(reason: EndReason) -> SessionCloseCode {
    match reason {
        EndReason::Idle | EndReason::Hard => SessionCloseCode::Timeout,
        EndReason::Limit | EndReason::Deleted | EndReason::Flushed => SessionCloseCode::UnknownCloseCode,
    }
}

fn wall_time(at: Timestamp, now: Timestamp) -> Option<WallTime> {
    SystemTime::now().checked_sub(now.since(at)).map(WallTime::from)
}
