//! What the agent shows of itself: events, and measures with their pages and commands.

pub mod coverage;
pub(crate) mod event_counts;
pub mod events;
pub mod history;
pub(crate) mod measures;
pub mod metrics;
mod openmetrics;
pub(crate) mod readiness;
pub mod recent;
pub mod status_page;
