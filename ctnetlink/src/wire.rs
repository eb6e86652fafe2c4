//! Messages of ctnetlink, read through checked attributes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sluice_flow::connection::{Connection, Direction, State, TcpState};
use sluice_netdev::netlink::attribute::{Attribute, Attributes, Fields, Malformed, Writer};

use crate::mark::Mark;

/// `NFNL_SUBSYS_CTNETLINK`, in the upper byte of the kind of a message.
const CTNETLINK: u16 = 1 << 8;
/// `IPCTNL_MSG_CT_NEW`: a connection is there, or is to be changed.
pub const NEW: u16 = CTNETLINK;
/// `IPCTNL_MSG_CT_GET`: a connection, or all, are asked for.
pub const GET: u16 = CTNETLINK | 1;
/// `IPCTNL_MSG_CT_DELETE`: a connection is gone, or is to be removed.
pub const DELETE: u16 = CTNETLINK | 2;

/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Bytes of `struct nfgenmsg`.
const HEADER: usize = 4;

const PLACE: &str = "connection";
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
/// `CTA_STATUS`: bits of [`status`].
pub(crate) const STATUS: u16 = 3;
const PROTOCOL_STATE: u16 = 4;
const HELPER: u16 = 5;
const TIMEOUT: u16 = 7;
/// `CTA_MARK`, which is left out where it is 0 and was not changed.
pub(crate) const MARK: u16 = 8;
const ID: u16 = 12;
const TUPLE_MASTER: u16 = 14;
const ZONE: u16 = 18;
/// Of a mark that connections are asked for by, the bits that count.
const MARK_MASK: u16 = 21;
const LABELS: u16 = 22;

const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const TUPLE_ZONE: u16 = 3;
const IPV4_SOURCE: u16 = 1;
const IPV4_DESTINATION: u16 = 2;
const IPV6_SOURCE: u16 = 3;
const IPV6_DESTINATION: u16 = 4;
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
const ICMP_ID: u16 = 4;
const ICMP_TYPE: u16 = 5;
const ICMP_CODE: u16 = 6;
const ICMPV6_ID: u16 = 7;
const ICMPV6_TYPE: u16 = 8;
const ICMPV6_CODE: u16 = 9;
const HELPER_NAME: u16 = 1;
const STATE_OF_TCP: u16 = 1;
const TCP_STATE: u16 = 1;
const TCP_SCALE_ORIGINAL: u16 = 2;
const TCP_SCALE_REPLY: u16 = 3;
const TCP_FLAGS_ORIGINAL: u16 = 4;
const TCP_FLAGS_REPLY: u16 = 5;
const STATE_OF_SCTP: u16 = 3;
const SCTP_STATE: u16 = 1;
const SCTP_TAG_ORIGINAL: u16 = 2;
const SCTP_TAG_REPLY: u16 = 3;

/// `IP_CT_TCP_FLAG_BE_LIBERAL`: segments outside of the window are valid.
const BE_LIBERAL: u8 = 0x08;
/// `IP_CT_TCP_FLAG_MAXACK_SET`: an RST below the highest acknowledgement is invalid.
const MAXACK_SET: u8 = 0x20;
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
/// Helpers of Linux that are shown by their names (`nf_conntrack_helper_register`), and what others are shown as.
const HELPERS: [&str; 12] =
    ["ftp", "tftp", "sip", "irc", "pptp", "h323", "RAS", "Q.931", "H.245", "amanda", "sane", "snmp"];
const OTHER_HELPER: &str = "other";

/// Bits of [`Connection::status`] (`enum ip_conntrack_status` of `nf_conntrack_common.h`).
pub mod status {
    /// `IPS_ASSURED`: it is not dropped early, for packets went both ways.
    pub const ASSURED: u32 = 1 << 2;
    /// `IPS_SEQ_ADJUST`: sequence numbers are changed.
    pub const SEQUENCE_ADJUSTED: u32 = 1 << 6;
    /// `IPS_DYING`
    pub const DYING: u32 = 1 << 9;
    /// `IPS_FIXED_TIMEOUT`: it ends at its time, whatever packets there are.
    pub const FIXED_TIMEOUT: u32 = 1 << 10;
    /// `IPS_HELPER`: a helper reads its packets.
    pub const HELPER: u32 = 1 << 13;
    /// `IPS_OFFLOAD` and `IPS_HW_OFFLOAD`: a flowtable of nftables forwards it.
    pub const OFFLOADED: u32 = 1 << 14 | 1 << 15;
}

/// Which connection is meant: the one that began in this direction, in this zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The zone that it is in.
    pub zone: u16,
    /// The direction that it began in.
    pub original: Direction,
}

impl Name {
    /// That of a connection.
    pub const fn of(connection: &Connection) -> Self {
        Self { zone: connection.zone, original: connection.original }
    }
}

/// What a message tells of a connection. An event leaves out the state of its protocol, its label and the like, unless they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The connection, with 0 or nothing for what is not told.
    pub connection: Connection,
    /// Whether it is told how long the kernel keeps it without a packet, in whole seconds.
    pub has_timeout: bool,
    /// Whether it is in another zone than that of all, in both directions or in one.
    pub has_zone: bool,
}

impl Told {
    /// Reads what is behind the header of netlink.
    ///
    /// # Errors
    /// Fails with the place of what is cut short, missing, or not as the kernel writes it.
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let _family = Fields::new(payload, PLACE).bytes::<HEADER>()?;
        let (mut original, mut reply, mut status) = (None, None, None);
        let (mut zone, mut id, mut mark, mut label) = (0, 0, 0, 0);
        let (mut timeout, mut state, mut helper, mut parent) = (None, State::Other, None, None);
        for attribute in Attributes::new(&payload[HEADER..], PLACE) {
            let attribute = attribute?;
            match attribute.kind {
                TUPLE_ORIGINAL => original = Some(Tuple::read(&attribute, "original direction")?),
                TUPLE_REPLY => reply = Some(Tuple::read(&attribute, "direction of answers")?),
                STATUS => status = Some(attribute.be32()?),
                PROTOCOL_STATE => state = read_state(&attribute)?,
                HELPER => helper = Some(read_helper(&attribute)?),
                TIMEOUT => timeout = Some(Duration::from_secs(attribute.be32()?.into())),
                MARK => mark = attribute.be32()?,
                ID => id = attribute.be32()?,
                TUPLE_MASTER => parent = Some(Tuple::read(&attribute, "direction of the parent")?.direction),
                ZONE => zone = attribute.be16()?,
                // As OVS reads them: the first byte is the lowest.
                LABELS => label = attribute.payload.iter().rev().fold(0, |label, byte| label << 8 | u128::from(*byte)),
                _ => {}
            }
        }
        let missing = |kind| Malformed::Missing { place: PLACE, kind };
        let Tuple { direction: original, has_zone } = original.ok_or(missing(TUPLE_ORIGINAL))?;
        let Tuple { direction: reply, has_zone: has_zone_of_answers } = reply.ok_or(missing(TUPLE_REPLY))?;
        let status = status.ok_or(missing(STATUS))?;
        if original.source.is_ipv4() != reply.source.is_ipv4() || original.protocol != reply.protocol {
            let value = "another family or protocol than that of the original direction".into();
            return Err(Malformed::Value { place: PLACE, kind: TUPLE_REPLY, value });
        }
        let (has_timeout, has_zone) = (timeout.is_some(), zone != 0 || has_zone || has_zone_of_answers);
        let timeout = timeout.unwrap_or_default();
        let connection = Connection { zone, id, original, reply, status, mark, label, timeout, state, helper, parent };
        Ok(Self { connection, has_timeout, has_zone })
    }
}

struct Tuple {
    direction: Direction,
    has_zone: bool,
}

impl Tuple {
    fn read(nest: &Attribute<'_>, place: &'static str) -> Result<Self, Malformed> {
        let (mut addresses, mut protocol, mut has_zone) = (None, None, false);
        for attribute in nest.nested(place) {
            let attribute = attribute?;
            match attribute.kind {
                TUPLE_IP => addresses = Some(read_addresses(&attribute, place)?),
                TUPLE_PROTOCOL => protocol = Some(read_protocol(&attribute, place)?),
                TUPLE_ZONE => has_zone |= attribute.be16()? != 0,
                _ => {}
            }
        }
        let missing = |kind| Malformed::Missing { place, kind };
        let (source, destination) = addresses.ok_or(missing(TUPLE_IP))?;
        let (protocol, [source_port, destination_port]) = protocol.ok_or(missing(TUPLE_PROTOCOL))?;
        Ok(Self { direction: Direction { source, destination, protocol, source_port, destination_port }, has_zone })
    }
}

fn read_addresses(nest: &Attribute<'_>, place: &'static str) -> Result<(IpAddr, IpAddr), Malformed> {
    let (mut source, mut destination) = (None, None);
    for attribute in nest.nested(place) {
        let attribute = attribute?;
        match attribute.kind {
            IPV4_SOURCE => source = Some(IpAddr::V4(Ipv4Addr::from(attribute.bytes::<4>()?))),
            IPV4_DESTINATION => destination = Some(IpAddr::V4(Ipv4Addr::from(attribute.bytes::<4>()?))),
            IPV6_SOURCE => source = Some(IpAddr::V6(Ipv6Addr::from(attribute.bytes::<16>()?))),
            IPV6_DESTINATION => destination = Some(IpAddr::V6(Ipv6Addr::from(attribute.bytes::<16>()?))),
            _ => {}
        }
    }
    match (source, destination) {
        (Some(source), Some(destination)) if source.is_ipv4() == destination.is_ipv4() => Ok((source, destination)),
        (None, _) => Err(Malformed::Missing { place, kind: IPV4_SOURCE }),
        (_, None) => Err(Malformed::Missing { place, kind: IPV4_DESTINATION }),
        _ => Err(nest.value("addresses of two families")),
    }
}

/// Returns the protocol, and its ports as [`Direction`] has them.
fn read_protocol(nest: &Attribute<'_>, place: &'static str) -> Result<(u8, [u16; 2]), Malformed> {
    let (mut number, mut source, mut destination) = (None, None, None);
    let (mut kind, mut code) = (None, None);
    for attribute in nest.nested(place) {
        let attribute = attribute?;
        match attribute.kind {
            PROTOCOL_NUMBER => number = Some(attribute.u8()?),
            SOURCE_PORT | ICMP_ID | ICMPV6_ID => source = Some(attribute.be16()?),
            DESTINATION_PORT => destination = Some(attribute.be16()?),
            ICMP_TYPE | ICMPV6_TYPE => kind = Some(attribute.u8()?),
            ICMP_CODE | ICMPV6_CODE => code = Some(attribute.u8()?),
            _ => {}
        }
    }
    let missing = |kind| Malformed::Missing { place, kind };
    let number = number.ok_or(missing(PROTOCOL_NUMBER))?;
    let destination = destination.or(kind.zip(code).map(|(kind, code)| u16::from_be_bytes([kind, code])));
    let ports = match number {
        ICMP => [source.ok_or(missing(ICMP_ID))?, destination.ok_or(missing(ICMP_TYPE))?],
        ICMPV6 => [source.ok_or(missing(ICMPV6_ID))?, destination.ok_or(missing(ICMPV6_TYPE))?],
        TCP | UDP => [source.ok_or(missing(SOURCE_PORT))?, destination.ok_or(missing(DESTINATION_PORT))?],
        _ => [source, destination].map(Option::unwrap_or_default),
    };
    Ok((number, ports))
}

fn read_state(nest: &Attribute<'_>) -> Result<State, Malformed> {
    for attribute in nest.nested("state of the protocol") {
        let attribute = attribute?;
        match attribute.kind {
            STATE_OF_TCP => return read_tcp(&attribute),
            STATE_OF_SCTP => return read_sctp(&attribute),
            _ => {}
        }
    }
    Ok(State::Other)
}

fn read_tcp(nest: &Attribute<'_>) -> Result<State, Malformed> {
    let (mut state, mut scales, mut flags) = (None, [0; 2], [0; 2]);
    for attribute in nest.nested("state of TCP") {
        let attribute = attribute?;
        match attribute.kind {
            TCP_STATE => state = Some(tcp_state(attribute.u8()?)),
            TCP_SCALE_ORIGINAL => scales[0] = attribute.u8()?,
            TCP_SCALE_REPLY => scales[1] = attribute.u8()?,
            // `struct nf_ct_tcp_flags`: flags and mask.
            TCP_FLAGS_ORIGINAL => flags[0] = attribute.bytes::<2>()?[0],
            TCP_FLAGS_REPLY => flags[1] = attribute.bytes::<2>()?[0],
            _ => {}
        }
    }
    Ok(state.map_or(State::Other, |state| State::Tcp { state, scales, flags }))
}

/// `enum tcp_conntrack` of `linux/netfilter/nf_conntrack_tcp.h`.
const fn tcp_state(state: u8) -> TcpState {
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

fn read_sctp(nest: &Attribute<'_>) -> Result<State, Malformed> {
    let (mut state, mut tags) = (None, [0; 2]);
    for attribute in nest.nested("state of SCTP") {
        let attribute = attribute?;
        match attribute.kind {
            SCTP_STATE => state = Some(attribute.u8()?),
            SCTP_TAG_ORIGINAL => tags[0] = attribute.be32()?,
            SCTP_TAG_REPLY => tags[1] = attribute.be32()?,
            _ => {}
        }
    }
    let name = |state: u8| SCTP_STATES.get(usize::from(state)).copied().unwrap_or("CLOSED");
    Ok(state.map_or(State::Other, |state| State::Sctp { state: name(state), tags }))
}

fn read_helper(nest: &Attribute<'_>) -> Result<&'static str, Malformed> {
    let mut found = OTHER_HELPER;
    for attribute in nest.nested("helper") {
        let attribute = attribute?;
        if attribute.kind == HELPER_NAME {
            // That of a helper in userspace may be any bytes.
            let name = attribute.text().unwrap_or_default();
            found = HELPERS.into_iter().find(|known| *known == name).unwrap_or(OTHER_HELPER);
        }
    }
    Ok(found)
}

/// Writes what is behind the header of a request for all connections with a mark.
pub fn put_all(writer: &mut Writer<'_>, mark: Mark) {
    writer.raw(&[AF_UNSPEC, 0, 0, 0]);
    // A kernel without marks refuses to look for one.
    if mark != Mark::default() {
        writer.put(MARK, &mark.value.to_be_bytes());
        writer.put(MARK_MASK, &mark.mask.to_be_bytes());
    }
}

/// Writes what is behind the header of a request for a connection.
pub fn put_name(writer: &mut Writer<'_>, Name { zone, original }: &Name) {
    let family = if original.source.is_ipv4() { AF_INET } else { AF_INET6 };
    writer.raw(&[family, 0, 0, 0]);
    writer.nest(TUPLE_ORIGINAL, |writer| {
        writer.nest(TUPLE_IP, |writer| match (original.source, original.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                writer.put(IPV4_SOURCE, &source.octets());
                writer.put(IPV4_DESTINATION, &destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                writer.put(IPV6_SOURCE, &source.octets());
                writer.put(IPV6_DESTINATION, &destination.octets());
            }
            // No `Direction` has both, and the kernel refuses a request without addresses.
            _ => {}
        });
        writer.nest(TUPLE_PROTOCOL, |writer| put_protocol(writer, original));
    });
    // A kernel without zones refuses to look for one.
    if *zone != 0 {
        writer.put(ZONE, &zone.to_be_bytes());
    }
}

fn put_protocol(writer: &mut Writer<'_>, original: &Direction) {
    let Direction { protocol, source_port, destination_port, .. } = *original;
    writer.put(PROTOCOL_NUMBER, &[protocol]);
    let icmp = match protocol {
        ICMP => Some([ICMP_ID, ICMP_TYPE, ICMP_CODE]),
        ICMPV6 => Some([ICMPV6_ID, ICMPV6_TYPE, ICMPV6_CODE]),
        _ => None,
    };
    match icmp {
        Some(attributes) => {
            let [kind, code] = destination_port.to_be_bytes();
            let parts: [&[u8]; 3] = [&source_port.to_be_bytes(), &[kind], &[code]];
            attributes.into_iter().zip(parts).for_each(|(attribute, part)| writer.put(attribute, part));
        }
        None if (source_port, destination_port) == (0, 0) => {}
        None => {
            writer.put(SOURCE_PORT, &source_port.to_be_bytes());
            writer.put(DESTINATION_PORT, &destination_port.to_be_bytes());
        }
    }
}

/// Writes what is behind the header of a request about this connection, and about no later one of the same name.
pub fn put_this(writer: &mut Writer<'_>, connection: &Connection) {
    put_name(writer, &Name::of(connection));
    writer.put(ID, &connection.id.to_be_bytes());
}

/// Writes what is behind the header of a change of a connection: it lives for so long from now, if that is said. Of TCP, windows no longer
/// count, nor does the highest acknowledgement, since the kernel does not see every segment.
pub fn put_change(writer: &mut Writer<'_>, name: &Name, timeout: Option<Duration>) {
    put_name(writer, name);
    if let Some(timeout) = timeout {
        let seconds = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
        writer.put(TIMEOUT, &seconds.to_be_bytes());
    }
    if name.original.protocol == TCP {
        // `struct nf_ct_tcp_flags`: flags and mask.
        let liberal = [BE_LIBERAL, BE_LIBERAL | MAXACK_SET];
        writer.nest(PROTOCOL_STATE, |writer| {
            writer.nest(STATE_OF_TCP, |writer| {
                writer.put(TCP_FLAGS_ORIGINAL, &liberal);
                writer.put(TCP_FLAGS_REPLY, &liberal);
            });
        });
    }
}
