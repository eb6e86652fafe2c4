//! The socket for requests. A request waits for its answer before the next is sent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_RDMA, NETLINK_ROUTE, NETLINK_XFRM};
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::error::{KernelReason, LinkError};
use crate::netlink::attribute::{Malformed, Writer};
use crate::netlink::message::{Acknowledgement, Answer, Header, Message, Messages, flag, write};

/// How long an answer may take. The kernel answers within milliseconds, but may have to load a module first.
const PATIENCE: Duration = Duration::from_secs(10);
/// At most so many times a list is read that changes while it is read.
const TRIES: u32 = 16;
/// More than the kernel puts into one datagram of a list (`NLMSG_GOODSIZE`, 32 KiB at most).
pub(crate) const ROOM: usize = 1 << 16;

/// A socket for requests about links, in the network namespace of the thread that opened it.
pub struct Control {
    socket: Socket,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Control {
    /// Opens a socket of rtnetlink.
    pub fn open() -> Result<Self, LinkError> {
        Self::to(NETLINK_ROUTE)
    }

    /// Opens a socket of generic netlink.
    pub(crate) fn generic() -> Result<Self, LinkError> {
        Self::to(NETLINK_GENERIC)
    }

    /// Opens a socket for IPsec.
    pub(crate) fn ipsec() -> Result<Self, LinkError> {
        Self::to(NETLINK_XFRM)
    }

    /// Opens a socket for RDMA devices.
    pub(crate) fn rdma() -> Result<Self, LinkError> {
        Self::to(NETLINK_RDMA)
    }

    /// Opens a socket for requests that nobody takes.
    #[cfg(test)]
    pub(crate) fn to_nobody() -> Result<Self, LinkError> {
        Self::to(netlink_sys::protocols::NETLINK_USERSOCK)
    }

    fn to(protocol: isize) -> Result<Self, LinkError> {
        let failed = |step| move |source| LinkError::Socket { step, source };
        let mut socket = Socket::new(protocol).map_err(failed("open"))?;
        let port = socket.bind_auto().map_err(failed("bind"))?.port_number();
        socket.set_non_blocking(true).map_err(failed("do not block"))?;
        socket.set_ext_ack(true).map_err(failed("ask for reasons"))?;
        socket.set_cap_ack(true).map_err(failed("ask for short acknowledgements"))?;
        socket.set_netlink_get_strict_chk(true).map_err(failed("ask for strict checks"))?;
        Ok(Self { socket, port, sequence: 0, buffer: vec![0; ROOM] })
    }

    /// The number by which notifications name the socket that asked for a change.
    pub const fn port(&self) -> u32 {
        self.port
    }

    /// Sends a request and waits until the kernel has acknowledged it. Messages that come before the acknowledgement go to `each`.
    pub(crate) fn request(
        &mut self,
        request: &'static str,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Writer<'_>),
        mut each: impl FnMut(&Message<'_>) -> Result<(), Malformed>,
    ) -> Result<(), LinkError> {
        self.send(request, kind, flags | flag::ACK, body)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let length = self.receive(request, deadline)?;
            for answer in answers(&self.buffer[..length], self.sequence) {
                match answer.map_err(malformed(request))? {
                    (_, Answer::Acknowledgement(done)) if done.errno == 0 => return Ok(()),
                    (_, Answer::Acknowledgement(no)) => {
                        return Err(LinkError::Refused { request, reason: KernelReason::new(&no) });
                    }
                    (_, Answer::Content(message)) => each(&message).map_err(malformed(request))?,
                    (_, Answer::Done(_) | Answer::Overrun | Answer::Noop) => {}
                }
            }
        }
    }

    /// Reads a list as it was at one moment: one that changed meanwhile (`NLM_F_DUMP_INTR`) is read again from the start. `each`
    /// adds an entry.
    pub(crate) fn dump<T: Default>(
        &mut self,
        request: &'static str,
        kind: u16,
        body: impl Fn(&mut Writer<'_>),
        each: impl Fn(&mut T, &Message<'_>) -> Result<(), Malformed>,
    ) -> Result<T, LinkError> {
        for _ in 0..TRIES {
            self.send(request, kind, flag::DUMP, &body)?;
            let mut found = T::default();
            if self.read_list(request, |message| each(&mut found, message))? {
                return Ok(found);
            }
        }
        Err(LinkError::Unsteady { request, times: TRIES })
    }

    /// Returns whether the list was whole.
    fn read_list(
        &mut self,
        request: &'static str,
        mut each: impl FnMut(&Message<'_>) -> Result<(), Malformed>,
    ) -> Result<bool, LinkError> {
        let mut is_whole = true;
        loop {
            // Each part has its own time: a list may be long.
            let length = self.receive(request, Instant::now() + PATIENCE)?;
            for answer in answers(&self.buffer[..length], self.sequence) {
                let (header, answer) = answer.map_err(malformed(request))?;
                is_whole &= header.flags & flag::DUMP_INTERRUPTED == 0;
                match answer {
                    Answer::Content(message) => each(&message).map_err(malformed(request))?,
                    Answer::Done(0) => return Ok(is_whole),
                    Answer::Done(errno) => {
                        let no = Acknowledgement { errno, ..Acknowledgement::default() };
                        return Err(LinkError::Refused { request, reason: KernelReason::new(&no) });
                    }
                    Answer::Acknowledgement(no) if no.errno != 0 => {
                        return Err(LinkError::Refused { request, reason: KernelReason::new(&no) });
                    }
                    Answer::Acknowledgement(_) | Answer::Overrun | Answer::Noop => {}
                }
            }
        }
    }

    fn send(
        &mut self,
        request: &'static str,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), LinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let header = Header { kind, flags: flag::REQUEST | flags, sequence: self.sequence, port: 0 };
        let mut message = vec![];
        write(&mut message, header, body).map_err(|source| LinkError::TooLong { request, source })?;
        let sent = self.socket.send_to(&message, &SocketAddr::new(0, 0), 0);
        sent.map(drop).map_err(|source| LinkError::Socket { step: request, source })
    }

    /// Waits for the next datagram, puts it at the start of the buffer, and returns its length.
    fn receive(&mut self, request: &'static str, deadline: Instant) -> Result<usize, LinkError> {
        let failed = |errno: Errno| LinkError::Socket { step: request, source: errno.into() };
        loop {
            match receive(&self.socket, &mut self.buffer) {
                Ok(Some(length)) => return Ok(length),
                Ok(None) => {}
                Err(error) => return Err(LinkError::Socket { step: request, source: error }),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LinkError::Unanswered { request, after: PATIENCE });
            }
            wait(&[self.socket.as_fd()], left).map_err(failed)?;
        }
    }
}

/// The answers in a datagram to the request with this sequence number.
fn answers(datagram: &[u8], sequence: u32) -> impl Iterator<Item = Result<(Header, Answer<'_>), Malformed>> {
    Messages::new(datagram).filter_map(move |message| match message {
        Ok(message) if message.header.sequence != sequence => None,
        Ok(message) => Some(message.answer().map(|answer| (message.header, answer))),
        Err(error) => Some(Err(error)),
    })
}

fn malformed(request: &'static str) -> impl Fn(Malformed) -> LinkError {
    move |source| LinkError::Malformed { request, source }
}

/// Puts the next datagram, if there is one, at the start of the buffer, which grows if need be. Returns its length.
pub(crate) fn receive(socket: &impl AsFd, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        // With room for nothing the kernel tells the length and keeps the datagram.
        let peeked = recv(socket, &mut [0u8; 0][..], RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT);
        let result = peeked.and_then(|(_, length)| {
            if length > buffer.len() {
                buffer.resize(length, 0);
            }
            recv(socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT)
        });
        match result {
            Ok((length, _)) => return Ok(Some(length)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits until one of the sockets is readable, at most for `longest`.
pub(crate) fn wait(sockets: &[BorrowedFd<'_>], longest: Duration) -> Result<(), Errno> {
    let longest = Timespec::try_from(longest).map_err(|_| Errno::INVAL)?;
    let mut sockets: Vec<_> = sockets.iter().map(|socket| PollFd::from_borrowed_fd(*socket, PollFlags::IN)).collect();
    match poll(&mut sockets, Some(&longest)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
