//! Messages of the sender: a header of [`HEADER`] bytes and a payload.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | magic, `SLMM` |
//! | 4..6 | version |
//! | 6 | kind: 1 hello, 2 batch, 3 heartbeat |
//! | 7 | class of a batch, else 0 |
//! | 8..16 | sender, a random number of each run |
//! | 16..20 | length of the payload in bytes |
//! | 20..24 | number of frames of a batch, else 0 |
//! | 24..32 | sequence number of its first frame in the class |
//! | 32..40 | when its first frame was captured, nanoseconds since 1970 |
//! | 40 | layout of the payload of a batch: 0 frames, 1 ring |
//! | 41..44 | zeros |
//! | 44..48 | frames right before a batch that the sender has given up, 0 without [`GIVEN_UP`](super::GIVEN_UP) |
//! | 48.. | frames of the class that were dropped so far, by cause, 8 bytes each |
//!
//! The payload of a hello is a [`Hello`](super::Hello); that of a heartbeat has the drops of each class, 8 bytes for each cause.

use sluice_control::mirror::Class;

use super::drops::{CAUSES, Cause, Drops};
use super::reader::Reader;
use super::{CLASSES, VERSION, WireError};

const MAGIC: [u8; 4] = *b"SLMM";

/// Bytes of a header.
pub const HEADER: usize = 48 + 8 * CAUSES;

/// Bytes of the drops of one class.
const DROPS: usize = 8 * CAUSES;

/// Header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which run of which sender this is.
    pub sender: u64,
    /// Bytes of the payload.
    pub length: u32,
    /// What the payload is.
    pub kind: Kind,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The sender and its ports; again if they have changed.
    Hello,
    /// Frames.
    Batch {
        /// Class of all frames.
        class: Class,
        /// How they lie in the payload.
        layout: Layout,
        /// How many there are, at least 1.
        frames: u32,
        /// Sequence number of the first one in its class, from 0.
        sequence: u64,
        /// When it was captured: nanoseconds since 1970.
        captured: u64,
        /// As many frames right before these have sequence numbers and will not come: the sender has given them up, and counts them in its
        /// drops.
        given_up: u32,
        /// Frames of the class that were dropped since the sender started.
        drops: Drops,
    },
    /// The sender lives; with the drops of all classes.
    Heartbeat,
}

/// How frames lie in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One behind the other, each with a header of ours ([`frames`](super::frames)).
    Frames,
    /// A block of a packet ring (`TPACKET_V3`) as the kernel wrote it ([`ring`](super::ring)).
    Ring,
}

/// A message that was checked, but for what is inside of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// Its payload.
    pub payload: &'a [u8],
}

impl Header {
    /// Writes the header into the first [`HEADER`] bytes of a buffer, which must have so many.
    pub fn write(&self, into: &mut [u8]) {
        let (code, class, layout, frames, sequence, captured, given_up, drops) = match self.kind {
            Kind::Hello => (1, 0, 0, 0, 0, 0, 0, Drops::default()),
            Kind::Batch { class, layout, frames, sequence, captured, given_up, drops } => {
                (2, class.code(), u8::from(layout == Layout::Ring), frames, sequence, captured, given_up, drops)
            }
            Kind::Heartbeat => (3, 0, 0, 0, 0, 0, 0, Drops::default()),
        };
        into[..4].copy_from_slice(&MAGIC);
        into[4..6].copy_from_slice(&VERSION.to_be_bytes());
        into[6] = code;
        into[7] = class;
        into[8..16].copy_from_slice(&self.sender.to_be_bytes());
        into[16..20].copy_from_slice(&self.length.to_be_bytes());
        into[20..24].copy_from_slice(&frames.to_be_bytes());
        into[24..32].copy_from_slice(&sequence.to_be_bytes());
        into[32..40].copy_from_slice(&captured.to_be_bytes());
        into[40..44].copy_from_slice(&[layout, 0, 0, 0]);
        into[44..48].copy_from_slice(&given_up.to_be_bytes());
        write_drops(&drops, &mut into[48..HEADER]);
    }

    fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("a message's header", bytes);
        if reader.take(4)? != MAGIC {
            return Err(WireError::Magic);
        }
        let version = reader.u16()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let (code, class) = (reader.u8()?, reader.u8()?);
        let (sender, length) = (reader.u64()?, reader.u32()?);
        let (frames, sequence, captured) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let layout = reader.u8()?;
        reader.zeros(3, "a reserved byte of a message's header")?;
        let given_up = reader.u32()?;
        let drops = read_drops(&mut reader)?;
        let field = |field, value| Err(WireError::Field { field, value });
        let kind = match code {
            1 => Kind::Hello,
            2 => Kind::Batch {
                class: Class::of_code(class)
                    .ok_or(WireError::Field { field: "the class of a batch", value: class.into() })?,
                layout: match layout {
                    0 => Layout::Frames,
                    1 => Layout::Ring,
                    _ => return field("the layout of a batch", layout.into()),
                },
                frames,
                sequence,
                captured,
                given_up,
                drops,
            },
            3 => Kind::Heartbeat,
            _ => return field("the kind of a message", code.into()),
        };
        match kind {
            Kind::Batch { frames: 0, .. } => return field("the number of frames of a batch", 0),
            Kind::Batch { .. } if sequence.checked_add(frames.into()).is_none() => {
                return field("the sequence number of a batch", sequence);
            }
            _ => {}
        }
        Ok(Self { sender, length, kind })
    }
}

impl<'a> Message<'a> {
    /// Reads a message that came in as these bytes.
    ///
    /// # Errors
    /// Fails if they are no message of this version.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = Header::parse(bytes.get(..HEADER).unwrap_or(bytes))?;
        let payload = bytes.get(HEADER..).unwrap_or_default();
        let expected = usize::try_from(header.length).unwrap_or(usize::MAX);
        if payload.len() != expected {
            return Err(WireError::Length { what: "the payload of a message", length: payload.len(), expected });
        }
        if header.kind == Kind::Heartbeat && payload.len() != CLASSES * DROPS {
            let expected = CLASSES * DROPS;
            return Err(WireError::Length { what: "the payload of a heartbeat", length: payload.len(), expected });
        }
        Ok(Self { header, payload })
    }

    /// Returns the drops of each class that a heartbeat brings, in the order of classes; nothing of any other message.
    pub fn class_drops(&self) -> impl Iterator<Item = (Class, Drops)> + use<'a> {
        let payload = if self.header.kind == Kind::Heartbeat { self.payload } else { &[] };
        payload.chunks_exact(DROPS).zip(Class::ALL).filter_map(|(bytes, class)| {
            let drops = read_drops(&mut Reader::new("drops", bytes)).ok()?;
            Some((class, drops))
        })
    }
}

/// Bytes of the payload of a heartbeat.
pub(crate) const HEARTBEAT: usize = CLASSES * DROPS;

/// Writes the payload of a heartbeat into [`HEARTBEAT`] bytes.
pub(crate) fn write_heartbeat(drops: impl Iterator<Item = Drops>, into: &mut [u8]) {
    for (drops, into) in drops.zip(into.chunks_exact_mut(DROPS)) {
        write_drops(&drops, into);
    }
}

fn write_drops(drops: &Drops, into: &mut [u8]) {
    for ((_, count), into) in drops.iter().zip(into.chunks_exact_mut(8)) {
        into.copy_from_slice(&count.to_be_bytes());
    }
}

fn read_drops(reader: &mut Reader<'_>) -> Result<Drops, WireError> {
    let mut drops = Drops::default();
    for cause in Cause::ALL {
        drops[cause] = reader.u64()?;
    }
    Ok(drops)
}
