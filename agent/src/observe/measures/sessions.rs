//! The numbers of sessions.

use super::measure::Measure;
use super::measure::Read::One;
use super::reading::Reading;
use super::table::counter;

/// The rows, which are there only if there ever was a session.
pub(super) static SESSIONS: &[Measure] = &[
    counter(
        "sluice_sessions_closed_total",
        "Sessions that ended by themselves.",
        One(|now| now.agent.events.session_ends().counts().closed.into()),
    )
    .only_if(is_on)
    .stats("sessions.closed"),
    counter(
        "sluice_sessions_untold_total",
        "Sessions that ended by themselves and were forgotten because nobody asked for closed sessions.",
        One(|now| now.agent.events.session_ends().counts().lost.into()),
    )
    .only_if(is_on)
    .stats("sessions.untold"),
];

fn is_on(now: &Reading<'_>) -> bool {
    now.agent.events.session_ends().is_used()
}
