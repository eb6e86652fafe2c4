//! A copied frame, as the agent hands it to a client of the mirror socket.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | header of all messages |
//! | 4 | code of the class |
//! | 5 | bit 0: the port is known, bit 1: the UFID is known |
//! | 6..8 | zeros |
//! | 8..12 | number of the port that the frame came in at, or 0 |
//! | 12..16 | length of the frame as it was, in bytes |
//! | 16..24 | when it was copied, in ns since 1970 |
//! | 24..40 | UFID, or zeros |
//! | 40.. | the frame from its Ethernet header on, without FCS, with the VLAN tags in place |

use super::class::Class;
use super::error::MessageError;
use super::header::{HEADER, Kind};

/// Bytes before the frame.
pub const FRAME_HEADER: usize = 40;

const HAS_PORT: u8 = 1;
const HAS_UFID: u8 = 2;

/// What is said of a copied frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRepr {
    /// Its class.
    pub class: Class,
    /// The number of the datapath port that it came in at, if it is known.
    pub in_port: Option<u32>,
    /// The UFID of the flow that took it in the first chain, or that copied it; `None` if no flow took it.
    pub ufid: Option<u128>,
    /// When it was copied, in nanoseconds since 1970.
    pub time: u64,
    /// How many bytes it had.
    pub original_length: u32,
}

impl FrameRepr {
    /// Returns the message.
    pub fn message(&self, frame: &[u8]) -> Vec<u8> {
        let Self { class, in_port, ufid, time, original_length } = *self;
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let mut message = Vec::with_capacity(FRAME_HEADER + frame.len());
        message.extend(Kind::FRAME.header());
        message.extend([class.code(), flag(in_port.is_some(), HAS_PORT) | flag(ufid.is_some(), HAS_UFID), 0, 0]);
        message.extend(in_port.unwrap_or_default().to_be_bytes());
        message.extend(original_length.to_be_bytes());
        message.extend(time.to_be_bytes());
        message.extend(ufid.unwrap_or_default().to_be_bytes());
        message.extend(frame);
        message
    }
}

/// The message of a copied frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameView<'a> {
    repr: FrameRepr,
    frame: &'a [u8],
}

impl<'a> FrameView<'a> {
    /// Checks the body of a message.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, MessageError> {
        const BODY: usize = FRAME_HEADER - HEADER;
        let field = |field| MessageError::Field { what: "frame", field };
        let short = MessageError::Length { what: "frame", length: HEADER + body.len() };
        let (head, frame) = body.split_first_chunk::<BODY>().ok_or(short)?;
        let (head, ufid) = head.split_last_chunk::<16>().ok_or(short)?;
        let (head, time) = head.split_last_chunk::<8>().ok_or(short)?;
        let (head, original_length) = head.split_last_chunk::<4>().ok_or(short)?;
        let (head, in_port) = head.split_last_chunk::<4>().ok_or(short)?;
        let &[class, flags, 0, 0] = head else { return Err(field("padding")) };
        let known = |flag, what, is_zero: bool| match flags & flag != 0 {
            true => Ok(true),
            false if is_zero => Ok(false),
            false => Err(field(what)),
        };
        if flags & !(HAS_PORT | HAS_UFID) != 0 {
            return Err(field("flags"));
        }
        let (in_port, ufid) = (u32::from_be_bytes(*in_port), u128::from_be_bytes(*ufid));
        let repr = FrameRepr {
            class: Class::of_code(class).ok_or_else(|| field("class"))?,
            in_port: known(HAS_PORT, "port", in_port == 0)?.then_some(in_port),
            ufid: known(HAS_UFID, "UFID", ufid == 0)?.then_some(ufid),
            time: u64::from_be_bytes(*time),
            original_length: u32::from_be_bytes(*original_length),
        };
        let is_whole_or_cut = u32::try_from(frame.len()).is_ok_and(|length| length <= repr.original_length);
        if is_whole_or_cut { Ok(Self { repr, frame }) } else { Err(field("length")) }
    }

    /// Returns what is said of the frame.
    pub const fn repr(&self) -> FrameRepr {
        self.repr
    }

    /// Returns the frame, or as much of it as was copied.
    pub const fn frame(&self) -> &'a [u8] {
        self.frame
    }
}
