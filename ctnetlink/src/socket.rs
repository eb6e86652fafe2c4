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
use sluice_flow::connection::Connection;
use sluice_netdev::netlink::attribute::{Malformed, TooLong, Writer};
use sluice_netdev::netlink::message::{Answer, Header, Message, Messages, flag, write};
use socket2::{SockFilter, SockRef};

use crate::mark::Mark;
use crate::wire::{DELETE, GET, NEW, Name, Told, put_all, put_change, put_name, put_this};

/// Groups of events: NEW, UPDATE and DESTROY (`NFNLGRP_CONNTRACK_*`).
const GROUPS: [u32; 3] = [1, 2, 3];
/// As large as the datagrams of a dump.
const ROOM: usize = 1 << 16;
/// How long the kernel may take to answer; it may have to load a module first.
const PATIENCE: Duration = Duration::from_secs(10);
/// Datagrams of events that are taken before the caller has its turn again.
const TURN: usize = 1024;
/// Requests in a datagram.
pub const BATCH: usize = 64;
/// Room for the answers to them in the kernel, at most about 1,500 bytes each there.
const ANSWERS_BYTES: usize = 1 << 18;

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
pub struct Event {
    /// What is told of it.
    pub told: Told,
    /// Whether it is gone. Else it is new, or something of it has changed.
    pub is_gone: bool,
    /// Whether a packet has brought it about, and nobody's request: how long it is kept is told as of that packet.
    pub is_of_packet: bool,
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

/// Hears of connections in the network namespace that it was opened in.
pub struct Events {
    netlink: Netlink,
    received: Box<[u8]>,
}

impl Events {
    /// Opens the socket, with so many bytes for what waits to be received. Only what the filter lets in comes; without a filter, all does.
    pub fn open(queue_bytes: usize, filter: &[SockFilter]) -> Result<Self, SocketError> {
        let netlink = open(queue_bytes)?.0;
        if !filter.is_empty() {
            SockRef::from(&netlink).attach_filter(filter).map_err(failed("attach a filter"))?;
        }
        for group in GROUPS {
            netlink.add_membership(group).map_err(failed("join a multicast group"))?;
        }
        Ok(Self { netlink, received: vec![0; ROOM].into() })
    }

    /// Passes on what has come. Does not wait.
    pub fn receive(&mut self, see: &mut dyn FnMut(Result<Event, Malformed>)) -> Result<Heard, SocketError> {
        for _ in 0..TURN {
            let length = match recv(&self.netlink, &mut self.received[..], RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => return Ok(Heard::All),
                Err(Errno::NOBUFS) => return Ok(Heard::NotAll),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(failed("listen")(errno.into())),
            };
            for message in Messages::new(&self.received[..length]) {
                match message {
                    Ok(message) => event(&message).into_iter().for_each(&mut *see),
                    Err(malformed) => see(Err(malformed)),
                }
            }
        }
        Ok(Heard::More)
    }

    /// Throws away what was told so far, and forgets whether some was lost: what is asked for from now on is newer. The kernel tells of no
    /// other loss before all is received.
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
    pub gone: Vec<Name>,
    /// Connections that the kernel does not change.
    pub refused: Vec<Name>,
}

/// Asks for connections, changes and removes them.
pub struct Requests {
    netlink: Netlink,
    received: Box<[u8]>,
    sequence: u32,
    port: u32,
}

impl Requests {
    /// Opens the socket.
    pub fn open() -> Result<Self, SocketError> {
        let (netlink, port) = open(ANSWERS_BYTES)?;
        netlink.set_cap_ack(true).map_err(failed("ask for short acknowledgements"))?;
        Ok(Self { netlink, received: vec![0; ROOM].into(), sequence: 0, port })
    }

    /// The number of the socket, by which the kernel says who has changed something.
    pub const fn port(&self) -> u32 {
        self.port
    }

    /// Passes on all connections with a mark. Calls `meanwhile` again and again, for it takes its time.
    pub fn all(
        &mut self,
        mark: Mark,
        see: &mut dyn FnMut(Told),
        meanwhile: &mut dyn FnMut() -> Result<(), SocketError>,
    ) -> Result<(), SocketError> {
        let step = "list connections";
        let mut datagram = Vec::new();
        let first = self.put(&mut datagram, GET, flag::DUMP, |writer| put_all(writer, mark))?;
        self.send(step, &datagram)?;
        let mut is_done = false;
        while !is_done {
            self.answers(step, first, &mut |answer| {
                match answer {
                    Answer::Content(message) => see(Told::read(message.payload)?),
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

    /// Returns all that the kernel knows of connections, without those that are gone.
    pub fn some(&mut self, names: &[Name]) -> Result<Vec<Told>, SocketError> {
        let (step, mut found) = ("look a connection up", Vec::new());
        let refused = self.ask(step, GET, names, put_name, &mut |told| found.push(told))?;
        unless_gone(step, &refused)?;
        Ok(found)
    }

    /// Has connections live for so long from now, where that is said, and has the kernel be liberal about their windows.
    pub fn change(&mut self, changes: &[(Name, Option<Duration>)]) -> Result<Changed, SocketError> {
        let put =
            |writer: &mut Writer<'_>, (name, timeout): &(Name, Option<Duration>)| put_change(writer, name, *timeout);
        let refused = self.ask("change a connection", NEW, changes, put, &mut drop)?;
        let mut changed = Changed::default();
        refused.into_iter().for_each(|(at, errno)| changed.note(changes[at].0, errno));
        Ok(changed)
    }

    /// Removes connections, but no later ones of the same names.
    ///
    /// # Errors
    /// Fails also if only one of them cannot be removed.
    pub fn remove(&mut self, connections: &[Connection]) -> Result<(), SocketError> {
        let step = "remove a connection";
        let refused = self.ask(step, DELETE, connections, put_this, &mut drop)?;
        unless_gone(step, &refused)
    }

    /// Sends a request about each of `all`, several in a datagram, and passes on the connections that are answered. Returns which requests are
    /// refused, and with what number.
    fn ask<T>(
        &mut self,
        step: &'static str,
        kind: u16,
        all: &[T],
        body: impl Fn(&mut Writer<'_>, &T),
        see: &mut dyn FnMut(Told),
    ) -> Result<Vec<(usize, i32)>, SocketError> {
        let mut refused = Vec::new();
        for (batch, some) in all.chunks(BATCH).enumerate() {
            let (mut datagram, first) = (Vec::new(), self.sequence.wrapping_add(1));
            for (at, one) in some.iter().enumerate() {
                // Of the others only errors are answered, if they ask for nothing.
                let ack = if at + 1 == some.len() { flag::ACK } else { 0 };
                self.put(&mut datagram, kind, ack, |writer| body(writer, one))?;
            }
            self.send(step, &datagram)?;
            let (last, mut is_done) = (self.sequence, false);
            while !is_done {
                self.answers(step, first, &mut |answer| {
                    match answer {
                        Answer::Content(message) => see(Told::read(message.payload)?),
                        Answer::Acknowledgement(told) => {
                            is_done |= told.sequence == last;
                            if told.errno != 0 {
                                refused.push((batch * BATCH + told.sequence.wrapping_sub(first) as usize, told.errno));
                            }
                        }
                        _ => {}
                    }
                    Ok(())
                })?;
            }
        }
        Ok(refused)
    }

    /// Adds a request to a datagram. Returns its number.
    fn put(
        &mut self,
        datagram: &mut Vec<u8>,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<u32, SocketError> {
        self.sequence = self.sequence.wrapping_add(1);
        let header = Header { kind, flags: flag::REQUEST | flags, sequence: self.sequence, port: 0 };
        write(datagram, header, body)?;
        Ok(self.sequence)
    }

    fn send(&self, step: &'static str, datagram: &[u8]) -> Result<(), SocketError> {
        self.netlink.send(datagram, 0).map(drop).map_err(failed(step))
    }

    /// Waits for the next datagram and passes on what answers the requests from `first` on.
    fn answers(
        &mut self,
        step: &'static str,
        first: u32,
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
        read_answers(&self.received[..length], first, self.sequence, see)
    }
}

/// Passes on what in a datagram answers the requests with these numbers. Whoever has asked something before has given up in the middle of it.
fn read_answers(
    datagram: &[u8],
    first: u32,
    last: u32,
    see: &mut dyn FnMut(Answer<'_>) -> Result<(), SocketError>,
) -> Result<(), SocketError> {
    for message in Messages::new(datagram) {
        let message = message?;
        if message.header.sequence.wrapping_sub(first) <= last.wrapping_sub(first) {
            see(message.answer()?)?;
        }
    }
    Ok(())
}

impl Changed {
    /// Takes what was answered about a connection: one that is refused says nothing of the others.
    fn note(&mut self, name: Name, errno: i32) {
        if is_gone(errno) {
            self.gone.push(name);
        } else {
            tracing::debug!(?name, "the kernel does not change a connection: {}", io::Error::from_raw_os_error(errno));
            self.refused.push(name);
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

fn event(message: &Message<'_>) -> Option<Result<Event, Malformed>> {
    let is_gone = match message.header.kind {
        NEW => false,
        DELETE => true,
        _ => return None,
    };
    // The kernel names the socket by which a change was asked for.
    let is_of_packet = message.header.port == 0;
    Some(Told::read(message.payload).map(|told| Event { told, is_gone, is_of_packet }))
}

/// Opens a socket with so many bytes for what waits to be received, and returns its number.
fn open(queue_bytes: usize) -> Result<(Netlink, u32), SocketError> {
    let mut netlink = Netlink::new(NETLINK_NETFILTER).map_err(failed("open a socket"))?;
    let port = netlink.bind_auto().map_err(failed("bind a socket"))?.port_number();
    netlink.set_non_blocking(true).map_err(failed("not block"))?;
    // Beyond what the system allows everybody, if this process may do that.
    if set_socket_recv_buffer_size_force(&netlink, queue_bytes).is_err() {
        netlink.set_rx_buf_sz(queue_bytes).map_err(failed("set the receive buffer"))?;
    }
    Ok((netlink, port))
}

/// Whether a request was refused because its connection is gone, or about to go.
fn is_gone(errno: i32) -> bool {
    [Errno::NOENT, Errno::TIME].iter().any(|gone| gone.raw_os_error() == errno)
}

/// Fails if a request was refused for another reason than that its connection is gone.
fn unless_gone(step: &'static str, refusals: &[(usize, i32)]) -> Result<(), SocketError> {
    let trouble = refusals.iter().find(|(_, errno)| !is_gone(*errno));
    trouble.map_or(Ok(()), |(_, errno)| Err(refused(step, *errno)))
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
    use sluice_flow::connection::Direction;

    #[test]
    fn a_change_that_is_refused_is_that_of_one_connection_and_one_that_dies_is_gone() {
        let connection = |port| Name {
            zone: 0,
            original: Direction {
                source: [10, 1, 0, 2].into(),
                destination: [10, 2, 0, 2].into(),
                protocol: 6,
                source_port: port,
                destination_port: 5000,
            },
        };
        let mut changed = Changed::default();
        for (port, errno) in [(2, Errno::NOENT), (3, Errno::TIME), (4, Errno::PERM)] {
            changed.note(connection(port), errno.raw_os_error());
        }
        assert_eq!(changed.gone, [connection(2), connection(3)]);
        assert_eq!(changed.refused, [connection(4)]);
    }

    #[test]
    fn an_answer_to_a_request_of_before_is_none_to_this_one() {
        let mut datagram = Vec::new();
        for sequence in [7, 8, 9, 10] {
            // `NLMSG_DONE`, of a dump that went well.
            let header = Header { kind: 3, flags: 0, sequence, port: 1 };
            write(&mut datagram, header, |writer| writer.raw(&[0; 4])).unwrap();
        }
        let count = |first, last| {
            let mut count = 0;
            let done = read_answers(&datagram, first, last, &mut |answer| {
                count += usize::from(answer == Answer::Done(0));
                Ok(())
            });
            done.map(|()| count).unwrap()
        };
        assert_eq!(count(7, 10), 4);
        assert_eq!(count(8, 9), 2);
        assert_eq!(count(10, 10), 1);
        // Numbers begin again.
        assert_eq!(count(u32::MAX, 8), 2);
    }
}
