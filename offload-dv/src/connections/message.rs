//! Messages of ctnetlink (`linux/netfilter/nfnetlink_conntrack.h`) as connections.

use std::ffi::CStr;
use std::net::IpAddr;
use std::time::Duration;

use netlink_bindings::conntrack::{IterableConntrackAttrs, IterableTupleAttrs, NfCtTcpFlagsMask, Nfgenmsg, OpGetDump};
use netlink_bindings::conntrack::{PushConntrackAttrs, PushTupleAttrs};
use netlink_bindings::traits::Pusher;
use sluice_flow::connection::{Connection, Direction, State, TcpState};

use super::source::SourceError;

/// `NFNL_SUBSYS_CTNETLINK`, in the upper byte of the kind of a message.
const CTNETLINK: u16 = 1 << 8;
/// `IPCTNL_MSG_CT_NEW`: there is one, or this is to be changed.
pub(super) const NEW: u16 = CTNETLINK;
/// `IPCTNL_MSG_CT_GET`
pub(super) const GET: u16 = CTNETLINK | 1;
/// `IPCTNL_MSG_CT_DELETE`
pub(super) const DELETE: u16 = CTNETLINK | 2;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const SCTP: u8 = 132;
/// `enum sctp_conntrack` of `linux/netfilter/nf_conntrack_sctp.h`, by the names of OVS (`CT_DPIF_SCTP_STATES`).
const SCTP_STATES: [&str; 10] = [
    "NONE",
    "CLOSED",
    "COOKIE_WAIT",
    "COOKIE_ECHOED",
    "ESTABLISHED",
    "SHUTDOWN_SENT",
    "SHUTDOWN_RECD",
    "SHUTDOWN_ACK_SENT",
    "HEARTBEAT_SENT",
    "HEARTBEAT_ACKED",
];
/// `IP_CT_TCP_FLAG_BE_LIBERAL`
const BE_LIBERAL: u8 = 0x08;

/// Helpers of Linux that are shown by their names (`nf_conntrack_helper_register`), and what others are shown as.
const HELPERS: [&str; 12] =
    ["ftp", "tftp", "sip", "irc", "pptp", "h323", "RAS", "Q.931", "H.245", "amanda", "sane", "snmp"];
const OTHER_HELPER: &str = "other";

/// Reads what a message tells of a connection; `None` if it does not say both directions. An update tells part of it only.
pub(super) fn read(payload: &[u8]) -> Result<Option<Connection>, SourceError> {
    let (_, attributes) = OpGetDump::decode_request(payload);
    let of = |tuple: Result<IterableTupleAttrs<'_>, _>| tuple.ok().as_ref().and_then(direction);
    let (Some(original), Some(reply)) = (of(attributes.get_tuple_orig()), of(attributes.get_tuple_reply())) else {
        return Ok(None);
    };
    let label = attributes.get_labels().unwrap_or_default();
    Ok(Some(Connection {
        zone: attributes.get_zone().unwrap_or_default(),
        id: attributes.get_id().unwrap_or_default(),
        original,
        reply,
        status: attributes.get_status().map_err(|_| malformed("status"))?,
        mark: attributes.get_mark().unwrap_or_default(),
        // As OVS reads them: the first byte is the lowest.
        label: label.iter().rev().fold(0, |label, byte| label << 8 | u128::from(*byte)),
        timeout: Duration::from_secs(attributes.get_timeout().unwrap_or_default().into()),
        state: state(&attributes, original.protocol),
        helper: attributes.get_help().ok().map(|help| help.get_help_name().map_or(OTHER_HELPER, helper)),
        parent: of(attributes.get_tuple_master()),
    }))
}

/// Writes what comes behind the header of a request for all connections.
pub(super) fn all() -> Vec<u8> {
    header(AF_UNSPEC)
}

/// Writes what comes behind the header of a request for a connection.
pub(super) fn name(connection: &Connection) -> Vec<u8> {
    let mut payload = header(family(&connection.original));
    put_name(PushConntrackAttrs::new(&mut payload), connection).end_nested();
    payload
}

/// Writes what comes behind the header of a request for a connection, and for no later one of the same addresses and ports.
pub(super) fn this_one(connection: &Connection) -> Vec<u8> {
    let mut payload = header(family(&connection.original));
    put_name(PushConntrackAttrs::new(&mut payload), connection).push_id(connection.id).end_nested();
    payload
}

/// Writes what comes behind the header of a change: the connection lives for its timeout from now. Of TCP, the kernel lets go of the
/// window, because it does not see every segment.
pub(super) fn keep(connection: &Connection) -> Vec<u8> {
    let mut payload = header(family(&connection.original));
    let timeout = u32::try_from(connection.timeout.as_secs()).unwrap_or(u32::MAX);
    let attributes = put_name(PushConntrackAttrs::new(&mut payload), connection).push_timeout(timeout);
    if connection.original.protocol == TCP {
        let liberal = NfCtTcpFlagsMask { flags: BE_LIBERAL, mask: BE_LIBERAL };
        let tcp = attributes.nested_protoinfo().nested_protoinfo_tcp();
        tcp.push_tcp_flags_original(liberal.clone())
            .push_tcp_flags_reply(liberal)
            .end_nested()
            .end_nested()
            .end_nested();
    } else {
        attributes.end_nested();
    }
    payload
}

fn header(family: u8) -> Vec<u8> {
    Nfgenmsg { nfgen_family: family, ..Nfgenmsg::new() }.as_slice().to_vec()
}

fn family(direction: &Direction) -> u8 {
    if direction.source.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn put_name<P: Pusher>(attributes: PushConntrackAttrs<P>, connection: &Connection) -> PushConntrackAttrs<P> {
    let original = &connection.original;
    let addresses = |tuple: PushTupleAttrs<_>| {
        let ip = tuple.nested_tuple_ip();
        match (original.source, original.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ip.push_ip_v4_src(from).push_ip_v4_dst(to),
            (IpAddr::V6(from), IpAddr::V6(to)) => ip.push_ip_v6_src(from).push_ip_v6_dst(to),
            _ => ip,
        }
        .end_nested()
    };
    let tuple = addresses(attributes.nested_tuple_orig()).nested_tuple_proto().push_proto_num(original.protocol);
    let Direction { source_port, destination_port, .. } = *original;
    let [kind, code] = destination_port.to_be_bytes();
    let tuple = match original.protocol {
        ICMP => tuple.push_proto_icmp_id(source_port).push_proto_icmp_type(kind).push_proto_icmp_code(code),
        ICMPV6 => tuple.push_proto_icmpv6_id(source_port).push_proto_icmpv6_type(kind).push_proto_icmpv6_code(code),
        _ if (source_port, destination_port) == (0, 0) => tuple,
        _ => tuple.push_proto_src_port(source_port).push_proto_dst_port(destination_port),
    };
    tuple.end_nested().end_nested().push_zone(connection.zone)
}

fn direction(tuple: &IterableTupleAttrs<'_>) -> Option<Direction> {
    let (ip, protocol) = (tuple.get_tuple_ip().ok()?, tuple.get_tuple_proto().ok()?);
    let (source, destination) = match (ip.get_ip_v4_src(), ip.get_ip_v4_dst()) {
        (Ok(from), Ok(to)) => (IpAddr::V4(from), IpAddr::V4(to)),
        _ => (IpAddr::V6(ip.get_ip_v6_src().ok()?), IpAddr::V6(ip.get_ip_v6_dst().ok()?)),
    };
    let number = protocol.get_proto_num().ok()?;
    let (source_port, destination_port) = match number {
        ICMP => {
            let kind = [protocol.get_proto_icmp_type().ok()?, protocol.get_proto_icmp_code().ok()?];
            (protocol.get_proto_icmp_id().ok()?, u16::from_be_bytes(kind))
        }
        ICMPV6 => {
            let kind = [protocol.get_proto_icmpv6_type().ok()?, protocol.get_proto_icmpv6_code().ok()?];
            (protocol.get_proto_icmpv6_id().ok()?, u16::from_be_bytes(kind))
        }
        TCP | UDP => (protocol.get_proto_src_port().ok()?, protocol.get_proto_dst_port().ok()?),
        _ => {
            let (from, to) = (protocol.get_proto_src_port(), protocol.get_proto_dst_port());
            (from.unwrap_or_default(), to.unwrap_or_default())
        }
    };
    Some(Direction { source, destination, protocol: number, source_port, destination_port })
}

fn helper(name: &CStr) -> &'static str {
    let known = HELPERS.into_iter().find(|known| known.as_bytes() == name.to_bytes());
    known.unwrap_or(OTHER_HELPER)
}

fn state(attributes: &IterableConntrackAttrs<'_>, protocol: u8) -> State {
    let Ok(of) = attributes.get_protoinfo() else { return State::Other };
    match protocol {
        TCP => {
            let Ok(tcp) = of.get_protoinfo_tcp() else { return State::Other };
            let Ok(state) = tcp.get_tcp_state() else { return State::Other };
            let scales = [tcp.get_tcp_wscale_original(), tcp.get_tcp_wscale_reply()].map(Result::unwrap_or_default);
            let flags = [tcp.get_tcp_flags_original(), tcp.get_tcp_flags_reply()];
            let flags = flags.map(|told| told.map_or(0, |told| told.flags));
            State::Tcp { state: tcp_state(state), scales, flags }
        }
        SCTP => {
            let Ok(sctp) = of.get_protoinfo_sctp() else { return State::Other };
            let Ok(state) = sctp.get_sctp_state() else { return State::Other };
            let state = SCTP_STATES.get(usize::from(state)).copied().unwrap_or("CLOSED");
            let tags = [sctp.get_vtag_original(), sctp.get_vtag_reply()].map(Result::unwrap_or_default);
            State::Sctp { state, tags }
        }
        _ => State::Other,
    }
}

/// `enum tcp_conntrack` of `linux/netfilter/nf_conntrack_tcp.h`.
fn tcp_state(state: u8) -> TcpState {
    match state {
        1 | 9 => TcpState::SynSent,
        2 => TcpState::SynRecv,
        3 => TcpState::Established,
        4 => TcpState::FinWait1,
        5 => TcpState::CloseWait,
        6 => TcpState::LastAck,
        7 => TcpState::TimeWait,
        _ => TcpState::Closed,
    }
}

fn malformed(what: &str) -> SourceError {
    SourceError::Failed(format!("ctnetlink tells of a connection without its {what}"))
}
