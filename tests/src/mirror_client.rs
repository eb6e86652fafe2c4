//! A client of the mirror socket.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketType, connect, recv, socket};
use sluice_control::mirror::{MAX_MESSAGE, mirror_socket};

/// A connection to the mirror socket of an agent.
pub struct MirrorClient(OwnedFd);

impl MirrorClient {
    /// Connects to the agent with this run folder.
    pub fn connect(run_dir: &Path) -> Self {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
        let address = SocketAddrUnix::new(mirror_socket(run_dir)).expect("a short path");
        connect(&socket, &address).expect("the agent listens");
        Self(socket)
    }

    /// Returns the next message; `None` if there is none within five seconds, or if the agent is gone.
    pub fn next(&self) -> Option<Vec<u8>> {
        self.within(Duration::from_secs(5))
    }

    /// Returns whether no message comes for half a second.
    pub fn is_silent(&self) -> bool {
        self.within(Duration::from_millis(500)).is_none()
    }

    fn within(&self, time: Duration) -> Option<Vec<u8>> {
        let time = Timespec::try_from(time).expect("a short time");
        let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)).expect("it can be polled");
        if ready == 0 {
            return None;
        }
        let mut message = vec![0; MAX_MESSAGE];
        let (length, _) = recv(&self.0, &mut message[..], RecvFlags::empty()).ok()?;
        message.truncate(length);
        (length > 0).then_some(message)
    }
}
