//! A blocking rtnetlink socket, for one thread at a time, with a timeout.

use std::io;
use std::time::Duration;

use netlink_sys::Socket as Netlink;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use rustix::net::netdevice::index_to_name;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sluice_netdev::netlink::attribute::{Malformed, TooLong};
use sluice_netdev::netlink::message::{Answer, Messages, flag};

/// At least as large as the datagrams of a dump (`netlink_dump`).
const RECEIVE_BUFFER: usize = 1 << 16;
/// The socket's receive buffer: the answers to a batch in which every message asks for one.
const KERNEL_BUFFER: usize = 1 << 20;
/// A device that takes longer is given up; mlx5 firmware may take 60 s for a command.
const PATIENCE: Duration = Duration::from_secs(70);

/// Why a request could not be sent or answered.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The socket failed.
    #[error("netlink: {0}")]
    Io(#[from] io::Error),
    /// The kernel sent a malformed message.
    #[error("netlink: {0}")]
    Malformed(#[from] Malformed),
    /// A value does not fit into a message.
    #[error("netlink: {0}")]
    TooLong(#[from] TooLong),
    /// Answers were lost because the receive buffer was full.
    #[error("netlink: answers were lost")]
    Overrun,
}

impl From<Errno> for SocketError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOBUFS => Self::Overrun,
            other => Self::Io(other.into()),
        }
    }
}

impl SocketError {
    /// Whether the place where filters could be does not exist.
    pub(crate) fn is_absence(&self) -> bool {
        let Self::Io(error) = self else { return false };
        error.raw_os_error().is_some_and(is_absence)
    }

    /// Whether the kernel says of a listing that it makes no progress.
    pub(crate) fn is_standstill(&self) -> bool {
        matches!(self, Self::Io(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()))
    }
}

/// Whether an error says that a filter, or the place where it could be, does not exist. Without the queueing discipline the
/// kernel says that the request is invalid.
pub(crate) fn is_absence(errno: i32) -> bool {
    [Errno::NOENT, Errno::NODEV, Errno::INVAL].iter().any(|absence| absence.raw_os_error() == errno)
}

/// The socket.
pub(crate) struct Socket {
    netlink: Netlink,
    received: Box<[u8]>,
    sequence: u32,
    port: u32,
}

/// Whether more answers are expected.
pub(crate) enum Next {
    More,
    Enough,
}

impl Socket {
    pub(crate) fn open() -> Result<Self, SocketError> {
        let mut netlink = Netlink::new(NETLINK_ROUTE)?;
        let port = netlink.bind_auto()?.port_number();
        netlink.set_ext_ack(true)?;
        netlink.set_cap_ack(true)?;
        netlink.set_rx_buf_sz(i32::try_from(KERNEL_BUFFER).unwrap_or(i32::MAX))?;
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&netlink, which, Some(PATIENCE)).map_err(SocketError::from)?;
        }
        Ok(Self { netlink, received: vec![0; RECEIVE_BUFFER].into(), sequence: 0, port })
    }

    /// The netlink port id, by which notifications name the socket.
    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    /// The name that a device has now.
    pub(crate) fn name_of(&self, interface: u32) -> Result<String, SocketError> {
        Ok(index_to_name(&self.netlink, interface)?)
    }

    /// Reserves `count` sequence numbers, none of them 0, and returns the first.
    pub(crate) const fn sequences(&mut self, count: u32) -> u32 {
        let first = match self.sequence.checked_add(count) {
            Some(last) if last < u32::MAX => self.sequence + 1,
            _ => 1,
        };
        self.sequence = first + count - 1;
        first
    }

    pub(crate) fn send(&self, messages: &[u8]) -> Result<(), SocketError> {
        let sent = loop {
            match send(&self.netlink, messages, SendFlags::empty()) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if sent == messages.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::WriteZero).into()) }
    }

    /// Passes answers to `see` until there are enough. The flag says whether a change interfered with a dump.
    pub(crate) fn receive(
        &mut self,
        mut see: impl FnMut(Answer<'_>, bool) -> Result<Next, SocketError>,
    ) -> Result<(), SocketError> {
        loop {
            let (kept, length) = match recv(&self.netlink, &mut self.received[..], RecvFlags::TRUNC) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            if length > kept {
                return Err(SocketError::Overrun);
            }
            for message in Messages::new(&self.received[..kept]) {
                let message = message?;
                let is_interrupted = message.header.flags & flag::DUMP_INTERRUPTED != 0;
                match message.answer()? {
                    Answer::Overrun => return Err(SocketError::Overrun),
                    Answer::Noop => {}
                    answer => {
                        if matches!(see(answer, is_interrupted)?, Next::Enough) {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }
}
