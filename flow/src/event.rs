//! What happens to flows: defined once, read by the log, the metrics, `watch` and the tests.

use std::fmt;
use std::sync::Arc;

use crate::backend::Placement;
use crate::counters::Counters;
use crate::flow::Flow;
use crate::port::GonePort;
use crate::refusal::Refusal;
use crate::ufid::Ufid;

/// Something that happened to one flow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The agent took the flow on; the device has yet to.
    Accepted(Flow),
    /// A rule for the flow is in the device.
    Installed {
        /// The flow.
        flow: Flow,
        /// Where the rule ended up.
        placement: Placement,
    },
    /// A rule for the flow was in the device from an earlier run, and is the flow's from now on.
    Adopted {
        /// The flow as the device has it.
        flow: Flow,
        /// Where the rule is.
        placement: Placement,
    },
    /// The rule of the flow was changed in place, or replaced.
    Modified {
        /// The flow as it is now.
        flow: Flow,
        /// Where the rule ended up.
        placement: Placement,
    },
    /// Another part of the device carries the rule of the flow from now on.
    Moved {
        /// The flow.
        flow: Flow,
        /// Where its rule is now.
        placement: Placement,
    },
    /// The device refused the flow, or its modification.
    Refused {
        /// The flow as it was wanted.
        flow: Flow,
        /// Why.
        refusal: Arc<Refusal>,
    },
    /// The flow is to go because of a timeout.
    Aged {
        /// The flow.
        flow: Flow,
        /// Which timeout.
        reason: EndReason,
    },
    /// The flow is to go because there are too many.
    Evicted {
        /// The flow.
        flow: Flow,
        /// What made it one too many.
        reason: EndReason,
    },
    /// The flow is gone from the device and from the table.
    Deleted {
        /// The flow as it was last wanted.
        flow: Flow,
        /// Why it went.
        reason: EndReason,
        /// All that it ever counted.
        counters: Counters,
    },
}

impl Event {
    /// The word for the kind of event.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted(_) => "accepted",
            Self::Installed { .. } => "installed",
            Self::Adopted { .. } => "adopted",
            Self::Modified { .. } => "modified",
            Self::Moved { .. } => "moved",
            Self::Refused { .. } => "refused",
            Self::Aged { .. } => "aged",
            Self::Evicted { .. } => "evicted",
            Self::Deleted { .. } => "deleted",
        }
    }

    /// The flow that it happened to.
    pub const fn flow(&self) -> &Flow {
        match self {
            Self::Accepted(flow)
            | Self::Installed { flow, .. }
            | Self::Adopted { flow, .. }
            | Self::Modified { flow, .. }
            | Self::Moved { flow, .. }
            | Self::Refused { flow, .. }
            | Self::Aged { flow, .. }
            | Self::Evicted { flow, .. }
            | Self::Deleted { flow, .. } => flow,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ufid:{}", self.name(), self.flow().ufid)?;
        match self {
            Self::Accepted(_) => Ok(()),
            Self::Installed { placement, .. } | Self::Adopted { placement, .. } | Self::Modified { placement, .. } => {
                write!(out, " in {placement}")
            }
            Self::Moved { placement, .. } => write!(out, " to {placement}"),
            Self::Refused { refusal, .. } => write!(out, ", {refusal}"),
            Self::Aged { reason, .. } | Self::Evicted { reason, .. } => write!(out, ", {}", reason.name()),
            Self::Deleted { reason, counters, .. } => {
                write!(out, ", {}, packets:{}, bytes:{}", reason.name(), counters.packets, counters.bytes)
            }
        }
    }
}

/// Why a flow went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndReason {
    /// Somebody deleted it.
    Deleted,
    /// All flows were flushed.
    Flushed,
    /// No packet for the idle timeout.
    Idle,
    /// The hard timeout is over.
    Hard,
    /// There were more flows than the limit allows, and it was among the least used.
    Limit,
}

impl EndReason {
    /// Every reason.
    pub const ALL: &[Self] = &[Self::Deleted, Self::Flushed, Self::Idle, Self::Hard, Self::Limit];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Flushed => "flushed",
            Self::Idle => "idle",
            Self::Hard => "hard",
            Self::Limit => "limit",
        }
    }
}

/// Hears of every event. Called under the flow's lock, in the order of the flow's life: it must be quick and must not
/// call the table.
pub trait EventSink: Send + Sync {
    /// Something happened.
    fn event(&self, event: &Event);
}

/// What is wanted of a flow: all that must be remembered to want the same again.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// This flow is wanted, as it is here.
    Wanted(&'a Flow),
    /// This flow is wanted, and withheld until these ports are back. A later [`Wish::Wanted`] ends that.
    Withheld(&'a Flow, &'a [GonePort]),
    /// The flow with this UFID is wanted no longer.
    Unwanted(Ufid),
}

/// Nobody listens.
impl EventSink for () {
    fn event(&self, _event: &Event) {}
}
