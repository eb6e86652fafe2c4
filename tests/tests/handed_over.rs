//! What an Open vSwitch with our provider does to the agent, at its socket. The whole of it, with a real one, is a story of `tc_agent`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{connect, recv, send, socket_with};
use sluice_flow::text::{parse_actions, parse_key};
use sluice_flow::{FlowState, Ufid};
use sluice_netdev::netlink::attribute::Writer;
use sluice_netdev::netlink::message::{Header, write};
use sluice_tests::daemon::Daemon;
use sluice_tests::openvswitch::{encode_actions, encode_match};
use sluice_tests::world::eventually;

const NEW: u8 = 1;
const DELETED: u8 = 2;
const SET: u8 = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// With a meter of the agent's own.
const CONFIG: &str = "poll_interval = \"20ms\"
[source.ovs]
handed_over = true
[[meter]]
id = 1
pps = 10
";

const UDP: &str = "in_port(1),eth_type(0x0800),ipv4(proto=17)";
const TCP: &str = "in_port(1),eth_type(0x0800),ipv4(proto=6)";

/// In the place of ovs-vswitchd.
struct Vswitchd(OwnedFd);

impl Vswitchd {
    /// Connects, and tells of a datapath with two ports.
    fn connect_to(daemon: &Daemon) -> Self {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let agent = SocketAddrUnix::new(daemon.run_dir().join("ovs-flows.sock")).unwrap();
        eventually("the agent listens", || connect(&socket, &agent).is_ok());
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
        let vswitchd = Self(socket);
        vswitchd.tell(0x10, NEW, |message| {
            message.put_text(1, "ovs-system");
            message.put(3, &[0; 32]);
            message.put(5, &0u32.to_ne_bytes());
        });
        for (number, name) in [(1u32, "one"), (2, "two")] {
            vswitchd.tell(0x11, NEW, |message| {
                message.put(1, &number.to_ne_bytes());
                message.put(2, &1u32.to_ne_bytes());
                message.put_text(3, name);
            });
        }
        vswitchd
    }

    /// Puts a flow, or changes what it does.
    fn put(&self, command: u8, ufid: u128, key: &str, actions: &str) {
        let (key, mask) = encode_match(&parse_key(key, &()).unwrap().matching).unwrap();
        let actions = encode_actions(&parse_actions(actions, &()).unwrap()).unwrap();
        self.tell(0x12, command, |message| {
            message.put(9, &bytes(ufid));
            message.put(1, &key);
            message.put(7, &mask);
            message.put(2, &actions);
        });
    }

    fn tell(&self, family: u16, command: u8, body: impl FnOnce(&mut Writer<'_>)) {
        let mut message = Vec::new();
        write(&mut message, Header { kind: family, flags: 0, sequence: 0, port: 0 }, |writer| {
            writer.raw(&[command, 1, 0, 0, 0, 0, 0, 0]);
            body(writer);
        })
        .unwrap();
        send(&self.0, &message, SendFlags::NOSIGNAL).unwrap();
    }

    /// The UFIDs of the next answer: flows that the agent does not have. None are at the end of the connection.
    fn given_back(&self) -> Vec<u8> {
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

/// A UFID as it stands in messages.
fn bytes(ufid: u128) -> Vec<u8> {
    ufid.to_be_bytes().chunks(4).flat_map(|word| word.iter().rev().copied()).collect()
}

/// What the agent's flow of this name does, if there is one.
fn actions_of(daemon: &Daemon, ufid: u128) -> Option<String> {
    let listed: serde_json::Value = serde_json::from_str(&daemon.sluice(&["dump-flows", "--json"]).out).unwrap();
    let name = Ufid(ufid).to_string();
    let flow = listed.as_array().unwrap().iter().find(|flow| name.contains(flow["ufid"].as_str().unwrap()))?;
    (flow["state"] == FlowState::Offloaded.name()).then(|| flow["actions"].as_str().unwrap().to_owned())
}

#[test]
fn flows_that_are_handed_over_are_wanted_and_those_that_the_device_has_not_are_given_back() {
    let daemon = Daemon::start(CONFIG);
    let vswitchd = Vswitchd::connect_to(&daemon);
    vswitchd.put(NEW, 7, UDP, "2");
    eventually("the device has the flow", || actions_of(&daemon, 7).as_deref() == Some("two"));
    vswitchd.put(SET, 7, UDP, "drop");
    eventually("it drops", || actions_of(&daemon, 7).as_deref() == Some("drop"));

    vswitchd.put(NEW, 8, TCP, "userspace(pid=1)");
    assert_eq!(vswitchd.given_back(), bytes(8), "no device has a process");
    vswitchd.put(NEW, 12, TCP, "meter(1),2");
    assert_eq!(vswitchd.given_back(), bytes(12), "the agent's meter is another one");
    vswitchd.put(NEW, 9, TCP, "77");
    assert_eq!(vswitchd.given_back(), bytes(9), "there is no such port");
    daemon.sluice(&["flush"]);
    assert_eq!(vswitchd.given_back(), bytes(7), "Open vSwitch forwards what a command takes away");

    vswitchd.put(NEW, 10, UDP, "2");
    vswitchd.put(NEW, 11, TCP, "2");
    eventually("the device has both", || [10, 11].iter().all(|ufid| actions_of(&daemon, *ufid).is_some()));
    vswitchd.tell(0x12, DELETED, |message| message.put(9, &bytes(10)));
    eventually("one is gone", || actions_of(&daemon, 10).is_none());
    assert!(actions_of(&daemon, 11).is_some());
    vswitchd.tell(0x12, DELETED, |_| ());
    eventually("all are", || actions_of(&daemon, 11).is_none());
}

#[test]
fn of_two_that_hand_flows_over_the_second_is_turned_away() {
    let daemon = Daemon::start(CONFIG);
    let first = Vswitchd::connect_to(&daemon);
    first.put(NEW, 7, UDP, "2");
    eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
    let second = Vswitchd::connect_to(&daemon);
    assert_eq!(second.given_back(), [0; 0], "the agent has hung up");
    assert!(actions_of(&daemon, 7).is_some());
}

#[test]
fn many_flows_that_are_given_back_at_once_all_arrive() {
    const MANY: u16 = 20_000;
    let daemon = Daemon::start(CONFIG);
    let vswitchd = Vswitchd::connect_to(&daemon);
    for port in 0..MANY {
        vswitchd.put(NEW, u128::from(port) + 1, &format!("{UDP},udp(dst={port})"), "2");
    }
    eventually("the device has all", || {
        daemon.metric("sluice_flows_placed{placement=\"hardware\"}") == Some(MANY.into())
    });
    daemon.sluice(&["flush"]);
    let mut given_back = 0;
    while given_back < usize::from(MANY) {
        given_back += vswitchd.given_back().len() / 16;
    }
    assert_eq!(given_back, usize::from(MANY));
}

#[test]
fn without_an_ovs_vswitchd_and_with_one_that_makes_no_sense_there_are_no_flows() {
    let daemon = Daemon::start(CONFIG);
    for sends_nonsense in [false, true] {
        let vswitchd = Vswitchd::connect_to(&daemon);
        vswitchd.put(NEW, 7, UDP, "2");
        eventually("the device has the flow", || actions_of(&daemon, 7).is_some());
        if sends_nonsense {
            vswitchd.tell(0x12, NEW, |message| message.raw(&[3, 0, 1, 0]));
            assert_eq!(vswitchd.given_back(), [0; 0], "the agent has hung up");
        }
        drop(vswitchd);
        eventually("the flow is gone", || actions_of(&daemon, 7).is_none());
        let show = daemon.sluice(&["show"]).out;
        assert!(show.contains("no ovs-vswitchd hands flows over"), "{show}");
    }
}
