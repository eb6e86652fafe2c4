//! The install path: changes to rules and chains, and what comes of them.

use std::fmt;
use std::task::Waker;

use crate::chain::ChainId;
use crate::counters::Counters;
use crate::flow::Flow;
use crate::id::{FlowId, Generation};
use crate::refusal::Refusal;

/// The install path of one worker.
///
/// Its worker owns it: every call is made from the worker's thread, so that a queue needs no lock of its own and fits a device queue
/// that only its owner may poll. The agent hands over at most one change to a flow at a time, waits for its completion before the next
/// one, and gives all changes to a flow to the same queue; a queue may therefore make the changes that it has in any order.
///
/// Every change is completed exactly once, with the flow and the generation that it carried, by [`submit`](Self::submit) or by
/// [`poll`](Self::poll); a change to a chain by [`submit_chain`](Self::submit_chain) or by [`poll_chains`](Self::poll_chains). That holds for a device that has died, too: what it cannot do any more is completed with a refusal. A change
/// that is refused leaves the device as it was: no rule after a refused install, the old rule after a refused modification.
///
/// A queue that is dropped with changes in flight completes none of them. The device may have made them or not.
///
/// # Chains
///
/// A chain is the device's and not the queue's: once its opening is completed, rules of every queue may jump to it, until its closing is
/// submitted. The agent submits a rule that jumps only after the completion of each opening that it needs, and has at most one change to a
/// chain in flight, whichever queue has it; so no queue needs to know of the others, nor to keep changes to chains and to rules in order. A
/// chain stays open over all that happens to the device by itself: what it loses of a chain the backend puts back, at the latest with the
/// next rule that jumps there.
pub trait InstallQueue: Send {
    /// Hands a batch over, and leaves `batch` empty. Pushes the completions of what is done on return onto `done`; the others come from
    /// [`poll`](Self::poll). May wait for the device, but not for anything that another thread of the agent has to do.
    fn submit(&mut self, batch: &mut Vec<Change>, done: &mut Vec<Completion>);

    /// Pushes the completions that have come since onto `done`, in any order, and does not wait. A queue that completes everything in
    /// [`submit`](Self::submit) has nothing to do here. Called after every wake-up, and between batches while a change is in flight.
    fn poll(&mut self, done: &mut Vec<Completion>);

    /// Hands a change to a chain over. Pushes its completion onto `done` if it is done on return; otherwise that comes from
    /// [`poll_chains`](Self::poll_chains). May wait as [`submit`](Self::submit) may; a device that answers later is better not waited for,
    /// for the worker goes on with other flows meanwhile.
    fn submit_chain(&mut self, change: ChainChange, done: &mut Vec<ChainCompletion>);

    /// Pushes the completions of changes to chains that have come since onto `done`, in any order, and does not wait. Called after every
    /// wake-up while such a change is in flight.
    fn poll_chains(&mut self, done: &mut Vec<ChainCompletion>);

    /// Takes whom to wake once [`poll`](Self::poll) or [`poll_chains`](Self::poll_chains) has something to push. Called once, before the
    /// first [`submit`](Self::submit) and [`submit_chain`](Self::submit_chain).
    /// The queue makes a completion ready first and wakes then, from any thread. A wake-up too many does no harm, one too few leaves
    /// the worker asleep.
    fn set_waker(&mut self, waker: Waker);
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
    /// Puts a rule for the flow in. Its counters begin at zero.
    Install(Flow),
    /// Makes the rule do what the flow now says, which matches the same as before; without a gap where
    /// [the device can avoid one](super::Capabilities::modifies_in_place). Handle and counters go on.
    Modify(Handle, Flow),
    /// Has hardware or software carry the rule from now on, without a gap. Handle and counters go on. If there is no room for it in
    /// hardware the rule stays where it was, and the outcome says so. Refused as
    /// [`Unsupported`](crate::Refusal::Unsupported) by a backend without the facet [`Capacity`](super::Capacity).
    Move(Handle, Placement),
    /// Unlinks the rule from matching, reads its last counters and frees it. A rule that is gone already is no refusal: it is removed,
    /// without counters.
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

/// A change to a chain that the device shall make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainChange {
    /// The chain; never the first one, which is always open.
    pub chain: ChainId,
    /// What to do.
    pub operation: ChainOperation,
}

/// What to do to a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainOperation {
    /// Makes a closed chain ready to be jumped to: from then on it ends, for every packet, in the miss policy. A rule that jumps to a chain
    /// that is not open is refused.
    Open,
    /// Gives an open chain back that no rule jumps to. What other rules are in it stay.
    Close,
}

/// The end of a change to a chain. One that was refused is as it was: closed after an opening, open after a closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainCompletion {
    /// The change.
    pub change: ChainChange,
    /// Whether it was made.
    pub result: Result<(), Refusal>,
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
