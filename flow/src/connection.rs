//! Connections that a device tracks, as it lists them.

use std::net::IpAddr;
use std::time::Duration;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Direction {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// Protocol of IP.
    pub protocol: u8,
    /// Source port; of ICMP, the identifier; 0 for a protocol without ports.
    pub source_port: u16,
    /// Destination port; of ICMP, the type (upper byte) and the code; 0 for a protocol without ports.
    pub destination_port: u16,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The zone that it is in.
    pub zone: u16,
    /// A number of its own, most likely.
    pub id: u32,
    /// The direction that it began in.
    pub original: Direction,
    /// The direction of the answers, as they come in.
    pub reply: Direction,
    /// What is known of it, as bits in the order of [`STATUS`].
    pub status: u32,
    /// What `ct(mark=..)` has set, and flows match as `ct_mark`.
    pub mark: u32,
    /// What `ct(label=..)` has set, and flows match as `ct_label`.
    pub label: u128,
    /// How long it would be remembered without another packet.
    pub timeout: Duration,
    /// The state of its protocol.
    pub state: State,
    /// The name of its application layer gateway.
    pub helper: Option<&'static str>,
    /// The connection because of which it was expected.
    pub parent: Option<Direction>,
}

/// Which connections are meant: all, until something is asked for (`struct ofp_ct_match` of OVS, and a zone).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this zone.
    pub zone: Option<u16>,
    /// With these bits of the mark: value and mask.
    pub mark: (u32, u32),
    /// With these bits of the label: value and mask.
    pub label: (u128, u128),
    /// Whose addresses are of IPv6, or of IPv4.
    pub is_ipv6: Option<bool>,
    /// Of this protocol of IP.
    pub protocol: Option<u8>,
    /// With this original direction.
    pub original: DirectionSelection,
    /// With this direction of answers.
    pub reply: DirectionSelection,
}

/// Which directions of connections are meant: all, until something is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionSelection {
    /// From this address.
    pub source: Option<IpAddr>,
    /// To this address.
    pub destination: Option<IpAddr>,
    /// From this port; of ICMP, with this identifier.
    pub source_port: Option<u16>,
    /// To this port: value and mask. Of ICMP, with this type (upper byte) and code.
    pub destination_port: (u16, u16),
}

impl Selection {
    /// Whether a connection is meant.
    pub fn has(&self, connection: &Connection) -> bool {
        let Connection { zone, original, reply, mark, label, .. } = connection;
        self.zone.is_none_or(|wanted| wanted == *zone)
            && (mark ^ self.mark.0) & self.mark.1 == 0
            && (label ^ self.label.0) & self.label.1 == 0
            && self.is_ipv6.is_none_or(|wanted| wanted == original.source.is_ipv6())
            && self.protocol.is_none_or(|wanted| wanted == original.protocol)
            && self.original.has(original)
            && self.reply.has(reply)
    }
}

impl DirectionSelection {
    fn has(&self, direction: &Direction) -> bool {
        self.source.is_none_or(|wanted| wanted == direction.source)
            && self.destination.is_none_or(|wanted| wanted == direction.destination)
            && self.source_port.is_none_or(|wanted| wanted == direction.source_port)
            && (direction.destination_port ^ self.destination_port.0) & self.destination_port.1 == 0
    }
}

/// How many connections zones may have. A limit of 0 is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneLimits {
    /// For zones that have no limit of their own.
    pub default: u32,
    /// By zone.
    pub zones: Vec<ZoneLimit>,
}

/// How many connections a zone may have, and how many it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLimit {
    /// The zone.
    pub zone: u16,
    /// Its limit, or the default one.
    pub limit: u32,
    /// Its connections.
    pub count: u32,
}

/// The names of the bits of [`Connection::status`] (`CT_DPIF_STATUS_FLAGS` in OVS's `lib/ct-dpif.h`).
pub const STATUS: [&str; 10] = [
    "EXPECTED",
    "SEEN_REPLY",
    "ASSURED",
    "CONFIRMED",
    "SRC_NAT",
    "DST_NAT",
    "SEQ_ADJUST",
    "SRC_NAT_DONE",
    "DST_NAT_DONE",
    "DYING",
];

/// The state of a connection's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing that is shown.
    Other,
    /// TCP.
    Tcp {
        /// The state of both ends together.
        state: TcpState,
        /// Window scales, original direction first.
        scales: [u8; 2],
        /// What is known of each direction, as bits in the order of [`TCP_FLAGS`].
        flags: [u8; 2],
    },
    /// SCTP.
    Sctp {
        /// The name of the state.
        state: &'static str,
        /// Verification tags, original direction first.
        tags: [u32; 2],
    },
}

/// The names of the bits of a direction of TCP (`CT_DPIF_TCP_FLAGS` in OVS's `lib/ct-dpif.h`).
pub const TCP_FLAGS: [&str; 6] =
    ["WINDOW_SCALE", "SACK_PERM", "CLOSE_INIT", "BE_LIBERAL", "DATA_UNACKNOWLEDGED", "MAXACK_SET"];

macro_rules! tcp_states {
    ($($state:ident, $name:literal;)*) => {
        /// The state of a TCP connection, in the order of OVS (`CT_DPIF_TCP_STATES` in `lib/ct-dpif.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum TcpState {
            $(#[doc = concat!("`", $name, "`.")] $state,)*
        }

        impl TcpState {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$state,)*];

            /// Its name in OVS.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$state => $name,)*
                }
            }
        }
    };
}

tcp_states! {
    Closed, "CLOSED";
    Listen, "LISTEN";
    SynSent, "SYN_SENT";
    SynRecv, "SYN_RECV";
    Established, "ESTABLISHED";
    CloseWait, "CLOSE_WAIT";
    FinWait1, "FIN_WAIT_1";
    Closing, "CLOSING";
    LastAck, "LAST_ACK";
    FinWait2, "FIN_WAIT_2";
    TimeWait, "TIME_WAIT";
}

impl TcpState {
    /// The state as it is shown in short, where trackers differ in what they tell apart (`coalesce_tcp_state`).
    #[must_use]
    pub const fn in_short(self) -> Self {
        match self {
            Self::FinWait2 => Self::TimeWait,
            Self::SynRecv => Self::Established,
            other => other,
        }
    }
}
