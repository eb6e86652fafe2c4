//! Datagrams to many ports, and the rules that the kernel tells of.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::netdevice::name_to_index;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with, sockopt};
use rustix::thread::ClockId;
use rustix::time::clock_gettime;
use sluice_tests::lab::switch::{run, within};

/// An address that the server's host has not, so that it answers nothing.
const NOWHERE: &str = "192.168.7.9";
/// `RTNLGRP_TC` as one of the first 32 groups (linux/rtnetlink.h).
const TC_GROUP: u32 = 1 << 3;
/// `RTM_NEWTFILTER`.
const NEW_FILTER: u16 = 44;
/// Where `struct tcmsg` behind `struct nlmsghdr` has the network device.
const DEVICE_AT: usize = 16 + 4;
/// After which a rule does not come any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who sends, from behind the client's port.
pub(crate) struct Sender {
    socket: UdpSocket,
}

impl Sender {
    pub(crate) fn new() -> Self {
        run(&format!("ip -n client neigh add {NOWHERE} lladdr 02:00:00:00:00:02 dev eth0"));
        Self { socket: within("client", || UdpSocket::bind("0.0.0.0:9000")).expect("a socket") }
    }

    /// Sends one to a port, and says when.
    pub(crate) fn send(&self, port: u16) -> Instant {
        let now = Instant::now();
        let sent = self.socket.send_to(&[0; 64], (NOWHERE, port)).expect("a datagram is sent");
        assert_eq!(sent, 64);
        now
    }

    /// Sends to each of the standing ports once a period, and to so many new ones a second besides. Returns what that took of a processor.
    pub(crate) fn load(
        &self,
        standing: &[u16],
        period: Duration,
        next: &mut impl FnMut() -> u16,
        new: u16,
        length: Duration,
    ) -> Duration {
        let (begun, spent) = (Instant::now(), time_of_thread());
        let pace = standing.len() as f64 / period.as_secs_f64();
        let (mut kept, mut added) = (0, 0);
        while begun.elapsed() < length {
            let at = begun.elapsed().as_secs_f64();
            while (kept as f64) < at * pace {
                self.send(standing[kept % standing.len()]);
                kept += 1;
            }
            while f64::from(added) < at * f64::from(new) {
                self.send(next());
                added += 1;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        time_of_thread() - spent
    }
}

fn time_of_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// The rules of tc that the kernel tells of at a network device.
pub(crate) struct Rules {
    socket: OwnedFd,
    device: u32,
}

impl Rules {
    pub(crate) fn listen(device: &str) -> Self {
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a netlink socket");
        bind(&socket, &SocketAddrNetlink::new(0, TC_GROUP)).expect("a group that there is");
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE)).expect("a timeout");
        let device = name_to_index(&socket, device).expect("a device");
        Self { socket, device }
    }

    /// Passes over what has come.
    pub(crate) fn forget(&mut self) {
        let mut buffer = [0; 1 << 16];
        while recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT).is_ok() {}
    }

    /// Waits for the next one, and says when it came.
    pub(crate) fn next(&mut self) -> Instant {
        let mut buffer = [0; 1 << 16];
        loop {
            let (length, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty()).expect("a rule in time");
            let message = &buffer[..length];
            let kind = message.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
            let device = message.get(DEVICE_AT..DEVICE_AT + 4);
            if kind == Some(NEW_FILTER) && device == Some(&self.device.to_ne_bytes()[..]) {
                return Instant::now();
            }
        }
    }
}
