//! Frames from outside into a device that takes some.

use crate::chain::ChainId;
use crate::id::FlowId;
use crate::port::PortNumber;
use crate::refusal::Refusal;
use crate::trace::Tracer;

/// A NIC in software, seen from the wire. Called from the threads of the control socket, several at a time.
pub trait Injector: Send + Sync {
    /// Fails if a frame (without FCS) cannot come in at a port at all: there is no such port, or the frame is too short.
    fn check(&self, port: PortNumber, frame: &[u8]) -> Result<(), Refusal>;

    /// Lets a frame (without FCS) in at a port, and returns what became of it once that is done and counted. Fails as
    /// [`check`](Self::check) does.
    fn inject(&self, port: PortNumber, frame: &[u8]) -> Result<Verdict, Refusal>;

    /// Returns what walks frames through the rules and tells each step, without letting them in: nothing is counted or sent.
    fn tracer(&self) -> Box<dyn Tracer + '_>;
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
    /// The group.
    pub group: u32,
    /// The note.
    pub cookie: Box<[u8]>,
    /// The packet as it was then, cut if a cut was to come.
    pub bytes: Vec<u8>,
    /// How likely it was that the packet was sampled: [`u32::MAX`] is for certain.
    pub rate: u32,
}
