//! What the library and the agent say to each other: messages of one socket of the type `SOCK_SEQPACKET`, each with at most one file.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::layout::MAGIC;

/// Counts up with every change that the other side must know of.
const VERSION: u32 = 1;
/// Bytes of a message: the magic number, the version, which message it is and a number, in the order of the machine.
pub(crate) const LENGTH: usize = 24;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The library is there, and has the memory that comes with it, or none.
    Hello,
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
            Self::Hello => (1, 0),
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
            1 => Some(Self::Hello),
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

/// Sends a message. Never waits.
pub fn send(socket: impl AsFd, message: Message, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::NOBUFS.into());
    }
    let bytes = message.write();
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message. Never waits.
pub fn receive(socket: impl AsFd) -> Received {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; LENGTH];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::End,
    };
    // Files that are not wanted are closed here.
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().last();
    if received.bytes == 0 {
        return Received::End;
    }
    let is_whole = received.bytes == LENGTH && !received.flags.contains(ReturnFlags::TRUNC);
    match Message::read(&bytes) {
        Some(message) if is_whole => Received::Message(message, file),
        _ => Received::Garbage,
    }
}
