//! The install path: changes, and what comes of them.

use std::fmt;

use crossbeam_channel::Receiver;

use crate::counters::Counters;
use crate::flow::Flow;
use crate::id::{FlowId, Generation};
use crate::refusal::Refusal;

/// The install path of one worker. Changes to one flow are never in the queue twice at a time.
pub trait InstallQueue: Send {
    /// Hands a batch over. What is done on return is pushed onto `done`; the rest comes through
    /// [`InstallQueue::later`], in any order. Every change is completed exactly once.
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>);

    /// Completions that come later; `None` if all are done when `submit` returns.
    fn later(&self) -> Option<&Receiver<Completion>> {
        None
    }
}

/// A change that the device shall make.
#[derive(Clone, Debug)]
pub struct Change {
    /// The flow it is for; comes back in completion and readings.
    pub flow: FlowId,
    /// The state of the flow that it was asked for; comes back in the completion.
    pub generation: Generation,
    /// What to do.
    pub operation: Operation,
}

/// What to do to a rule.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Put a rule for the flow in.
    Install(Flow),
    /// Make the rule do what the flow now says (its match is the same), without a gap where the device can avoid one.
    /// Counters go on. A refusal leaves the old rule as it was.
    Modify(Handle, Flow),
    /// Have hardware or software carry the rule from now on, without a gap. Counters go on. If there is no room for it in
    /// hardware it stays where it was, and the answer says so.
    Move(Handle, Placement),
    /// Unlink the rule from matching, read its last counters, free it.
    Remove(Handle),
}

/// The end of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The flow.
    pub flow: FlowId,
    /// The generation that the change carried.
    pub generation: Generation,
    /// What came of it.
    pub result: Result<Outcome, Refusal>,
}

/// What a change that was made came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rule is there: after an install, a modification or a move.
    InPlace {
        /// How the backend finds it again.
        handle: Handle,
        /// Where it ended up.
        placement: Placement,
    },
    /// The rule is gone.
    Removed {
        /// Its last counters since installation; `None` if they could not be read.
        last: Option<Counters>,
    },
}

/// A backend's own name for a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// Where a rule ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In the device.
    Hardware,
    /// In the device, and in software for packets that come past it.
    Both,
    /// Only in software, such as the kernel's tc, in front of which the device passes packets on.
    Software,
    /// The device did not say.
    Unknown,
}

impl Placement {
    /// Every place, with the word for it in metrics.
    pub const ALL: [(Self, &str); 4] =
        [(Self::Hardware, "hardware"), (Self::Both, "both"), (Self::Software, "software"), (Self::Unknown, "unknown")];

    /// Whether packets that the device sees are handled by it.
    pub const fn is_in_hardware(self) -> bool {
        matches!(self, Self::Hardware | Self::Both)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Hardware => "hardware",
            Self::Both => "hardware and software",
            Self::Software => "software only",
            Self::Unknown => "unknown place",
        })
    }
}
