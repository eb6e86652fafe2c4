//! The agent's socket, at which the library in ovs-vswitchd asks for the memory.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::door::{Door, Peer};
use crate::memory::Refusal;
use crate::protocol::{Message, Received, receive, send};
use crate::publisher::Publisher;

/// Where the library looks for the agent unless `SLUICE_OVS_FEEDBACK` in its environment names another place.
pub const SOCKET: &str = "/run/sluice/ovs-feedback.sock";

/// At most so many processes have the memory: one more takes the place of the oldest.
const MAX_PEERS: usize = 8;
/// At most so many connections are accepted, and messages of each of them received, at a time: the rest waits for the next.
const MAX_AT_ONCE: usize = 16;

/// What happened at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process was turned away: its user is neither root nor the agent's own.
    Denied {
        /// Its user.
        uid: u32,
    },
    /// A process asked for the memory and was sent it.
    Asked {
        /// Its number.
        pid: i32,
        /// What became of a memory that it had from an earlier agent, if it had one.
        offered: Option<Offered>,
    },
    /// The library uses the memory.
    Taken {
        /// Its process.
        pid: i32,
        /// It tells of meters there.
        tells_meters: bool,
    },
    /// The library does not use it, and says why; or a number that is not known.
    Refused {
        /// Its process.
        pid: i32,
        /// Why.
        why: Option<Refusal>,
    },
    /// A process said what makes no sense, and was turned away.
    Garbage {
        /// Its number.
        pid: i32,
    },
    /// A process is gone.
    Gone {
        /// Its number.
        pid: i32,
    },
}

/// What became of a memory that a library had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The publisher goes on in it.
    Adopted,
    /// It was of another capacity, or the publisher's own is in use: what was in it is in the publisher's.
    Copied,
    /// It was not touched.
    Refused(Refusal),
}

/// Hands the memory of a [`Publisher`] over, and takes that of an earlier one back.
///
/// Who is let in can make OVS count wrongly, and the device limit meters wrongly, and is as trusted in that as ovs-vswitchd itself; it cannot
/// make the agent forward anything.
pub struct Handover {
    door: Door,
    peers: Vec<Reader>,
}

/// A process that asks for the memory.
struct Reader {
    peer: Peer,
    /// Its library says so.
    tells_meters: bool,
    /// It uses the memory.
    has_taken: bool,
}

impl Handover {
    /// Nobody has come yet.
    pub const fn at(door: Door) -> Self {
        Self { door, peers: Vec::new() }
    }

    /// Listens. A socket that nobody listens at any more is replaced.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self::at(Door::open(path)?))
    }

    /// Waits until somebody wants something, at most so long; says whether somebody does.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let sockets = self.peers.iter().map(|reader| reader.peer.socket.as_fd()).chain([self.door.as_fd()]);
        let mut sockets: Vec<_> = sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
        match poll(&mut sockets, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Does what is wanted, and says what that was. Never waits, and may be called as often as once in a tick of 100 ms.
    ///
    /// A memory that is offered is looked through: about 20 ms for 200,000 flows, once after a start of the agent.
    pub fn serve(&mut self, publisher: &mut Publisher) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..MAX_AT_ONCE {
            match self.door.next() {
                Some(Ok(peer)) => self.peers.push(Reader { peer, tells_meters: false, has_taken: false }),
                Some(Err(uid)) => events.push(Event::Denied { uid }),
                None => break,
            }
            if self.peers.len() > MAX_PEERS {
                events.push(Event::Gone { pid: self.peers.remove(0).peer.pid });
            }
        }
        self.peers.retain_mut(|reader| reader.serve(publisher, &mut events));
        events
    }

    /// How many processes are connected.
    pub fn connected(&self) -> usize {
        self.peers.len()
    }

    /// Whether a process tells of meters in the memory. `None` if one may, and has not said yet whether it uses the memory.
    pub fn tells_meters(&self) -> Option<bool> {
        let tellers = || self.peers.iter().filter(|reader| reader.tells_meters);
        let is_told = tellers().any(|reader| reader.has_taken);
        (is_told || tellers().next().is_none()).then_some(is_told)
    }
}

impl Reader {
    /// Returns whether it is still there.
    fn serve(&mut self, publisher: &mut Publisher, events: &mut Vec<Event>) -> bool {
        let Peer { socket, pid, .. } = &self.peer;
        let pid = *pid;
        for _ in 0..MAX_AT_ONCE {
            match receive(socket) {
                Received::Nothing => return true,
                Received::End => {
                    events.push(Event::Gone { pid });
                    return false;
                }
                Received::Message(Message::Hello { tells_meters }, file) => {
                    self.tells_meters = tells_meters;
                    let offered = file.map(|file| match publisher.adopt(file) {
                        Ok(true) => Offered::Adopted,
                        Ok(false) => Offered::Copied,
                        Err(refusal) => Offered::Refused(refusal),
                    });
                    if !send(socket, Message::Memory, Some(publisher.share())) {
                        events.push(Event::Gone { pid });
                        return false;
                    }
                    events.push(Event::Asked { pid, offered });
                }
                Received::Message(Message::Taken, _) => {
                    self.has_taken = true;
                    events.push(Event::Taken { pid, tells_meters: self.tells_meters });
                }
                Received::Message(Message::Refused(why), _) => {
                    self.tells_meters = false;
                    events.push(Event::Refused { pid, why: Refusal::of(why) });
                }
                Received::Message(Message::Memory, _) | Received::Garbage => {
                    events.push(Event::Garbage { pid });
                    return false;
                }
            }
        }
        true
    }
}
