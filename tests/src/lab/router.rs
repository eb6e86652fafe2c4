//! A router that masquerades what it sends, with a client at one port and a server at the other.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so and ends")]

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::iproute::{batch, batch_in};
use super::switch::{Switch, eventually, run, sluice, within};
use crate::daemon::{Daemon, repository};

/// The client's address.
pub const CLIENT: &str = "10.1.0.2";
/// The server's.
pub const SERVER: &str = "10.2.0.2";
/// What the server takes for the client. The checksum of a packet is another one with it.
pub const OWN_AT_SERVER: &str = "10.2.0.77";
/// Where the server listens.
pub const PORT: u16 = 5000;
/// Bytes of a question and of its answer.
pub const LENGTH: usize = 100;

/// The server's Ethernet addresses, the latter of which it takes.
const OTHER_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 0x22];

/// The namespaces of a switch, of which the agent's is the router.
pub struct Router(Switch);

impl Router {
    /// Makes it, and enters the router's namespace.
    pub fn with_masquerading() -> Self {
        run("modprobe --all nf_conntrack nf_conntrack_netlink nf_tables nf_nat nft_chain_nat nft_masq");
        let router = Self::bare();
        // The server knows no way to the client.
        masquerade("ip");
        router
    }

    /// The same of a router that leaves addresses as they are. The server knows the way back.
    pub fn without_translation() -> Self {
        run("modprobe --all nf_conntrack nf_conntrack_netlink nf_tables");
        let router = Self::bare();
        batch_in("server", &[format!("route add default via {OWN_AT_SERVER}")]);
        router
    }

    fn bare() -> Self {
        let switch = Switch::set_up();
        batch(&["addr add 10.1.0.1/24 dev client".to_owned(), format!("addr add {OWN_AT_SERVER}/24 dev server")]);
        for (name, network) in [("client", 1), ("server", 2)] {
            let lines = [
                "neigh flush dev eth0".to_owned(),
                "addr flush dev eth0".to_owned(),
                format!("addr add 10.{network}.0.2/24 dev eth0"),
            ];
            batch_in(name, &lines);
        }
        batch_in("client", &["route add default via 10.1.0.1".to_owned()]);
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        Self(switch)
    }

    /// The folder of its agents.
    pub fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// Gives it addresses of IPv6 beside, which it masquerades as well, and says where the server is.
    pub fn add_ipv6(&self) -> &'static str {
        let nodad = |network, host, device| format!("addr add fd0{network}::{host}/64 dev {device} nodad");
        batch(&[nodad(1, 1, "client"), nodad(2, 77, "server")]);
        batch_in("client", &[nodad(1, 2, "eth0"), "route add default via inet6 fd01::1".to_owned()]);
        batch_in("server", &[nodad(2, 2, "eth0")]);
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        masquerade("ip6");
        "fd02::2"
    }

    /// Sets a timeout of connection tracking.
    pub fn set(&self, name: &str, timeout: Duration) {
        fs::write(format!("/proc/sys/net/netfilter/{name}"), timeout.as_secs().to_string()).unwrap();
    }

    /// Starts an agent and waits until it hears of connections.
    pub fn start(&self, keys: &str) -> Daemon {
        let daemon = self.0.start_with("tc.policy = \"skip_hw\"", &format!("[source.conntrack]\n{keys}"));
        eventually("the kernel is heard", || daemon.metric("sluice_source_up{source=\"conntrack\"}") == Some(1.0));
        daemon
    }

    /// Packets that the kernel has forwarded itself (`ForwDatagrams` of RFC 4293).
    pub fn forwarded(&self) -> u64 {
        let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
        let [names, values] = [lines.next().unwrap(), lines.next().unwrap()];
        let at = names.split_whitespace().position(|name| name == "ForwDatagrams").unwrap();
        values.split_whitespace().nth(at).unwrap().parse().unwrap()
    }

    /// The same of IPv6 (`Ip6OutForwDatagrams`).
    pub fn forwarded_ipv6(&self) -> u64 {
        let text = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams")).unwrap();
        value.trim().parse().unwrap()
    }

    /// Gives the server another Ethernet address, which the router knows at once, and returns it.
    pub fn move_server(&self) -> [u8; 6] {
        batch_in("server", &["link set eth0 address 02:00:00:00:00:22".to_owned()]);
        batch(&[format!("neigh replace {SERVER} lladdr 02:00:00:00:00:22 dev server nud reachable")]);
        OTHER_ADDRESS
    }

    /// The filters at a port.
    pub fn filters(&self, port: &str) -> Vec<String> {
        self.0.filters(port)
    }
}

/// Has what leaves masqueraded by nftables, in the namespace of this thread.
fn masquerade(family: &str) {
    run(&format!(
        "nft add table {family} router ; \
         add chain {family} router out {{ type nat hook postrouting priority srcnat ; }} ; \
         add rule {family} router out masquerade"
    ));
}

/// The rules of nftables by which `docs/router.md` has connections marked once they have had more than 20 packets.
pub fn marking() -> String {
    let text = fs::read_to_string(repository("docs/router.md")).unwrap();
    let (_, behind) = text.split_once("```nft\n").unwrap();
    behind.split_once("```").unwrap().0.to_owned()
}

/// Flows of the source, as the agent has them.
pub fn ours(daemon: &Daemon) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&sluice(daemon, &["dump-flows", "--json"])).unwrap();
    listed.as_array().unwrap().iter().filter(|flow| flow["source"] == "conntrack").cloned().collect()
}

/// A datagram with a number, which is not 0 if its frame counts.
pub fn datagram(number: u64) -> [u8; LENGTH] {
    let mut data = [0; LENGTH];
    data[..8].copy_from_slice(&number.to_be_bytes());
    data
}

/// Frames with numbered datagrams as they come to the server, whoever they are for.
pub struct Frames {
    /// The number with which it is over, once that is known.
    last: Arc<AtomicU64>,
    reader: JoinHandle<Vec<(u64, [u8; 6])>>,
}

impl Frames {
    /// Begins to read them.
    pub fn to_server() -> Self {
        /// `ETH_P_IP`, in the order of the network.
        const IP: u16 = 0x0800;
        let protocol = Protocol::from(i32::from(IP.to_be()));
        let socket = within("server", || Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap());
        socket.set_recv_buffer_size(1 << 22).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let last = Arc::new(AtomicU64::new(u64::MAX));
        let until = last.clone();
        let reader = std::thread::spawn(move || {
            let (mut seen, mut buffer) = (Vec::new(), [0; 2048]);
            loop {
                match (&socket).read(&mut buffer) {
                    Ok(length) => seen.extend(read(&buffer[..length])),
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        if until.load(Ordering::Relaxed) != u64::MAX {
                            return seen;
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
        Self { last, reader }
    }

    /// Ends when nothing comes any more; gives the numbers below this one with the Ethernet address that each went to.
    pub fn end(self, below: u64) -> Vec<(u64, [u8; 6])> {
        self.last.store(below, Ordering::Relaxed);
        self.reader.join().unwrap().into_iter().filter(|(number, _)| *number < below).collect()
    }
}

/// The number of a frame, if it has one, and where it goes.
fn read(frame: &[u8]) -> Option<(u64, [u8; 6])> {
    let destination = frame.get(..6)?.try_into().ok()?;
    let is_ours = frame.get(23) == Some(&17) && frame.get(36..38)? == PORT.to_be_bytes();
    let number = u64::from_be_bytes(frame.get(42..50)?.try_into().ok()?);
    (is_ours && number != 0).then_some((number, destination))
}
