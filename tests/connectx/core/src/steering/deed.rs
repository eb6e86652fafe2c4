//! What an entry did with a packet, in words.

use std::fmt;

use super::domain::Target;
use super::meter::Color;
use super::rewrite::Rewritten;
use super::tracking::{Direction, Outcome};

/// One thing that an entry did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Moved a counter by a packet.
    Counted {
        /// The counter.
        counter: u32,
        /// The bytes that it moved by.
        bytes: usize,
    },
    /// Took this many bytes of tunnel headers away.
    Decapsulated(usize),
    /// Took a VLAN tag away: its TCI.
    PoppedVlan(u16),
    /// Changed a field.
    Rewrote(Rewritten),
    /// Put a VLAN tag on: EtherType and TCI.
    PushedVlan(u16, u16),
    /// Applied a packet reformat context; the frame's length before and after.
    Reformatted {
        /// The context.
        id: u32,
        /// Length before.
        from: usize,
        /// Length after.
        to: usize,
    },
    /// Took bytes away or put some in: the frame's length before and after.
    Resized {
        /// Length before.
        from: usize,
        /// Length after.
        to: usize,
    },
    /// Marked the packet for its receiver.
    Tagged(u32),
    /// A line of an ASO object was hit.
    Hit {
        /// The object.
        object: u32,
        /// Which of its lines.
        line: u16,
        /// Whether it had been hit before.
        was: bool,
    },
    /// A meter in an ASO object colored it.
    Metered {
        /// The object.
        object: u32,
        /// Which of its meters.
        meter: usize,
        /// The color.
        color: Color,
    },
    /// An ASO object that tracks a connection looked at it.
    Tracked {
        /// The object.
        object: u32,
        /// The end that it comes from.
        direction: Direction,
        /// What came of it.
        outcome: Outcome,
    },
    /// Sent it there.
    Forwarded(Target),
    /// Let it pass.
    Allowed,
    /// Ended it.
    Dropped,
    /// Could not do what it should, so the packet ends.
    Failed(&'static str),
}

impl fmt::Display for Deed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted { counter, bytes } => write!(out, "counter {counter:#x} +{bytes} bytes"),
            Self::Decapsulated(bytes) => write!(out, "decap of {bytes} bytes"),
            Self::PoppedVlan(tci) => write!(out, "pop VLAN {:#x}", tci),
            Self::Rewrote(Rewritten { field, change: Some((from, to)) }) => write!(out, "{field} {from:#x}->{to:#x}"),
            Self::Rewrote(Rewritten { field, change: None }) => write!(out, "no {field} to change"),
            Self::PushedVlan(ethertype, tci) => write!(out, "push VLAN {ethertype:#06x} {tci:#x}"),
            Self::Reformatted { id, from, to } => write!(out, "reformat {id:#x} from {from} to {to} bytes"),
            Self::Resized { from, to } => write!(out, "from {from} to {to} bytes"),
            Self::Tagged(tag) => write!(out, "tag {tag:#x}"),
            Self::Hit { object, line, was } => {
                write!(out, "line {line} of ASO {object:#x} {}", if *was { "was hit before" } else { "is hit first" })
            }
            Self::Metered { object, meter, color } => write!(out, "{color} by meter {meter} of ASO {object:#x}"),
            Self::Tracked { object, direction, outcome } => {
                let end = match direction {
                    Direction::Initiator => "initiator",
                    Direction::Responder => "responder",
                };
                write!(out, "{outcome} from the {end} of ASO {object:#x}")
            }
            Self::Forwarded(target) => write!(out, "to {target}"),
            Self::Allowed => out.write_str("allow"),
            Self::Dropped => out.write_str("drop"),
            Self::Failed(why) => write!(out, "cannot: {why}"),
        }
    }
}
