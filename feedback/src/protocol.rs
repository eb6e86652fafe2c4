//! What the library and the agent say to each other: messages of one socket of the type `SOCK_SEQPACKET`, each with at most one file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::ancillary;
use crate::layout::MAGIC;

/// Counts up with every change that the other side must know of.
const VERSION: u32 = 1;
/// Bytes of a message: the magic number, the version, which message it is and a number, in the order of the machine.
pub(crate) const LENGTH: usize = 24;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The library is there, and has the memory that comes with it, or none.
    Hello {
        /// It tells of meters. One that is older does not.
        tells_meters: bool,
    },
    /// The agent's memory comes with it.
    Memory,
    /// The library uses the agent's memory.
    Taken,
    /// The library does not use it; the number is that of a [`Refusal`](crate::Refusal).
    Refused(u32),
}

impl Message {
    const fn words(self) -> (u32, u32) {
        match self {
            Self::Hello { tells_meters } => (1, tells_meters as u32),
            Self::Memory => (2, 0),
            Self::Taken => (3, 0),
            Self::Refused(refusal) => (4, refusal),
        }
    }

    fn read(bytes: &[u8; LENGTH]) -> Option<Self> {
        let [magic @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *bytes;
        let word =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word));
        if u64::from_ne_bytes(magic) != MAGIC || word(8) != VERSION {
            return None;
        }
        match word(12) {
            1 => Some(Self::Hello { tells_meters: word(16) & 1 > 0 }),
            2 => Some(Self::Memory),
            3 => Some(Self::Taken),
            4 => Some(Self::Refused(word(16))),
            _ => None,
        }
    }

    fn write(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let (kind, number) = self.words();
        let [head, tail @ ..] = bytes.as_chunks_mut::<8>().0 else { return bytes };
        *head = MAGIC.to_ne_bytes();
        for (to, from) in tail.as_flattened_mut().as_chunks_mut::<4>().0.iter_mut().zip([VERSION, kind, number]) {
            *to = from.to_ne_bytes();
        }
        bytes
    }
}

/// What came.
#[derive(Debug)]
pub enum Received {
    /// Nothing yet.
    Nothing,
    /// The other side is gone.
    End,
    /// What is no message of this version.
    Garbage,
    /// A message, and the file that came with it.
    Message(Message, Option<OwnedFd>),
}

/// Sends a message, and says whether it went. Never waits.
pub fn send(socket: impl AsFd, message: Message, file: Option<BorrowedFd<'_>>) -> bool {
    ancillary::send(socket.as_fd(), message.write(), file).is_ok()
}

/// Receives a message. Never waits.
pub fn receive(socket: impl AsFd) -> Received {
    // A byte more than a message has.
    let mut bytes = [0; LENGTH + 1];
    match ancillary::receive(socket.as_fd(), &mut bytes) {
        Ok((LENGTH, file)) => match bytes.first_chunk().and_then(Message::read) {
            Some(message) => Received::Message(message, file),
            None => Received::Garbage,
        },
        Ok((0, _)) => Received::End,
        Ok(_) => Received::Garbage,
        Err(libc::EAGAIN | libc::EINTR) => Received::Nothing,
        Err(_) => Received::End,
    }
}
