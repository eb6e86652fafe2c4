//! Frames from outside into a device that takes some.

use crate::port::PortNumber;
use crate::refusal::Refusal;
use crate::trace::{Tracer, Verdict};

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
