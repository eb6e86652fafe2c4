//! How long a connection is remembered after its last packet: the defaults of Linux
//! (`net/netfilter/nf_conntrack_proto_*.c`).

use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// How long connections are remembered of those protocols that a policy can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) tcp: Tcp,
    pub(crate) udp_unreplied: Duration,
    pub(crate) udp_stream: Duration,
    pub(crate) icmp: Duration,
}

/// That of TCP connections, by their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) syn_sent: Duration,
    pub(crate) syn_received: Duration,
    pub(crate) established: Duration,
    pub(crate) fin_wait: Duration,
    pub(crate) close_wait: Duration,
    pub(crate) last_ack: Duration,
    pub(crate) time_wait: Duration,
    pub(crate) close: Duration,
    pub(crate) syn_sent2: Duration,
    /// After retransmissions without an answer, or with a closed window.
    pub(crate) retransmission: Duration,
    /// While data is not acknowledged.
    pub(crate) unacknowledged: Duration,
}

impl Timeouts {
    pub(crate) const DEFAULT: Self = Self {
        tcp: Tcp {
            syn_sent: seconds(120),
            syn_received: seconds(60),
            // Five days.
            established: seconds(432_000),
            fin_wait: seconds(120),
            close_wait: seconds(60),
            last_ack: seconds(30),
            time_wait: seconds(120),
            close: seconds(10),
            syn_sent2: seconds(120),
            retransmission: seconds(300),
            unacknowledged: seconds(300),
        },
        udp_unreplied: seconds(30),
        udp_stream: seconds(120),
        icmp: seconds(30),
    };
}

/// A TCP segment that is out of the window shortens no timeout below this.
pub(crate) const INVALID_FLOOR: Duration = seconds(120);

pub(crate) mod dccp {
    use super::{Duration, seconds};

    pub(crate) const REQUEST: Duration = seconds(240);
    pub(crate) const RESPOND: Duration = seconds(480);
    pub(crate) const PART_OPEN: Duration = seconds(480);
    /// Half a day.
    pub(crate) const OPEN: Duration = seconds(43_200);
    pub(crate) const CLOSE_REQUEST: Duration = seconds(64);
    pub(crate) const CLOSING: Duration = seconds(64);
    pub(crate) const TIME_WAIT: Duration = seconds(240);
}

pub(crate) mod sctp {
    use super::{Duration, seconds};

    pub(crate) const CLOSED: Duration = seconds(10);
    pub(crate) const COOKIE_WAIT: Duration = seconds(3);
    pub(crate) const COOKIE_ECHOED: Duration = seconds(3);
    pub(crate) const ESTABLISHED: Duration = seconds(210);
    pub(crate) const SHUTDOWN: Duration = seconds(3);
    pub(crate) const HEARTBEAT_SENT: Duration = seconds(30);
}

/// A UDP connection that is answered for longer than this is a stream.
pub(crate) const UDP_STREAM_AFTER: Duration = seconds(2);
pub(crate) const GRE_UNREPLIED: Duration = seconds(30);
pub(crate) const GRE_STREAM: Duration = seconds(180);
/// Protocols of which only the addresses are known.
pub(crate) const GENERIC: Duration = seconds(600);

/// How long the fragments of a packet are waited for (`IP_FRAG_TIME`, `IPV6_FRAG_TIMEOUT`).
pub(crate) const IPV4_FRAGMENTS: Duration = seconds(30);
pub(crate) const IPV6_FRAGMENTS: Duration = seconds(60);
