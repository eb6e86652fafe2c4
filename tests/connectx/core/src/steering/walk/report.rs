//! What became of a packet.

use std::fmt;

use crate::steering::port::Port;
use crate::steering::step::Step;

/// What became of one packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walk {
    /// Frames that left the switch, in order, and where.
    pub sent: Vec<(Port, Vec<u8>)>,
    /// Frames that reached receive queues of the function that owns the switch.
    pub received: Vec<Received>,
    /// How it came to that. Each prints as one line.
    pub steps: Vec<Step>,
}

/// A frame that reached a receive queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The queue's TIR.
    pub tir: u32,
    /// The flow tag that the last entry with one gave it, for the completion.
    pub tag: Option<u32>,
    /// Register B, for the completion.
    pub metadata: u32,
    /// The frame.
    pub frame: Vec<u8>,
}

impl fmt::Display for Walk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(out, "{step}"))
    }
}
