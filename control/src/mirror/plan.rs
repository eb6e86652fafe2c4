//! What the agent tells a sender to mirror.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | header of all messages |
//! | 4..6 | the classes that are mirrored, a bit each: code 0 is the lowest |
//! | 6..8 | number of taps |
//! | 8 | length of the collector's address |
//! | 9.. | the collector's address in UTF-8, then the taps |

use super::class_set::ClassSet;
use super::error::MessageError;
use super::header::{HEADER, Kind};
use super::tap::Tap;

/// As many taps as a plan has at most: one message holds them all.
pub const MAX_TAPS: usize = 256;

/// What is mirrored, where copies can be picked up, and where they go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The collector, `ADDRESS:PORT`; empty if the agent names none. At most 255 bytes.
    pub collector: String,
    /// The classes that are mirrored.
    pub classes: ClassSet,
    /// Where copies can be picked up. At most [`MAX_TAPS`].
    pub taps: Vec<Tap>,
}

/// Bytes of the body before the collector's address.
const HEAD: usize = 5;

impl Plan {
    /// Returns the message. Taps behind the first [`MAX_TAPS`] are left out.
    pub fn message(&self) -> Vec<u8> {
        let taps = &self.taps[..self.taps.len().min(MAX_TAPS)];
        let collector = &self.collector[..self.collector.floor_char_boundary(u8::MAX.into())];
        let mut message = Kind::PLAN.header().to_vec();
        message.extend(self.classes.bits().to_be_bytes());
        message.extend(u16::try_from(taps.len()).unwrap_or_default().to_be_bytes());
        message.push(u8::try_from(collector.len()).unwrap_or_default());
        message.extend(collector.bytes());
        taps.iter().for_each(|tap| tap.write(&mut message));
        message
    }

    /// Reads the body of a message.
    pub(super) fn parse(body: &[u8]) -> Result<Self, MessageError> {
        let field = |field| MessageError::Field { what: "plan", field };
        let wrong = || MessageError::Length { what: "plan", length: HEADER + body.len() };
        let (head, rest) = body.split_first_chunk::<HEAD>().ok_or_else(wrong)?;
        let [classes_high, classes_low, taps_high, taps_low, length] = *head;
        let (collector, mut rest) = rest.split_at_checked(length.into()).ok_or_else(wrong)?;
        let collector = String::from_utf8(collector.to_vec()).map_err(|_| field("collector"))?;
        let classes = ClassSet::of_bits(u16::from_be_bytes([classes_high, classes_low])).ok_or(field("classes"))?;
        let count = usize::from(u16::from_be_bytes([taps_high, taps_low]));
        if count > MAX_TAPS {
            return Err(field("number of taps"));
        }
        let mut taps = Vec::with_capacity(count);
        for _ in 0..count {
            let (tap, behind) = Tap::parse(rest)?;
            taps.push(tap);
            rest = behind;
        }
        if rest.is_empty() { Ok(Self { collector, classes, taps }) } else { Err(wrong()) }
    }
}
