//! An ovs-vswitchd with our provider (`deploy/ovs`), as the agent meets it at its socket.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, recv, send, socket_with};
use sluice_flow::{Action, Match, Ufid};
use sluice_netdev::netlink::attribute::Writer;
use sluice_netdev::netlink::message::{Header, write};

use super::{encode_actions, encode_match};
use crate::daemon::Daemon;
use crate::world::eventually;

/// The number of the family `ovs_datapath`.
pub const DATAPATH: u16 = 0x10;
/// The number of the family `ovs_vport`.
pub const VPORT: u16 = 0x11;
/// The number of the family `ovs_flow`.
pub const FLOW: u16 = 0x12;
/// The number of the family `ovs_meter`.
pub const METER: u16 = 0x13;
/// `OVS_METER_CMD_SET`
pub const SET_METER: u8 = 2;
/// `OVS_METER_CMD_DEL`
pub const DELETE_METER: u8 = 3;
/// Something is there, in each of the other families.
pub const NEW: u8 = 1;
/// It is gone.
pub const DELETED: u8 = 2;
/// It has changed.
pub const SET: u8 = 4;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a port is to the datapath (`enum ovs_vport_type`).
#[derive(Clone, Copy)]
pub enum Vport {
    /// A network device.
    Netdev = 1,
    /// One of the datapath's own.
    Internal = 2,
}

/// In the place of ovs-vswitchd.
pub struct Provider(OwnedFd);

impl Provider {
    /// Connects, and tells of a datapath with ports of these names, numbered from 1.
    pub fn connect_to(daemon: &Daemon, ports: &[&str]) -> Self {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.expect("a socket");
        let agent = SocketAddrUnix::new(daemon.run_dir().join("ovs-flows.sock")).expect("a short path");
        eventually("the agent listens", || connect(&socket, &agent).is_ok());
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).expect("a timeout");
        let provider = Self(socket);
        provider.begin();
        for (number, name) in (1..).zip(ports) {
            provider.tell_port(number, name, Vport::Netdev);
        }
        provider
    }

    /// Tells of a datapath, with which it begins.
    pub fn begin(&self) {
        self.tell(DATAPATH, NEW, |message| {
            message.put_text(1, "ovs-system");
            message.put(3, &[0; 32]);
            message.put(5, &0u32.to_ne_bytes());
        });
    }

    /// Tells of a port.
    pub fn tell_port(&self, number: u32, name: &str, kind: Vport) {
        self.tell(VPORT, NEW, |message| {
            message.put(1, &number.to_ne_bytes());
            message.put(2, &(kind as u32).to_ne_bytes());
            message.put_text(3, name);
        });
    }

    /// Tells of something.
    pub fn tell(&self, family: u16, command: u8, body: impl FnOnce(&mut Writer<'_>)) {
        self.send(&message(family, command, body));
    }

    /// Sets a meter, which lets so many packets pass in a second, and as many at once.
    pub fn set_meter(&self, id: u32, packets: u32) {
        self.tell(METER, SET_METER, |message| {
            message.put(1, &id.to_ne_bytes());
            message.nest(4, |bands| {
                bands.nest(0, |band| {
                    for (kind, value) in [(1, 1), (2, packets), (3, packets)] {
                        band.put(kind, &value.to_ne_bytes());
                    }
                });
            });
        });
    }

    /// Takes a meter away.
    pub fn delete_meter(&self, id: u32) {
        self.tell(METER, DELETE_METER, |message| message.put(1, &id.to_ne_bytes()));
    }

    /// Sends a message, and waits for room if need be.
    pub fn send(&self, message: &[u8]) {
        send(&self.0, message, SendFlags::NOSIGNAL).expect("the agent is there");
    }

    /// The UFIDs of the next answer: flows that the agent does not have. None are at the end of the connection.
    pub fn given_back(&self) -> Vec<u8> {
        let mut answer = vec![0; 1 << 14];
        let length = match recv(&self.0, &mut answer[..], RecvFlags::empty()) {
            Ok((length, _)) => length,
            // Not all was read that was sent.
            Err(Errno::CONNRESET) => 0,
            Err(errno) => panic!("no answer: {errno}"),
        };
        answer.truncate(length);
        answer
    }
}

/// A message that puts a flow, or changes what it does.
pub fn flow_message(command: u8, ufid: Ufid, matching: &Match, actions: &[Action]) -> Vec<u8> {
    let (key, mask) = encode_match(matching).expect("a flow that the kernel's messages can say");
    let actions = encode_actions(actions).expect("a flow that the kernel's messages can say");
    message(FLOW, command, |message| {
        message.put(9, &name(ufid));
        message.put(1, &key);
        message.put(7, &mask);
        message.put(2, &actions);
    })
}

/// A UFID as it stands in messages.
pub fn name(ufid: Ufid) -> Vec<u8> {
    ufid.0.to_be_bytes().chunks(4).flat_map(|word| word.iter().rev().copied()).collect()
}

fn message(family: u16, command: u8, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut message = Vec::new();
    let written = write(&mut message, Header { kind: family, flags: 0, sequence: 0, port: 0 }, |writer| {
        writer.raw(&[command, 1, 0, 0, 0, 0, 0, 0]);
        body(writer);
    });
    written.expect("a short message");
    message
}
