//! What the kernel tells of datapaths, ports and flows as they change. Listening needs no privileges.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink_sys::Socket as Netlink;
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{RecvFlags, recv};
use sluice_netdev::netlink::message::Messages;

use crate::families::Families;
use crate::kernel::{Kernel, KernelError};

/// Larger than any notification, which tells of one flow: actions alone may be as long as an attribute is, 64 KiB.
const RECEIVE_BUFFER: usize = 1 << 17;
/// Datagrams that are taken before the caller has its turn again.
const TURN: usize = 1024;

/// A socket that hears of changes: from the kernel, in the network namespace that it was opened in, or from a program that tells of its own
/// datapath in the kernel's messages.
pub struct Listener {
    socket: Box<dyn AsFd + Send>,
    received: Box<[u8]>,
    families: Families,
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification<'a> {
    /// Of a datapath: behind the header of netlink, for [`Datapath::read`](crate::wire::Datapath::read).
    Datapath(Change, &'a [u8]),
    /// Of a port, for [`Vport::read`](crate::wire::Vport::read).
    Vport(Change, &'a [u8]),
    /// Of a flow, for [`FlowMessage::read`](crate::wire::FlowMessage::read).
    Flow(Change, &'a [u8]),
    /// Of a meter, for [`read_meter`](crate::wire::read_meter); one that is gone for [`read_meter_id`](crate::wire::read_meter_id).
    Meter(Change, &'a [u8]),
}

impl Notification<'_> {
    /// The change that it tells of.
    pub const fn change(&self) -> Change {
        match self {
            Self::Datapath(change, _) | Self::Vport(change, _) | Self::Flow(change, _) | Self::Meter(change, _) => {
                *change
            }
        }
    }
}

/// What became of it (`OVS_FLOW_CMD_NEW` and so on; datapaths and ports have the same numbers, and meters `OVS_METER_CMD_SET` and `_DEL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new, or was put again.
    New,
    /// It was changed.
    Set,
    /// It is gone.
    Deleted,
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

impl Listener {
    /// Opens the socket, with so many bytes for what waits to be received.
    pub fn open(kernel: &Kernel, queue_bytes: usize) -> Result<Self, KernelError> {
        let families = kernel.families();
        let mut netlink = Netlink::new(NETLINK_GENERIC)?;
        netlink.bind_auto()?;
        netlink.set_non_blocking(true)?;
        // Beyond what the system allows everybody, if this process may do that.
        if set_socket_recv_buffer_size_force(&netlink, queue_bytes).is_err() {
            netlink.set_rx_buf_sz(queue_bytes)?;
        }
        for family in [families.datapath, families.vport, families.flow] {
            netlink.add_membership(family.group)?;
        }
        Ok(Self { socket: Box::new(netlink), received: vec![0; RECEIVE_BUFFER].into(), families })
    }

    /// Hears what a program tells by a socket that keeps messages apart, under numbers of families of its own.
    pub(crate) fn of_program(socket: OwnedFd, families: Families) -> Self {
        Self { socket: Box::new(socket), received: vec![0; RECEIVE_BUFFER].into(), families }
    }

    /// The socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits for changes, at most so long, and passes on those that have come.
    pub fn receive(&mut self, at_most: Duration, see: &mut dyn FnMut(Notification<'_>)) -> Result<Heard, KernelError> {
        if !at_most.is_zero() {
            let timeout = Timespec::try_from(at_most).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            match poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        for _ in 0..TURN {
            let length = match recv(self.socket.as_fd(), &mut self.received[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(KernelError::Gone),
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => return Ok(Heard::All),
                Err(Errno::NOBUFS) => return Ok(Heard::NotAll),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(io::Error::from(errno).into()),
            };
            for message in Messages::new(&self.received[..length]) {
                let message = message?;
                see_message(message.header.kind, message.payload, &self.families, see);
            }
        }
        Ok(Heard::More)
    }

    /// Throws away what was told so far, and forgets whether some was lost: what is asked for from now on is newer.
    pub fn discard(&mut self) -> Result<(), KernelError> {
        loop {
            match recv(self.socket.as_fd(), &mut self.received[..], RecvFlags::empty()) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }
}

fn see_message(kind: u16, payload: &[u8], families: &Families, see: &mut dyn FnMut(Notification<'_>)) {
    let Some(command) = payload.first() else { return };
    if families.meter == Some(kind) {
        match command {
            2 => see(Notification::Meter(Change::Set, payload)),
            3 => see(Notification::Meter(Change::Deleted, payload)),
            _ => {}
        }
        return;
    }
    let change = match command {
        1 => Change::New,
        2 => Change::Deleted,
        4 => Change::Set,
        _ => return,
    };
    if kind == families.flow.number {
        see(Notification::Flow(change, payload));
    } else if kind == families.vport.number {
        see(Notification::Vport(change, payload));
    } else if kind == families.datapath.number {
        see(Notification::Datapath(change, payload));
    }
}
