//! A socket of ctnetlink: requests, listings and events.

use std::io;
use std::time::Duration;

use netlink_sys::Socket as Netlink;
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sluice_netdev::netlink::message::{Answer, Header, Message, Messages, flag, write};

use super::message::{self, GET};
use super::source::SourceError;

/// Room for events in the kernel: some ten thousand.
const KERNEL_BUFFER: usize = 8 << 20;
/// As large as the datagrams of a dump.
const RECEIVE_BUFFER: usize = 1 << 16;
/// How long the kernel may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Socket {
    netlink: Netlink,
    received: Box<[u8]>,
    sequence: u32,
}

/// Requests of a batch that the kernel refused.
#[derive(Default)]
pub(super) struct Refused {
    /// Because the connection was gone.
    pub(super) gone: usize,
    /// The first other error number; 0 if there was none.
    errno: i32,
}

impl Refused {
    /// Fails if a request was refused for another reason than that its connection was gone.
    pub(super) fn unless_gone(&self) -> Result<(), SourceError> {
        if self.errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(self.errno).into()) }
    }

    fn note(&mut self, errno: i32) {
        const ENOENT: i32 = 2;
        match errno {
            0 => {}
            ENOENT => self.gone += 1,
            errno if self.errno == 0 => self.errno = errno,
            _ => {}
        }
    }
}

impl Socket {
    pub(super) fn open() -> Result<Self, SourceError> {
        let mut netlink = Netlink::new(NETLINK_NETFILTER)?;
        netlink.bind_auto()?;
        netlink.set_cap_ack(true)?;
        // Beyond what the system allows everybody, if this process may do that.
        if set_socket_recv_buffer_size_force(&netlink, KERNEL_BUFFER).is_err() {
            netlink.set_rx_buf_sz(KERNEL_BUFFER)?;
        }
        Ok(Self { netlink, received: vec![0; RECEIVE_BUFFER].into(), sequence: 0 })
    }

    /// Has events of a group come.
    pub(super) fn listen_to(&mut self, group: u32) -> Result<(), SourceError> {
        Ok(self.netlink.add_membership(group)?)
    }

    /// Sends requests, of which the last is answered in any case, and passes on what comes. Returns which of them failed.
    pub(super) fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        payloads: impl IntoIterator<Item = Vec<u8>>,
        see: &mut dyn FnMut(&[u8]) -> Result<(), SourceError>,
    ) -> Result<Refused, SourceError> {
        let mut datagram = Vec::new();
        let mut payloads = payloads.into_iter().peekable();
        while let Some(payload) = payloads.next() {
            let ack = if payloads.peek().is_none() { flag::ACK } else { 0 };
            self.put(&mut datagram, kind, flags | ack, &payload)?;
        }
        let last = self.sequence;
        self.send(&datagram)?;
        let (mut refused, mut is_done) = (Refused::default(), false);
        while !is_done {
            let is_there = self.receive(Some(PATIENCE), &mut |message| {
                match message.answer().map_err(|error| SourceError::Failed(error.to_string()))? {
                    Answer::Content(content) => see(content.payload)?,
                    Answer::Acknowledgement(told) => {
                        refused.note(told.errno);
                        is_done |= told.sequence == last;
                    }
                    _ => {}
                }
                Ok(())
            })?;
            if !is_there {
                return Err(SourceError::Failed("ctnetlink does not answer".to_owned()));
            }
        }
        Ok(refused)
    }

    /// Passes all connections on.
    pub(super) fn dump(&mut self, see: &mut dyn FnMut(&[u8]) -> Result<(), SourceError>) -> Result<(), SourceError> {
        let mut datagram = Vec::new();
        self.put(&mut datagram, GET, flag::DUMP, &message::all())?;
        self.send(&datagram)?;
        let mut is_done = false;
        while !is_done {
            let is_there = self.receive(Some(PATIENCE), &mut |message| {
                match message.answer().map_err(|error| SourceError::Failed(error.to_string()))? {
                    Answer::Content(content) => see(content.payload)?,
                    Answer::Done(0) => is_done = true,
                    Answer::Done(errno) => return Err(io::Error::from_raw_os_error(errno).into()),
                    Answer::Acknowledgement(told) if told.errno != 0 => {
                        return Err(io::Error::from_raw_os_error(told.errno).into());
                    }
                    _ => {}
                }
                Ok(())
            })?;
            if !is_there {
                return Err(SourceError::Failed("ctnetlink does not answer".to_owned()));
            }
        }
        Ok(())
    }

    fn put(&mut self, datagram: &mut Vec<u8>, kind: u16, flags: u16, payload: &[u8]) -> Result<(), SourceError> {
        self.sequence = self.sequence.wrapping_add(1);
        // The last attribute of the message before may end anywhere (`NLMSG_ALIGN`).
        datagram.resize(datagram.len().next_multiple_of(4), 0);
        let header = Header { kind, flags: flag::REQUEST | flags, sequence: self.sequence, port: 0 };
        write(datagram, header, |writer| writer.raw(payload)).map_err(|error| SourceError::Failed(error.to_string()))
    }

    fn send(&self, datagram: &[u8]) -> Result<(), SourceError> {
        match send(&self.netlink, datagram, SendFlags::empty()) {
            Ok(_) => Ok(()),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Passes the messages of a datagram on, for which it waits at most `patience`, or not at all. Returns whether there was one.
    pub(super) fn receive(
        &mut self,
        patience: Option<Duration>,
        see: &mut dyn FnMut(Message<'_>) -> Result<(), SourceError>,
    ) -> Result<bool, SourceError> {
        let flags = if patience.is_none() { RecvFlags::TRUNC | RecvFlags::DONTWAIT } else { RecvFlags::TRUNC };
        if patience.is_some() {
            set_socket_timeout(&self.netlink, Timeout::Recv, patience).map_err(io::Error::from)?;
        }
        let (kept, length) = loop {
            match recv(&self.netlink, &mut self.received[..], flags) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        };
        if length > kept {
            return Err(SourceError::Lost);
        }
        for message in Messages::new(&self.received[..kept]) {
            see(message.map_err(|error| SourceError::Failed(error.to_string()))?)?;
        }
        Ok(true)
    }

    /// Throws away what has come so far, and forgets whether some was lost: the kernel tells of no other loss before all is received.
    pub(super) fn discard(&mut self) -> Result<(), SourceError> {
        loop {
            match recv(&self.netlink, &mut self.received[..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }
}
