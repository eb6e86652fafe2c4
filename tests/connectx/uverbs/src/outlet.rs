//! Files of a program's that something comes out of, piece by piece: events, and answers to queries that need not be waited for.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::thread::Builder;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

use super::request::Refused;

/// The device's end of such a file.
#[derive(Debug)]
pub(crate) struct Outlet {
    ours: OwnedFd,
    /// The program's end once more, to take back what it has not read.
    theirs: OwnedFd,
}

impl Outlet {
    /// A new one, and the program's file, as a request answers with it: it is the program's from now on.
    pub(crate) fn open() -> Result<(Self, u64), Refused> {
        let none = |errno| Refused::new(errno, "no file for a program to read");
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
        let (theirs, ours) = pair.map_err(none)?;
        let again = theirs.try_clone().map_err(|_| none(Errno::EMFILE))?;
        let file = u64::try_from(theirs.into_raw_fd()).unwrap_or_default();
        Ok((Self { ours, theirs: again }, file))
    }

    /// Has a piece come out.
    ///
    /// # Errors
    /// EAGAIN if there is no room for one more.
    pub(crate) fn put(&self, piece: &[u8]) -> Result<(), Errno> {
        send(self.ours.as_raw_fd(), piece, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL).map(|_| ())
    }

    /// Has a piece come out after a while, if the program is there by then, and there is room for it.
    ///
    /// # Errors
    /// EAGAIN if nobody can be had who waits for that.
    pub(crate) fn put_later(&self, piece: Vec<u8>, after: Duration) -> Result<(), Errno> {
        let ours = self.ours.try_clone().map_err(|_| Errno::EMFILE)?;
        let run = move || {
            std::thread::sleep(after);
            let _ = send(ours.as_raw_fd(), &piece, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        };
        Builder::new().name("connectx-late".to_owned()).spawn(run).map(drop).map_err(|_| Errno::EAGAIN)
    }

    /// Takes all pieces back that the program has not read.
    pub(crate) fn take_back(&self) -> Vec<Vec<u8>> {
        const MOST: usize = 4096;
        let next = || {
            let mut piece = vec![0; MOST];
            let length =
                recv(self.theirs.as_raw_fd(), &mut piece, MsgFlags::MSG_DONTWAIT).ok().filter(|length| *length > 0)?;
            piece.truncate(length);
            Some(piece)
        };
        std::iter::from_fn(next).collect()
    }
}
