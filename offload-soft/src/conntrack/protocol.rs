//! The part of tracking that depends on the protocol: whether a packet is well formed, what it does to its connection,
//! and for how long the connection is remembered.

use std::time::Duration;

use sluice_flow::time::Timestamp;

use crate::packet::checksum::{Sum, crc32c, pseudo_header};
use crate::packet::headers::{Sctp as SctpHeader, Udp, Wire};
use crate::packet::ip_proto;

use super::dccp::{self, Dccp};
use super::icmp;
use super::membership::Membership;
use super::sctp::{Chunks, Sctp};
use super::table::{Connection, status};
use super::tcp::{Circumstances, Tcp};
use super::tcp_segment::Segment;
use super::timeouts::{self, Timeouts};
use super::tracker;
use super::tuple::Direction;
use super::tuple::{DCCP, GRE, Located, UDP_LITE};

/// What is remembered of a connection besides its tuples.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    /// No packet was followed yet.
    Unseen,
    Tcp(Box<Tcp>),
    Sctp(Box<Sctp>),
    Dccp(Box<Dccp>),
    /// UDP; answered after this time, it is a stream.
    Udp(Timestamp),
    /// Nothing but its being there.
    Other,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does not belong to the connection.
    Invalid,
    /// It belongs to the connection.
    Accept,
    /// It belongs to the connection, and ends it.
    End,
    /// It begins another connection in the place of this one.
    Reopen,
}

/// Lets a connection see a packet of its own (`nf_conntrack_handle_packet`).
pub(crate) fn follow(
    connection: &Connection,
    membership: Membership,
    packet: &[u8],
    located: &Located,
    now: Timestamp,
) -> Verdict {
    let transport = packet.get(located.transport..).unwrap_or_default();
    if !is_well_formed(transport, located) {
        return Verdict::Invalid;
    }
    let (timeout, assures) = match located.protocol {
        ip_proto::TCP => return follow_tcp(connection, membership.direction, transport, now),
        DCCP => return follow_dccp(connection, membership.direction, transport, now),
        ip_proto::SCTP => return follow_sctp(connection, membership.direction, transport, now),
        ip_proto::UDP => follow_udp(connection, now),
        UDP_LITE => follow_plain(connection, Timeouts::DEFAULT.udp_unreplied, Timeouts::DEFAULT.udp_stream),
        GRE => follow_plain(connection, timeouts::GRE_UNREPLIED, timeouts::GRE_STREAM),
        ip_proto::ICMP | ip_proto::ICMPV6 => {
            let [kind, _] = connection.original.destination_port.to_be_bytes();
            let own = if located.source.is_ipv4() { ip_proto::ICMP } else { ip_proto::ICMPV6 };
            if located.protocol != own || !icmp::is_question(own, kind) {
                return Verdict::Invalid;
            }
            (connection.timeouts().icmp, false)
        }
        _ => (timeouts::GENERIC, false),
    };
    connection.refresh(now, timeout);
    if assures {
        connection.set(status::ASSURED);
    }
    Verdict::Accept
}

fn follow_tcp(connection: &Connection, direction: Direction, transport: &[u8], now: Timestamp) -> Verdict {
    let Some(segment) = Segment::read(transport) else {
        return Verdict::Invalid;
    };
    let mut state = connection.lock();
    if !connection.has(status::CONFIRMED) {
        let Some(tracker) = Tcp::new(&segment) else {
            return Verdict::Invalid;
        };
        state.protocol = Protocol::Tcp(Box::new(tracker));
    }
    let adjustment = state.adjustments[direction.other() as usize];
    let Protocol::Tcp(tracker) = &mut state.protocol else {
        return Verdict::Invalid;
    };
    let circumstances = Circumstances {
        seen_reply: connection.has(status::SEEN_REPLY),
        assured: connection.has(status::ASSURED),
        remaining: connection.remaining(now),
        timeouts: connection.timeouts().tcp,
        shift: adjustment.offset(segment.ack.wrapping_sub(1)),
    };
    let verdict = tracker.follow(direction, &segment, circumstances);
    settle(connection, verdict, now)
}

fn follow_sctp(connection: &Connection, direction: Direction, transport: &[u8], now: Timestamp) -> Verdict {
    let Some(chunks) = Chunks::read(transport) else {
        return Verdict::Invalid;
    };
    let mut state = connection.lock();
    let is_confirmed = connection.has(status::CONFIRMED);
    if !is_confirmed {
        let Some(tracker) = Sctp::new(&chunks) else {
            return Verdict::Invalid;
        };
        state.protocol = Protocol::Sctp(Box::new(tracker));
    }
    let Protocol::Sctp(tracker) = &mut state.protocol else {
        return Verdict::Invalid;
    };
    let verdict = tracker.follow(direction, &chunks, is_confirmed);
    settle(connection, verdict, now)
}

fn follow_dccp(connection: &Connection, direction: Direction, transport: &[u8], now: Timestamp) -> Verdict {
    let Some(packet) = dccp::Packet::read(transport) else {
        return Verdict::Invalid;
    };
    let mut state = connection.lock();
    if !connection.has(status::CONFIRMED) {
        let Some(tracker) = Dccp::new(&packet) else {
            return Verdict::Invalid;
        };
        state.protocol = Protocol::Dccp(Box::new(tracker));
    }
    let Protocol::Dccp(tracker) = &mut state.protocol else {
        return Verdict::Invalid;
    };
    let verdict = tracker.follow(direction, &packet, connection.has(status::SEEN_REPLY));
    settle(connection, verdict, now)
}

/// Lets a connection live on as its tracker says.
fn settle(connection: &Connection, verdict: tracker::Verdict, now: Timestamp) -> Verdict {
    match verdict {
        tracker::Verdict::Invalid(shortened) => {
            if let Some(timeout) = shortened {
                connection.refresh(now, timeout);
            }
            Verdict::Invalid
        }
        tracker::Verdict::Accept => Verdict::Accept,
        tracker::Verdict::Refresh { timeout, assures } => {
            connection.refresh(now, timeout);
            if assures {
                connection.set(status::ASSURED);
            }
            Verdict::Accept
        }
        tracker::Verdict::End => Verdict::End,
        tracker::Verdict::Reopen => Verdict::Reopen,
    }
}

fn follow_udp(connection: &Connection, now: Timestamp) -> (Duration, bool) {
    let timeouts = connection.timeouts();
    let mut state = connection.lock();
    if !connection.has(status::CONFIRMED) {
        state.protocol = Protocol::Udp(now.after(timeouts::UDP_STREAM_AFTER));
    }
    if !connection.has(status::SEEN_REPLY) {
        return (timeouts.udp_unreplied, false);
    }
    let is_stream = matches!(state.protocol, Protocol::Udp(stream_after) if now > stream_after);
    (if is_stream { timeouts.udp_stream } else { timeouts.udp_unreplied }, is_stream)
}

fn follow_plain(connection: &Connection, unreplied: Duration, stream: Duration) -> (Duration, bool) {
    connection.lock().protocol = Protocol::Other;
    if connection.has(status::SEEN_REPLY) { (stream, true) } else { (unreplied, false) }
}

/// Whether a packet has what its protocol demands, its checksum included.
fn is_well_formed(transport: &[u8], located: &Located) -> bool {
    match located.protocol {
        ip_proto::TCP => is_summed(transport, located, transport.len()),
        ip_proto::UDP => {
            let Some(header) = Udp::new(transport) else {
                return false;
            };
            let length = usize::from(header.length());
            (Udp::<&[u8]>::LENGTH..=transport.len()).contains(&length)
                && (header.checksum() == 0 || is_summed(transport, located, transport.len()))
        }
        UDP_LITE => {
            // RFC 3828: the length says how much is covered, zero is all, and there must be a checksum.
            let Some(header) = Udp::new(transport) else {
                return false;
            };
            let covered = match usize::from(header.length()) {
                0 => transport.len(),
                length => length,
            };
            (Udp::<&[u8]>::LENGTH..=transport.len()).contains(&covered)
                && header.checksum() != 0
                && is_summed(transport, located, covered)
        }
        DCCP => dccp::Packet::read(transport).is_some_and(|packet| is_summed(transport, located, packet.covered)),
        ip_proto::SCTP => {
            let Some(header) = SctpHeader::new(transport) else {
                return false;
            };
            let (before, behind) = transport.split_at(SctpHeader::<&[u8]>::LENGTH);
            let computed = crc32c(&[&before[..8], &[0; 4], behind]);
            header.checksum() == u32::read(&computed.to_le_bytes(), 0)
        }
        _ => true,
    }
}

/// Whether the checksum of a packet is right for that many of its bytes.
pub(crate) fn is_summed(transport: &[u8], located: &Located, covered: usize) -> bool {
    use std::net::IpAddr::{V4, V6};
    let sum = match (located.source, located.destination) {
        // ICMP has no pseudo header in IPv4 (RFC 792).
        (V4(_), V4(_)) if located.protocol == ip_proto::ICMP => Sum::default(),
        (V4(source), V4(destination)) => {
            pseudo_header(&source.octets(), &destination.octets(), located.protocol, transport.len())
        }
        (V6(source), V6(destination)) => {
            pseudo_header(&source.octets(), &destination.octets(), located.protocol, transport.len())
        }
        _ => return false,
    };
    sum.bytes(transport.get(..covered).unwrap_or_default()).finish() == 0
}
