//! What the kernel is set to (`Documentation/networking/nf_conntrack-sysctl.rst`), in the network namespace of the thread that reads it.

use std::fs;
use std::time::Duration;

use crate::wire::TCP;

const FOLDER: &str = "/proc/sys/net/netfilter";

/// How long the kernel keeps an established connection without a packet; `None` if it does not say.
pub(crate) fn timeout(protocol: u8) -> Option<Duration> {
    let name = if protocol == TCP { "nf_conntrack_tcp_timeout_established" } else { "nf_conntrack_udp_timeout_stream" };
    read(name).map(Duration::from_secs)
}

/// Whether the kernel tells nothing of connections, to nobody (`nf_conntrack_events` of 0).
pub(crate) fn is_silent() -> bool {
    read("nf_conntrack_events") == Some(0)
}

fn read(name: &str) -> Option<u64> {
    fs::read_to_string(format!("{FOLDER}/{name}")).ok()?.trim().parse().ok()
}
