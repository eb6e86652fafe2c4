//! The monitor: reads all devices once, and then follows the kernel's notifications about links and traffic control.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::SockRef;

use crate::control::{Control, ROOM, receive, wait};
use crate::devlink::Devlink;
use crate::error::LinkError;
use crate::event::Event;
use crate::kind;
use crate::links::{Links, Snapshot};
use crate::message::{self, Notice};
use crate::netlink::message::Messages;
use crate::socket_filter::HeardPriorities;
use crate::{ingress, socket_filter};

/// The options of a [`Monitor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorOptions {
    /// How many bytes of notifications the kernel keeps for the monitor (`SO_RCVBUF`; it doubles the number).
    pub receive_buffer: usize,
    /// At which priorities a filter that is put in causes an event; at none if `None`.
    pub heard: Option<HeardPriorities>,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self { receive_buffer: 1 << 20, heard: None }
    }
}

/// Knows the devices of the network namespace of the thread that opened it, and tells what happens to them.
pub struct Monitor {
    notifications: Socket,
    control: Control,
    devlink: Devlink,
    links: Links,
    heard: Option<HeardPriorities>,
    /// Events that [`Monitor::poll`] has not returned yet.
    pending: Vec<Event>,
    /// More notifications than the socket can hold.
    most_kept: usize,
    /// Notifications were lost, so that all must be read anew.
    is_behind: bool,
    /// Devlink may have something new to say.
    is_devlink_behind: bool,
    buffer: Vec<u8>,
}

const LINKS: u32 = 1;
const TRAFFIC_CONTROL: u32 = 4;
/// Bytes of a receive buffer at least, whatever is asked for; and of one that a notification costs (`SKB_TRUESIZE`).
const LEAST_BUFFER: usize = 4096;
const LEAST_COST: usize = 256;
/// After so many notifications what they said is given out, even if there are more.
const MOST_AT_ONCE: usize = 4096;

impl Monitor {
    /// Starts to listen, and reads all devices.
    pub fn open(options: MonitorOptions) -> Result<Self, LinkError> {
        let failed = |step| move |source| LinkError::Socket { step, source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed("open"))?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(failed("bind"))?;
        // Past the limit for everybody, where that is allowed.
        sockopt::set_socket_recv_buffer_size_force(&socket, options.receive_buffer)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, options.receive_buffer))
            .map_err(|errno| failed("set the receive buffer")(errno.into()))?;
        let mut monitor = Self {
            notifications: socket,
            control: Control::open()?,
            devlink: Devlink::open()?,
            links: Links::default(),
            heard: options.heard,
            pending: vec![],
            most_kept: 1 + 2 * options.receive_buffer.max(LEAST_BUFFER) / LEAST_COST,
            is_behind: false,
            is_devlink_behind: false,
            buffer: vec![0; ROOM],
        };
        monitor.disregard(&[])?;
        for group in [LINKS, TRAFFIC_CONTROL] {
            monitor.notifications.add_membership(group).map_err(failed("join a multicast group"))?;
        }
        // What is notified from now on is known again from the list, or is newer than it.
        let snapshot = monitor.read()?;
        monitor.links.become_equal(snapshot, &mut vec![]);
        Ok(monitor)
    }

    /// The devices, as of the last [`poll`](Self::poll).
    pub const fn links(&self) -> &Links {
        &self.links
    }

    /// Suppresses events about filters and actions that these sockets (see [`Control::port`]) put in, change or remove. At most
    /// 2,000 sockets are taken; events about what others do name the socket.
    pub fn disregard(&mut self, ports: &[u32]) -> Result<(), LinkError> {
        let most = ports.len().min(socket_filter::MOST_PORTS);
        let program = socket_filter::program(self.heard, &ports[..most]);
        let attached = SockRef::from(&self.notifications).attach_filter(&program);
        attached.map_err(|source| LinkError::Socket { step: "attach a filter", source })
    }

    /// Returns what happened since the last call. If nothing did, waits for something, at most for `longest`; may return nothing
    /// before. After an error, the next call returns what was heard before it.
    pub fn poll(&mut self, longest: Duration) -> Result<Vec<Event>, LinkError> {
        self.listen()?;
        if self.pending.is_empty() && !self.is_behind && !longest.is_zero() {
            let failed = |errno: Errno| LinkError::Socket { step: "wait", source: errno.into() };
            wait(&self.sockets(), longest).map_err(failed)?;
            self.listen()?;
        }
        if self.is_behind {
            self.catch_up()?;
        }
        if self.is_devlink_behind {
            let ports = self.devlink.ports()?;
            self.is_devlink_behind = false;
            self.links.put_devlink(ports, &mut self.pending);
        }
        Ok(std::mem::take(&mut self.pending))
    }

    /// The sockets of which one is readable when there is something to [`poll`](Self::poll).
    pub fn sockets(&self) -> [BorrowedFd<'_>; 2] {
        [self.notifications.as_fd(), self.devlink.as_fd()]
    }

    /// Reads what the sockets have.
    fn listen(&mut self) -> Result<(), LinkError> {
        let mut left = MOST_AT_ONCE;
        while left > 0 {
            left -= 1;
            match receive(&self.notifications, &mut self.buffer) {
                Ok(None) => break,
                Ok(Some(length)) => self.hear(length),
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    self.is_behind = true;
                    // From now on the kernel drops all, and says so no more, until the socket was empty. What is read anew
                    // must be read after that.
                    left = self.most_kept;
                }
                Err(source) => return Err(LinkError::Socket { step: "listen", source }),
            }
        }
        self.is_devlink_behind |= self.devlink.has_news()?;
        Ok(())
    }

    fn hear(&mut self, length: usize) {
        for message in Messages::new(&self.buffer[..length]) {
            match message.and_then(|message| Notice::read(&message)) {
                Ok(Some(notice)) => {
                    // Of its port, devlink may have told before.
                    let is_new = matches!(&notice, Notice::Link(device) if self.links.at(device.ifindex).is_none());
                    self.is_devlink_behind |= is_new;
                    self.links.apply(notice, &mut self.pending);
                }
                Ok(None) => {}
                // It may have been about anything.
                Err(_) => self.is_behind = true,
            }
        }
    }

    /// Reads everything again. What is heard later is newer than that, or repeats it.
    fn catch_up(&mut self) -> Result<(), LinkError> {
        let snapshot = self.read()?;
        self.is_behind = false;
        self.is_devlink_behind = false;
        self.links.become_equal(snapshot, &mut self.pending);
        self.pending.push(Event::Resynchronised);
        Ok(())
    }

    fn read(&mut self) -> Result<Snapshot, LinkError> {
        let mut snapshot: Snapshot = self.control.dump(
            "list links",
            kind::GET_LINK,
            |writer| message::emit_get_link(None, writer),
            |snapshot: &mut Snapshot, message| {
                match Notice::read(message)? {
                    Some(Notice::Link(device)) => snapshot.devices.push(*device),
                    Some(Notice::Unreadable(ifindex, reason)) => snapshot.unreadable.push((ifindex, reason)),
                    _ => {}
                }
                Ok(())
            },
        )?;
        snapshot.qdiscs = ingress::all(&mut self.control)?;
        snapshot.devlink = self.devlink.ports()?;
        Ok(snapshot)
    }
}
