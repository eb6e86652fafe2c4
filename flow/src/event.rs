//! What happens to flows: defined once, read by the log, the metrics, `watch` and the tests.

use std::fmt;
use std::sync::Arc;

use crate::backend::Placement;
use crate::counters::Counters;
use crate::flow::Flow;
use crate::port::GonePort;
use crate::refusal::Refusal;
use crate::time::Timestamp;
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
        /// When it was accepted.
        accepted: Timestamp,
    },
}

macro_rules! event_names {
    ($($event:ident $name:literal;)*) => {
        impl Event {
            /// The names of all kinds of events.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// The name of its kind.
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$event { .. } => $name,)* }
            }
        }
    };
}

event_names! {
    Accepted   "accepted";
    Installed  "installed";
    Adopted    "adopted";
    Modified   "modified";
    Moved      "moved";
    Refused    "refused";
    Aged       "aged";
    Evicted    "evicted";
    Deleted    "deleted";
}

/// What is known of an event besides its flow: the log line and the JSON of `watch` are made of these.
impl Event {
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

    /// Where the rule is from now on.
    pub const fn placement(&self) -> Option<Placement> {
        match self {
            Self::Installed { placement, .. }
            | Self::Adopted { placement, .. }
            | Self::Modified { placement, .. }
            | Self::Moved { placement, .. } => Some(*placement),
            _ => None,
        }
    }

    /// Why the device refused the flow.
    pub fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused { refusal, .. } = self { Some(refusal) } else { None }
    }

    /// Why the flow goes, or has gone.
    pub const fn reason(&self) -> Option<EndReason> {
        match self {
            Self::Aged { reason, .. } | Self::Evicted { reason, .. } | Self::Deleted { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// All that the flow ever counted.
    pub const fn counters(&self) -> Option<Counters> {
        if let Self::Deleted { counters, .. } = self { Some(*counters) } else { None }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ufid:{}", self.name(), self.flow().ufid)?;
        if let Some(placement) = self.placement() {
            let preposition = if matches!(self, Self::Moved { .. }) { "to" } else { "in" };
            write!(out, " {preposition} {placement}")?;
        }
        if let Some(refusal) = self.refusal() {
            write!(out, ", {refusal}")?;
        }
        if let Some(reason) = self.reason() {
            write!(out, ", {}", reason.name())?;
        }
        if let Some(Counters { packets, bytes, .. }) = self.counters() {
            write!(out, ", packets:{packets}, bytes:{bytes}")?;
        }
        Ok(())
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
