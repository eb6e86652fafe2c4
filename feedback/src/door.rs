//! A socket that ovs-vswitchd connects to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::ancillary;

/// A process that has connected.
pub struct Peer {
    /// To it.
    pub socket: OwnedFd,
    /// Its number; 0 outside of this process' PID namespace, as all of the node are to an agent in a pod.
    pub pid: i32,
    /// By which its end can be told. On Linux before 6.5, there is none outside of this process' PID namespace.
    pub process: Option<OwnedFd>,
}

/// A socket of the agent that ovs-vswitchd connects to.
///
/// Everybody may connect whom the folder lets in, for ovs-vswitchd runs as root here and as a user of its own there. The kernel says whose
/// process it is, and only root's and the agent's own user's are let in.
pub struct Door(Socket);

/// The same before anybody can connect, who would wait for an answer.
pub struct ClosedDoor(Socket);

/// A socket that has its name for as long as it is there.
struct Socket {
    path: PathBuf,
    listener: OwnedFd,
}

impl ClosedDoor {
    /// Makes the socket. One that nobody listens at any more is replaced.
    pub fn new(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let new = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        match connect(new()?, &address) {
            Ok(()) | Err(Errno::AGAIN) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(Errno::CONNREFUSED) => std::fs::remove_file(path)?,
            Err(_) => {}
        }
        let listener = new()?;
        bind(&listener, &address)?;
        let socket = Socket { path: path.to_owned(), listener };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
        Ok(Self(socket))
    }

    /// Listens.
    pub fn open(self) -> io::Result<Door> {
        listen(&self.0.listener, 16)?;
        Ok(Door(self.0))
    }
}

impl Door {
    /// Makes the socket and listens.
    pub fn open(path: &Path) -> io::Result<Self> {
        ClosedDoor::new(path)?.open()
    }

    /// Lets the next process in that waits, or turns it away and says whose it was. Never waits.
    pub fn next(&self) -> Option<Result<Peer, u32>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = accept_with(&self.0.listener, flags).ok()?;
            let Ok(libc::ucred { uid, pid, .. }) = ancillary::peer(socket.as_fd()) else { continue };
            let is_let_in = uid == 0 || uid == rustix::process::geteuid().as_raw();
            if !is_let_in {
                return Some(Err(uid));
            }
            let by_number = || Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            let process = ancillary::peer_process(socket.as_fd()).ok().or_else(by_number);
            return Some(Ok(Peer { socket, pid, process }));
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.listener.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
