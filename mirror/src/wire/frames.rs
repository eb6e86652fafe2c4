//! Frames one behind the other ([`Layout::Frames`](super::Layout::Frames)), each behind a header and filled up to 8 bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | bytes of the frame that are here |
//! | 4..8 | bytes that it had |
//! | 8..12 | port of the datapath that it came in by, or all ones if that is not known |
//! | 12..16 | flags: 1 the UFID is known |
//! | 16..24 | when it was captured, nanoseconds since 1970 |
//! | 24..40 | UFID of the flow that mirrored it, else zeros |

use super::reader::Reader;
use super::{NO_PORT, WireError};

/// Bytes of a frame's header.
pub const FRAME_HEADER: usize = 40;

const ALIGNMENT: usize = 8;
const HAS_UFID: u32 = 1;

/// A mirrored frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Port of the datapath that it came in by, if that is known.
    pub in_port: Option<u32>,
    /// The flow that mirrored it, if that is known.
    pub ufid: Option<u128>,
    /// When it was captured: nanoseconds since 1970.
    pub captured: u64,
    /// How long it was on the wire, in bytes.
    pub length: u32,
    /// Its bytes, or as many of them as were captured.
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// Returns how many bytes the frame takes in a batch.
    #[must_use]
    pub fn room(&self) -> usize {
        FRAME_HEADER + self.bytes.len().next_multiple_of(ALIGNMENT)
    }

    /// Writes the frame into the front of a buffer, and returns how many bytes it took; `None` if there is no room for it.
    #[must_use]
    pub fn write(&self, into: &mut [u8]) -> Option<usize> {
        let room = self.room();
        let into = into.get_mut(..room)?;
        let captured_length = u32::try_from(self.bytes.len()).ok()?;
        let flags = if self.ufid.is_some() { HAS_UFID } else { 0 };
        into[..4].copy_from_slice(&captured_length.to_be_bytes());
        into[4..8].copy_from_slice(&self.length.to_be_bytes());
        into[8..12].copy_from_slice(&self.in_port.unwrap_or(NO_PORT).to_be_bytes());
        into[12..16].copy_from_slice(&flags.to_be_bytes());
        into[16..24].copy_from_slice(&self.captured.to_be_bytes());
        into[24..40].copy_from_slice(&self.ufid.unwrap_or_default().to_be_bytes());
        let (frame, padding) = into[FRAME_HEADER..].split_at_mut(self.bytes.len());
        frame.copy_from_slice(self.bytes);
        padding.fill(0);
        Some(room)
    }
}

/// Returns the frames of a payload, one by one. What is not a frame is an error, and the last item.
pub fn frames(payload: &[u8]) -> impl Iterator<Item = Result<Frame<'_>, WireError>> {
    let mut reader = Some(Reader::new("a frame of a batch", payload));
    std::iter::from_fn(move || {
        let mut rest = reader.take().filter(|rest| !rest.rest().is_empty())?;
        let frame = read(&mut rest);
        if frame.is_ok() {
            reader = Some(rest);
        }
        Some(frame)
    })
}

fn read<'a>(reader: &mut Reader<'a>) -> Result<Frame<'a>, WireError> {
    let (captured_length, length, in_port, flags) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
    let (captured, ufid) = (reader.u64()?, reader.u128()?);
    if flags & !HAS_UFID != 0 {
        return Err(WireError::Field { field: "the flags of a frame", value: flags.into() });
    }
    if captured_length > length {
        return Err(WireError::Field { field: "the captured length of a frame", value: captured_length.into() });
    }
    let size = usize::try_from(captured_length).unwrap_or(usize::MAX);
    let bytes = reader.take(size)?;
    reader.zeros(size.next_multiple_of(ALIGNMENT) - size, "the padding of a frame")?;
    let in_port = Some(in_port).filter(|port| *port != NO_PORT);
    Ok(Frame { in_port, ufid: (flags & HAS_UFID != 0).then_some(ufid), captured, length, bytes })
}
