//! The way of one packet through a NIC in software, step by step.

use crate::action::Action;
use crate::chain::ChainId;
use crate::id::FlowId;
use crate::key::Key;
use crate::port::PortNumber;
use crate::priority::Priority;
use crate::refusal::Refusal;

/// Walks packets through the rules as they are, and leaves no trace of it in the device: nothing is counted, no tokens of
/// a meter are spent, no connection is entered. What one packet would have changed is seen by those that the same tracer
/// walks after it.
pub trait Tracer {
    /// Lets a frame (without FCS) in at a port.
    fn trace(&mut self, port: PortNumber, frame: &[u8]) -> Result<Trace, Refusal>;
}

/// What became of one packet, and how.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// All steps in order.
    pub steps: Vec<Step>,
    /// What became of it in the end.
    pub verdict: Verdict,
}

/// One step, within so many lists of actions and lookups.
#[derive(Clone, Debug)]
pub struct Step {
    /// 0 for the lookup of the packet as it came.
    pub depth: usize,
    /// What was done.
    pub event: TraceEvent,
}

/// What was done in a step.
#[derive(Clone, Debug)]
pub enum TraceEvent {
    /// An outer header was taken off, and the packet comes from this tunnel port.
    Decapsulated(PortNumber),
    /// A mirror of this name copies the packet; the frames that it sends follow.
    Mirrored(String),
    /// The packet was looked up.
    Lookup(Box<Lookup>),
    /// An action was run.
    Action(Box<ActionEffect>),
    /// A frame left.
    Sent {
        /// Where.
        port: PortNumber,
        /// Its bytes.
        frame: Vec<u8>,
    },
    /// The packet goes no further, for this reason.
    Dropped(&'static str),
}

/// A lookup in one chain.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The chain in which the packet was looked up.
    pub chain: ChainId,
    /// The packet's key.
    pub key: Key,
    /// The subtables that were tried, in order; the last is the one that was hit, if one was.
    pub tried: Vec<TriedSubtable>,
    /// The flow that was hit.
    pub hit: Option<FlowId>,
}

/// A subtable of a lookup: rules of one priority and mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedSubtable {
    /// That of all its rules; subtables of higher ones are tried first.
    pub priority: Priority,
    /// The fields that the rules match, each with its mask unless it is exact, as in `in_port,ipv4.dst/24`.
    pub fields: String,
    /// How many rules are in it.
    pub rules: u64,
}

/// What an action did to the packet.
#[derive(Clone, Debug)]
pub struct ActionEffect {
    /// What was done, as the flow has it.
    pub action: Action,
    /// The packet's key before and behind it.
    pub keys: [Key; 2],
    /// The packet's bytes before and behind it.
    pub lengths: [usize; 2],
}

/// What became of an injected frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The flows that the packet hit, in order.
    pub hits: Vec<FlowId>,
    /// The chain in which it missed, if it did.
    pub missed: Option<ChainId>,
    /// What was sent, in order.
    pub sent: Vec<(PortNumber, Vec<u8>)>,
    /// What sampling groups were told, in order.
    pub samples: Vec<Sample>,
}

/// A packet as a sampling group is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Who is told, by the number of the group.
    pub group: u32,
    /// What the action has noted for the group.
    pub cookie: Box<[u8]>,
    /// The packet as it was then, cut if a cut was to come.
    pub bytes: Vec<u8>,
    /// How likely it was that the packet was sampled: [`u32::MAX`] is for certain.
    pub rate: u32,
}
