//! Generic netlink: one request, its answers, its acknowledgement.

use std::process::Command;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with, sockopt,
};

use super::attributes::{Attributes, read};

const NLM_F_REQUEST: u16 = 0x01;
const NLM_F_ACK: u16 = 0x04;
/// With a new thing: it may not be there yet.
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const MESSAGE_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;

/// The family of families (`include/uapi/linux/genetlink.h`).
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// The kernel said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error number, positive.
    pub errno: i32,
    /// The kernel's own words, if it had any.
    pub message: Option<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", std::io::Error::from_raw_os_error(self.errno))?;
        self.message.as_ref().map_or(Ok(()), |message| write!(out, ": {message}"))
    }
}

/// A netlink socket that waits for each answer, 10 seconds at most.
pub(super) struct Generic {
    socket: rustix::fd::OwnedFd,
    sequence: u32,
}

impl Generic {
    /// A socket to the generic families.
    pub(super) fn open() -> Self {
        Self::to(netlink::GENERIC)
    }

    /// A socket to a netlink protocol.
    pub(super) fn to(protocol: Protocol) -> Self {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol))
            .expect("a netlink socket");
        bind(&socket, &SocketAddrNetlink::new(0, 0)).expect("an address for it");
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(10)))
            .expect("a timeout for it");
        Self { socket, sequence: 0 }
    }

    /// The number of a family, if its module is loaded.
    pub(super) fn family(&mut self, name: &str) -> Option<u16> {
        let mut attributes = Attributes::default();
        attributes.put_text(CTRL_ATTR_FAMILY_NAME, name);
        let answers = self.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 1, attributes.bytes()).ok()?;
        let (_, number) = answers.iter().flat_map(|answer| read(answer)).find(|(at, _)| *at == CTRL_ATTR_FAMILY_ID)?;
        Some(u16::from_ne_bytes(number.try_into().ok()?))
    }

    /// Sends a request of a generic family, and gives what is behind the generic header of each answer.
    pub(super) fn ask(&mut self, family: u16, command: u8, version: u8, body: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let body = [&[command, version, 0, 0], body].concat();
        let answers = self.request(family, &body)?;
        Ok(answers.into_iter().map(|answer| answer.get(GENERIC_HEADER..).unwrap_or_default().to_vec()).collect())
    }

    /// Sends a request, and gives what is behind the message header of each answer.
    pub(super) fn request(&mut self, kind: u16, body: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        self.sequence += 1;
        let length = u32::try_from(MESSAGE_HEADER + body.len()).expect("a message is short");
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        sendto(&self.socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))
            .expect("the kernel takes a netlink message");
        self.answers()
    }

    fn answers(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        let mut answers = vec![];
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(errno) => return Err(Failure { errno: errno.raw_os_error(), message: Some("no answer".into()) }),
            };
            let mut rest = &buffer[..length];
            while let Some((kind, sequence, body)) = take_message(&mut rest) {
                if sequence != self.sequence {
                    continue;
                }
                if kind != NLMSG_ERROR {
                    answers.push(body.to_vec());
                    continue;
                }
                // `struct nlmsgerr`: the error number, negative, or 0.
                return match -i32::from_ne_bytes(*body.first_chunk().expect("an acknowledgement has a number")) {
                    0 => Ok(answers),
                    errno => Err(Failure { errno, message: last_words() }),
                };
            }
        }
    }
}

/// What Open vSwitch has written to the kernel's log since the last time: it does not say it in netlink.
fn last_words() -> Option<String> {
    let log = Command::new("dmesg").arg("--read-clear").output().ok()?;
    let words = String::from_utf8_lossy(&log.stdout)
        .lines()
        .filter_map(|line| line.split_once("openvswitch: "))
        .next_back()?
        .1
        .to_owned();
    Some(words)
}

/// Type, sequence number and body of the next message.
fn take_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, u32, &'a [u8])> {
    let header: &[u8; MESSAGE_HEADER] = rest.first_chunk()?;
    let [a, b, c, d, e, f, _, _, i, j, k, l, ..] = *header;
    let length = u32::from_ne_bytes([a, b, c, d]) as usize;
    let body = rest.get(MESSAGE_HEADER..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((u16::from_ne_bytes([e, f]), u32::from_ne_bytes([i, j, k, l]), body))
}
