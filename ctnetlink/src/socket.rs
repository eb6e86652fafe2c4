//! Sockets of ctnetlink: one that hears of connections, and one for requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_sys::Socket as Netlink;
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{RecvFlags, recv};
use sluice_flow::connection::Direction;
use sluice_netdev::netlink::attribute::{Malformed, TooLong, Writer};
use sluice_netdev::netlink::message::{Answer, Header, Message, Messages, flag, write};
use socket2::SockRef;

use crate::filter;
use crate::mark::Mark;
use crate::wire::{DELETE, Entry, GET, NEW, put_all, put_change, put_name};

/// Groups of events: NEW, UPDATE and DESTROY (`NFNLGRP_CONNTRACK_*`).
const GROUPS: [u32; 3] = [1, 2, 3];
/// As large as the datagrams of a dump.
const ROOM: usize = 1 << 16;
/// How long the kernel may take to answer; it may have to load a module first.
const PATIENCE: Duration = Duration::from_secs(10);
/// Datagrams of events that are taken before the caller has its turn again.
const TURN: usize = 1024;
/// Requests in a datagram.
const BATCH: usize = 64;

/// Why ctnetlink cannot be asked or heard.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A call of the system has failed.
    #[error("ctnetlink: cannot {step}: {source}")]
    Io {
        /// What it was for.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The kernel has refused a request.
    #[error("ctnetlink: the kernel refuses to {step}: {source}")]
    Refused {
        /// What was asked for.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The kernel does not answer.
    #[error("ctnetlink: no answer to \"{step}\" within {} s", PATIENCE.as_secs())]
    Unanswered {
        /// What was asked for.
        step: &'static str,
    },
    /// An answer makes no sense.
    #[error("ctnetlink: {0}")]
    Malformed(#[from] Malformed),
    /// A request does not fit into a message.
    #[error("ctnetlink: {0}")]
    TooLong(#[from] TooLong),
}

/// What has happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is new, or something of it has changed.
    Is(Entry),
    /// It is gone.
    Gone(Direction),
    /// Of something, but nobody can read of what.
    Unreadable(Malformed),
}

/// Whether what was heard is all that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Up to now.
    All,
    /// There is more, behind what was passed on.
    More,
    /// The kernel told more than there was room for, and some is lost.
    NotAll,
}

/// Hears of connections of TCP and UDP in the network namespace that it was opened in, and in no zone of conntrack.
pub struct Events {
    netlink: Netlink,
    received: Box<[u8]>,
}

impl Events {
    /// Opens the socket, with so many bytes for what waits to be received. Connections that are not assured are not told of, nor those
    /// whose mark is not meant, as far as the kernel can see that, nor changes that `requests` asks for.
    pub fn open(requests: &Requests, mark: Mark, queue_bytes: usize) -> Result<Self, SocketError> {
        let netlink = open()?.0;
        // Beyond what the system allows everybody, if this process may do that.
        if set_socket_recv_buffer_size_force(&netlink, queue_bytes).is_err() {
            netlink.set_rx_buf_sz(queue_bytes).map_err(failed("set the receive buffer"))?;
        }
        let filter = filter::program(requests.port, mark);
        SockRef::from(&netlink).attach_filter(&filter).map_err(failed("attach a filter"))?;
        for group in GROUPS {
            netlink.add_membership(group).map_err(failed("join a multicast group"))?;
        }
        Ok(Self { netlink, received: vec![0; ROOM].into() })
    }

    /// Passes on what has come. Does not wait.
    pub fn receive(&mut self, see: &mut dyn FnMut(Event)) -> Result<Heard, SocketError> {
        for _ in 0..TURN {
            let length = match recv(&self.netlink, &mut self.received[..], RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => return Ok(Heard::All),
                Err(Errno::NOBUFS) => return Ok(Heard::NotAll),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(failed("listen")(errno.into())),
            };
            for message in Messages::new(&self.received[..length]) {
                let message = match message {
                    Ok(message) => message,
                    Err(malformed) => {
                        see(Event::Unreadable(malformed));
                        break;
                    }
                };
                event(&message).into_iter().for_each(&mut *see);
            }
        }
        Ok(Heard::More)
    }

    /// Throws away what was told so far, and forgets whether some was lost: what is asked for from now on is newer.
    pub fn discard(&mut self) -> Result<(), SocketError> {
        loop {
            match recv(&self.netlink, &mut self.received[..], RecvFlags::empty()) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(failed("listen")(errno.into())),
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netlink.as_fd()
    }
}

/// What became of changes that were asked for. Those that are in neither list were made.
#[derive(Default)]
pub struct Changed {
    /// Connections that are gone, or about to go.
    pub gone: Vec<Direction>,
    /// Connections that the kernel does not change.
    pub refused: Vec<Direction>,
}

/// Asks for connections and changes them.
pub struct Requests {
    netlink: Netlink,
    received: Box<[u8]>,
    sequence: u32,
    port: u32,
}

impl Requests {
    /// Opens the socket.
    pub fn open() -> Result<Self, SocketError> {
        let (netlink, port) = open()?;
        netlink.set_cap_ack(true).map_err(failed("ask for short acknowledgements"))?;
        Ok(Self { netlink, received: vec![0; ROOM].into(), sequence: 0, port })
    }

    /// Passes on all connections of TCP and UDP with a mark that are in no zone. Calls `meanwhile` again and again, for it takes its time.
    pub fn all(
        &mut self,
        mark: Mark,
        see: &mut dyn FnMut(Entry),
        meanwhile: &mut dyn FnMut() -> Result<(), SocketError>,
    ) -> Result<(), SocketError> {
        let step = "list connections";
        let mut datagram = Vec::new();
        self.put(&mut datagram, GET, flag::DUMP, |writer| put_all(writer, mark))?;
        self.send(step, &datagram)?;
        let mut is_done = false;
        while !is_done {
            self.answers(step, &mut |answer| {
                match answer {
                    Answer::Content(message) => {
                        Entry::read(message.payload)?.filter(is_routed).into_iter().for_each(&mut *see);
                    }
                    Answer::Done(0) => is_done = true,
                    Answer::Done(errno) => return Err(refused(step, errno)),
                    Answer::Acknowledgement(told) if told.errno != 0 => return Err(refused(step, told.errno)),
                    _ => {}
                }
                Ok(())
            })?;
            meanwhile()?;
        }
        Ok(())
    }

    /// Returns all that the kernel knows of a connection; `None` if it is gone.
    pub fn one(&mut self, original: &Direction) -> Result<Option<Entry>, SocketError> {
        let step = "look a connection up";
        let mut datagram = Vec::new();
        self.put(&mut datagram, GET, flag::ACK, |writer| put_name(writer, original))?;
        self.send(step, &datagram)?;
        let (mut found, mut is_done) = (None, false);
        while !is_done {
            self.answers(step, &mut |answer| {
                match answer {
                    Answer::Content(message) => found = Entry::read(message.payload)?,
                    Answer::Acknowledgement(told) => {
                        is_done = true;
                        return unless_gone(step, told.errno).map(drop);
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Has connections live for so long from now, where that is said, and has the kernel be liberal about their windows.
    pub fn change(&mut self, changes: &[(Direction, Option<Duration>)]) -> Result<Changed, SocketError> {
        let step = "change a connection";
        let mut changed = Changed::default();
        for some in changes.chunks(BATCH) {
            let (mut datagram, first) = (Vec::new(), self.sequence.wrapping_add(1));
            for (at, (original, timeout)) in some.iter().enumerate() {
                // Of the others only errors are answered.
                let ack = if at + 1 == some.len() { flag::ACK } else { 0 };
                self.put(&mut datagram, NEW, ack, |writer| put_change(writer, original, *timeout))?;
            }
            let last = self.sequence;
            self.send(step, &datagram)?;
            let mut is_done = false;
            while !is_done {
                self.answers(step, &mut |answer| {
                    if let Answer::Acknowledgement(told) = answer {
                        is_done |= told.sequence == last;
                        let at = told.sequence.wrapping_sub(first) as usize;
                        some.get(at).into_iter().for_each(|(original, _)| changed.note(*original, told.errno));
                    }
                    Ok(())
                })?;
            }
        }
        Ok(changed)
    }

    fn put(
        &mut self,
        datagram: &mut Vec<u8>,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), SocketError> {
        self.sequence = self.sequence.wrapping_add(1);
        let header = Header { kind, flags: flag::REQUEST | flags, sequence: self.sequence, port: 0 };
        Ok(write(datagram, header, body)?)
    }

    fn send(&self, step: &'static str, datagram: &[u8]) -> Result<(), SocketError> {
        self.netlink.send(datagram, 0).map(drop).map_err(failed(step))
    }

    /// Waits for the next datagram and passes its answers on.
    fn answers(
        &mut self,
        step: &'static str,
        see: &mut dyn FnMut(Answer<'_>) -> Result<(), SocketError>,
    ) -> Result<(), SocketError> {
        let deadline = Instant::now() + PATIENCE;
        let length = loop {
            match recv(&self.netlink, &mut self.received[..], RecvFlags::empty()) {
                Ok((length, _)) => break length,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(failed(step)(errno.into())),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(SocketError::Unanswered { step });
            }
            wait(&[self.netlink.as_fd()], left).map_err(failed(step))?;
        };
        for message in Messages::new(&self.received[..length]) {
            see(message?.answer()?)?;
        }
        Ok(())
    }
}

impl Changed {
    /// Takes what was answered about a connection: one that is refused says nothing of the others.
    fn note(&mut self, original: Direction, errno: i32) {
        const GONE: [Errno; 2] = [Errno::NOENT, Errno::TIME];
        if errno == 0 {
            return;
        }
        if GONE.iter().any(|gone| gone.raw_os_error() == errno) {
            self.gone.push(original);
        } else {
            tracing::debug!(
                ?original,
                "the kernel does not change a connection: {}",
                io::Error::from_raw_os_error(errno)
            );
            self.refused.push(original);
        }
    }
}

/// Waits until one of the sockets is readable, at most for `longest`.
pub fn wait(sockets: &[BorrowedFd<'_>], longest: Duration) -> io::Result<()> {
    let longest = Timespec::try_from(longest).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    let mut sockets: Vec<_> = sockets.iter().map(|socket| PollFd::from_borrowed_fd(*socket, PollFlags::IN)).collect();
    match poll(&mut sockets, Some(&longest)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn event(message: &Message<'_>) -> Option<Event> {
    let is_gone = match message.header.kind {
        NEW => false,
        DELETE => true,
        _ => return None,
    };
    match Entry::read(message.payload) {
        Ok(entry) => {
            let entry = entry.filter(is_routed)?;
            Some(if is_gone { Event::Gone(entry.original) } else { Event::Is(entry) })
        }
        Err(malformed) => Some(Event::Unreadable(malformed)),
    }
}

/// Whether it is in the zone of packets that are routed. Those of another one, such as of Open vSwitch, may have the same addresses and ports.
fn is_routed(entry: &Entry) -> bool {
    !entry.has_zone
}

fn open() -> Result<(Netlink, u32), SocketError> {
    let mut netlink = Netlink::new(NETLINK_NETFILTER).map_err(failed("open a socket"))?;
    let port = netlink.bind_auto().map_err(failed("bind a socket"))?.port_number();
    netlink.set_non_blocking(true).map_err(failed("not block"))?;
    Ok((netlink, port))
}

/// Returns whether the connection was gone. Fails if the request was refused for another reason.
fn unless_gone(step: &'static str, errno: i32) -> Result<bool, SocketError> {
    if errno == Errno::NOENT.raw_os_error() {
        return Ok(true);
    }
    if errno == 0 { Ok(false) } else { Err(refused(step, errno)) }
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> SocketError {
    move |source| SocketError::Io { step, source }
}

fn refused(step: &'static str, errno: i32) -> SocketError {
    SocketError::Refused { step, source: io::Error::from_raw_os_error(errno) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_refused_is_that_of_one_connection_and_one_that_dies_is_gone() {
        let connection = |port| Direction {
            source: [10, 1, 0, 2].into(),
            destination: [10, 2, 0, 2].into(),
            protocol: 6,
            source_port: port,
            destination_port: 5000,
        };
        let mut changed = Changed::default();
        for (port, errno) in [(1, None), (2, Some(Errno::NOENT)), (3, Some(Errno::TIME)), (4, Some(Errno::PERM))] {
            changed.note(connection(port), errno.map_or(0, Errno::raw_os_error));
        }
        assert_eq!(changed.gone, [connection(2), connection(3)]);
        assert_eq!(changed.refused, [connection(4)]);
    }
}
