//! Frames of a batch, whichever way they lie in it.

use std::borrow::Cow;

use crate::wire::frames::Frame;
use crate::wire::ring::RingFrame;
use crate::wire::{Layout, WireError, frames, ring};

/// A frame of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Seen<'a> {
    Own(Frame<'a>),
    Ring(RingFrame<'a>),
}

/// How a frame names its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PortKey {
    Number(Option<u32>),
    Ifindex(u32),
}

impl<'a> Seen<'a> {
    pub(super) fn port(&self) -> PortKey {
        match self {
            Self::Own(frame) => PortKey::Number(frame.in_port),
            Self::Ring(frame) => PortKey::Ifindex(frame.ifindex),
        }
    }

    pub(super) fn captured(&self) -> u64 {
        match self {
            Self::Own(frame) => frame.captured,
            Self::Ring(frame) => frame.captured,
        }
    }

    pub(super) fn ufid(&self) -> Option<u128> {
        match self {
            Self::Own(frame) => frame.ufid,
            Self::Ring(_) => None,
        }
    }

    /// Returns the frame as it was on the wire, and how long it was there.
    pub(super) fn restored(&self) -> (u32, Cow<'a, [u8]>) {
        match self {
            Self::Own(frame) => (frame.length, Cow::Borrowed(frame.bytes)),
            Self::Ring(frame) if frame.vlan.is_none() && frame.checksum.is_none() => {
                (frame.length, Cow::Borrowed(frame.bytes))
            }
            Self::Ring(frame) => {
                let mut bytes = Vec::new();
                let length = frame.restore(&mut bytes);
                (length, bytes.into())
            }
        }
    }
}

/// Calls `visit` with each frame of a payload.
///
/// # Errors
/// Fails if it is malformed, or if it has another number of frames.
pub(super) fn visit<'a>(
    layout: Layout,
    payload: &'a [u8],
    expected: u32,
    mut visit: impl FnMut(Seen<'a>),
) -> Result<(), WireError> {
    let mut found = 0_u32;
    let mut count = |seen| {
        found = found.saturating_add(1);
        visit(seen);
    };
    match layout {
        Layout::Frames => frames::frames(payload).try_for_each(|frame| frame.map(|frame| count(Seen::Own(frame))))?,
        Layout::Ring => ring::frames(payload)?.try_for_each(|frame| frame.map(|frame| count(Seen::Ring(frame))))?,
    }
    if found == expected { Ok(()) } else { Err(WireError::Frames { found, expected }) }
}
