//! Who may use the control socket.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use tokio::net::UnixStream;

/// The process at the other end of a control connection, as the kernel vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its process id; 0 outside of this process' PID namespace, as all of the node are to an agent in a pod.
    pub pid: i32,
}

impl Peer {
    /// This process itself, for commands that are run without a socket.
    pub fn own() -> Self {
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw(), pid: rustix::process::getpid().as_raw_nonzero().get() }
    }

    /// Its groups. The kernel vouches for the primary one alone; the others are in the status of the process, and those of a process
    /// without an id are not known.
    pub fn groups(&self) -> Vec<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
        let further = line.split_whitespace().filter_map(|group| group.parse().ok());
        std::iter::once(self.gid).chain(further).collect()
    }

    /// The process that connected a socket.
    pub fn of(socket: &UnixStream) -> io::Result<Self> {
        // Not rustix's, which has no place for an id of 0.
        let credentials = socket.peer_cred()?;
        Ok(Self { uid: credentials.uid(), gid: credentials.gid(), pid: credentials.pid().unwrap_or(0) })
    }
}

/// The rule of who is let in: root, the daemon's own user, and members of one group. The mode of the socket file comes on top of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The daemon's user.
    pub uid: u32,
    /// The group whose members are let in.
    pub gid: u32,
}

impl Admission {
    /// Lets in who is in `group`, or in the daemon's own group if none is given.
    pub fn new(group: Option<u32>) -> Self {
        Self { uid: geteuid().as_raw(), gid: group.unwrap_or_else(|| getegid().as_raw()) }
    }

    /// Whether the peer is root or the daemon's own user, for whom places are kept.
    pub(super) const fn is_reserved_for(self, peer: Peer) -> bool {
        peer.uid == 0 || peer.uid == self.uid
    }

    /// Lets the peer in or says why not.
    pub fn check(self, peer: Peer) -> Result<(), String> {
        if self.is_reserved_for(peer) || peer.gid == self.gid || peer.groups().contains(&self.gid) {
            return Ok(());
        }
        Err(format!(
            "permission denied: uid {} is neither root nor uid {}, nor in group {}",
            peer.uid,
            self.uid,
            group_name(self.gid)
        ))
    }
}

/// Why a group cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The group file cannot be read.
    #[error("cannot read {GROUPS}: {0}")]
    Read(#[from] io::Error),
    /// There is no such group.
    #[error("there is no group \"{0}\"")]
    NoGroup(String),
}

/// The id of a group that is given by name or number.
pub fn group_id(group: &str) -> Result<u32, PeerError> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    let file = fs::read_to_string(GROUPS)?;
    groups(&file)
        .find_map(|(name, id)| (name == group).then_some(id))
        .ok_or_else(|| PeerError::NoGroup(group.to_owned()))
}

const GROUPS: &str = "/etc/group";

/// Names and ids of a group file: `name:password:id:members`.
fn groups(file: &str) -> impl Iterator<Item = (&str, u32)> {
    file.lines().filter_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        let id = parts.nth(1)?.parse().ok()?;
        Some((name, id))
    })
}

fn group_name(gid: u32) -> String {
    let file = fs::read_to_string(GROUPS).unwrap_or_default();
    let name = groups(&file).find_map(|(name, id)| (id == gid).then(|| name.to_owned()));
    name.unwrap_or_else(|| gid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Peer = Peer { uid: 65534, gid: 65534, pid: 0 };

    #[test]
    fn root_the_own_user_and_the_group_are_let_in() {
        let admission = Admission { uid: 100, gid: 200 };
        assert!(admission.check(Peer { uid: 0, ..NOBODY }).is_ok());
        assert!(admission.check(Peer { uid: 100, ..NOBODY }).is_ok());
        assert!(admission.check(Peer { gid: 200, ..NOBODY }).is_ok());
        assert_eq!(
            admission.check(NOBODY).unwrap_err(),
            "permission denied: uid 65534 is neither root nor uid 100, nor in group 200"
        );
    }

    #[test]
    fn groups_are_found_by_name_and_number() {
        assert_eq!(group_id("root").unwrap(), 0);
        assert_eq!(group_id("4711").unwrap(), 4711);
        assert!(matches!(group_id("no such group"), Err(PeerError::NoGroup(_))));
    }
}
