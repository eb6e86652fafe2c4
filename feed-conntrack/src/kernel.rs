//! What the kernel is set to (`Documentation/networking/nf_conntrack-sysctl.rst`), in the network namespace of the thread that reads it.

use std::fs;
use std::time::Duration;

use sluice_ctnetlink::wire::TCP;

const FOLDER: &str = "/proc/sys/net";

/// The states of a connection of TCP that ends, and how long the kernel keeps it in the longest of them by default (`tcp_timeouts` of
/// `nf_conntrack_proto_tcp.c`).
const ENDING: [&str; 5] = ["fin_wait", "close_wait", "last_ack", "time_wait", "close"];
const ENDING_BY_DEFAULT: Duration = Duration::from_secs(120);

/// The shorter timeouts of an established connection of TCP: while data is not acknowledged, and while it is sent again and again or there is
/// no room for it.
const OF_DATA: [&str; 2] = ["unacknowledged", "max_retrans"];

/// How long the kernel keeps a connection without a packet, as far as it says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timeouts {
    pub(crate) tcp: Option<Duration>,
    /// Of TCP, the shorter ones.
    pub(crate) of_data: [Option<Duration>; OF_DATA.len()],
    pub(crate) udp: Option<Duration>,
    /// At most, where TCP ends.
    pub(crate) ending: Duration,
}

impl Timeouts {
    /// Asks the kernel.
    pub(crate) fn read() -> Self {
        let timeout = |name: &str| read(&format!("netfilter/nf_conntrack_{name}")).map(Duration::from_secs);
        let ending = ENDING.iter().filter_map(|state| timeout(&format!("tcp_timeout_{state}"))).max();
        Self {
            tcp: timeout("tcp_timeout_established"),
            of_data: OF_DATA.map(|name| timeout(&format!("tcp_timeout_{name}"))),
            udp: timeout("udp_timeout_stream"),
            ending: ending.unwrap_or(ENDING_BY_DEFAULT),
        }
    }

    /// That of an established connection of this protocol.
    pub(crate) const fn of(self, protocol: u8) -> Option<Duration> {
        if protocol == TCP { self.tcp } else { self.udp }
    }

    /// Whether the kernel is set to keep some established connection of this protocol for so long after a packet, which it tells in whole
    /// seconds. If not, there is a policy for the one of which it tells that (`ct timeout set` of nftables).
    pub(crate) fn has(self, protocol: u8, told: Duration) -> bool {
        let shorter = if protocol == TCP { self.of_data } else { Default::default() };
        let is_it = |set: Duration| told == set || told + Duration::from_secs(1) == set;
        shorter.into_iter().chain([self.of(protocol)]).flatten().any(is_it)
    }
}

/// Whether the kernel tells nothing of connections, to nobody (`nf_conntrack_events` of 0).
pub(crate) fn is_silent() -> bool {
    read("netfilter/nf_conntrack_events") == Some(0)
}

/// Whether IPv6 is forwarded. That of IPv4 shows in its routes.
pub(crate) fn forwards_ipv6() -> bool {
    read("ipv6/conf/all/forwarding").is_some_and(|is_on| is_on != 0)
}

/// Whether the kernel may choose among several next hops of a route by ports, and not by addresses alone (`fib_multipath_hash_policy`).
pub(crate) fn spreads_by_ports() -> bool {
    ["ipv4", "ipv6"].iter().any(|family| read(&format!("{family}/fib_multipath_hash_policy")).is_some_and(|by| by != 0))
}

fn read(name: &str) -> Option<u64> {
    fs::read_to_string(format!("{FOLDER}/{name}")).ok()?.trim().parse().ok()
}
