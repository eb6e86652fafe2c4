//! Two hosts on the two ports of a switch, each in a network namespace of its own.

use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sluice_tests::lab::iproute::{attempt, batch};

/// The UDP port on which hosts listen.
const LISTENING: u16 = 4000;
/// The name of a host's only device.
const DEVICE: &str = "eth0";
const RECEIVE_BUFFER: usize = 32 << 20;

static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// The switch's namespace, in which the thread is, and those of two hosts and of a tap. They go with this.
pub(crate) struct Network {
    number: u32,
    pub(crate) hosts: [Host; 2],
}

/// A host with an address and a socket.
pub(crate) struct Host {
    pub(crate) address: Ipv4Addr,
    pub(crate) socket: UdpSocket,
}

/// The frames with IPv4 that a host receives.
pub(crate) struct Capture(OwnedFd);

/// Modules that the kernel would load at a request of the first namespace only.
pub(crate) fn load_modules() {
    run(
        "modprobe --all cls_flower cls_matchall cls_u32 cls_basic sch_ingress act_mirred act_gact act_vlan act_pedit act_csum \
         act_tunnel_key act_skbedit act_police act_ct act_simple dummy veth vxlan geneve ip_gre bonding",
    );
}

impl Network {
    pub(crate) fn new() -> Self {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let [a, b, switch] = ["a", "b", "switch"].map(|name| format!("{name}{number}"));
        batch(&[format!("netns add {a}"), format!("netns add {b}"), format!("netns add {switch}")]);
        enter(&switch);
        disable_ipv6();
        batch(&[port(1, &a), port(2, &b)].concat());
        let hosts = [(a, 1), (b, 2)].map(|(inside, last)| {
            enter(&inside);
            disable_ipv6();
            batch(&settle(last));
            let address = Ipv4Addr::new(10, 0, 0, last);
            let socket = UdpSocket::bind((address, LISTENING)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            // A receiver that gets no time for a while loses nothing by it.
            set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).unwrap();
            Host { address, socket }
        });
        enter(&switch);
        Self { number, hosts }
    }

    pub(crate) fn run(&self, command: &str) -> String {
        run(command)
    }

    /// Plugs a host into the switch anew, by another device of the same name.
    pub(crate) fn plug(&self, last: u8) {
        let inside = format!("{}{}", if last == 1 { "a" } else { "b" }, self.number);
        batch(&port(last, &inside));
        enter(&inside);
        batch(&settle(last));
        enter(&format!("switch{}", self.number));
    }

    /// The frames with IPv4 that a host receives from now on.
    pub(crate) fn capture(&self, host: usize) -> Capture {
        self.capture_in(["a", "b"][host])
    }

    /// Makes a third port, `p3`, and gives the frames that leave through it.
    pub(crate) fn tap(&self) -> Capture {
        let inside = format!("c{}", self.number);
        batch(&[vec![format!("netns add {inside}")], port(3, &inside)].concat());
        enter(&inside);
        disable_ipv6();
        batch(&[format!("link set {DEVICE} up")]);
        enter(&format!("switch{}", self.number));
        self.capture_in("c")
    }

    fn capture_in(&self, name: &str) -> Capture {
        const ETH_P_IP: u16 = 0x0800;
        enter(&format!("{name}{}", self.number));
        let protocol = NonZeroU32::new(ETH_P_IP.to_be().into()).map(Protocol::from_raw);
        let capture = socket(AddressFamily::PACKET, SocketType::RAW, protocol).unwrap();
        enter(&format!("switch{}", self.number));
        set_socket_timeout(&capture, Timeout::Recv, Some(Duration::from_millis(500))).unwrap();
        set_socket_recv_buffer_size_force(&capture, RECEIVE_BUFFER).unwrap();
        Capture(capture)
    }

    /// Has one host send so many datagrams to the other, and says which arrived, in the order in which they did.
    pub(crate) fn send(&self, from: usize, count: u32) -> Vec<u32> {
        let [sender, receiver] = [&self.hosts[from], &self.hosts[1 - from]];
        for number in 0..count {
            sender.send(number, receiver.address);
        }
        receiver.receive(count)
    }
}

impl Capture {
    /// The frames that come until there are so many or no more do.
    pub(crate) fn frames(&self, count: usize) -> Vec<Vec<u8>> {
        let mut buffer = [0; 2048];
        let mut frames = vec![];
        while frames.len() < count
            && let Ok((length, _)) = recv(&self.0, &mut buffer[..], RecvFlags::empty())
        {
            frames.push(buffer[..length].to_vec());
        }
        frames
    }
}

impl Host {
    /// Sends a datagram with a number in it.
    pub(crate) fn send(&self, number: u32, to: Ipv4Addr) {
        self.socket.send_to(&number.to_be_bytes(), (to, LISTENING)).unwrap();
    }

    /// The numbers of datagrams that arrive, until there are so many or no more come.
    pub(crate) fn receive(&self, count: u32) -> Vec<u32> {
        let mut numbers = vec![];
        let mut buffer = [0; 2048];
        while numbers.len() < count as usize {
            match self.socket.recv(&mut buffer) {
                Ok(4..) => numbers.push(u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]])),
                Ok(_) => panic!("an odd datagram"),
                Err(_) => break,
            }
        }
        numbers
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let lines = ["a", "b", "c", "switch"].map(|name| format!("netns del {name}{}", self.number));
        // Not every network has a tap.
        attempt(&lines);
    }
}

/// Lines of `ip` that make a port of the switch, whose other end is a host's device.
fn port(last: u8, inside: &str) -> Vec<String> {
    vec![format!("link add p{last} type veth peer name {DEVICE} netns {inside}"), format!("link set p{last} up")]
}

/// Lines of `ip` that give a host its addresses, and that of the other one.
fn settle(last: u8) -> Vec<String> {
    let other = 3 - last;
    vec![
        format!("link set {DEVICE} address 02:00:00:00:00:0{last} up"),
        format!("address add 10.0.0.{last}/24 dev {DEVICE}"),
        format!("neigh add 10.0.0.{other} lladdr 02:00:00:00:00:0{other} dev {DEVICE} nud permanent"),
    ]
}

/// In the namespace that the thread is in.
fn disable_ipv6() {
    std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
}

/// Which of so many numbers did not arrive.
pub(crate) fn missing(arrived: &[u32], sent: u32) -> Vec<u32> {
    (0..sent).filter(|number| !arrived.contains(number)).collect()
}

/// The bytes of a frame with one of these datagrams: Ethernet, IPv4 and UDP headers and the number.
pub(crate) const FRAME: u64 = 14 + 20 + 8 + 4;

/// Waits until something is so, which must be soon.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
