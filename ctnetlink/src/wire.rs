//! Messages of ctnetlink (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`), read through checked attributes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sluice_flow::connection::Direction;
use sluice_netdev::netlink::attribute::{Attribute, Attributes, Fields, Malformed, Writer};

use crate::mark::Mark;

/// `NFNL_SUBSYS_CTNETLINK`, in the upper byte of the kind of a message.
const CTNETLINK: u16 = 1 << 8;
/// `IPCTNL_MSG_CT_NEW`: a connection is there, or is to be changed.
pub const NEW: u16 = CTNETLINK;
/// `IPCTNL_MSG_CT_GET`: a connection, or all, are asked for.
pub const GET: u16 = CTNETLINK | 1;
/// `IPCTNL_MSG_CT_DELETE`: a connection is gone.
pub const DELETE: u16 = CTNETLINK | 2;

/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;

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
const ZONE: u16 = 18;
/// Of a mark that connections are asked for by, the bits that count.
const MARK_MASK: u16 = 21;

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
const STATE_OF_TCP: u16 = 1;
const TCP_STATE: u16 = 1;
const TCP_FLAGS_ORIGINAL: u16 = 4;
const TCP_FLAGS_REPLY: u16 = 5;

/// `TCP_CONNTRACK_ESTABLISHED`
const ESTABLISHED: u8 = 3;
/// `IP_CT_TCP_FLAG_BE_LIBERAL`: segments outside of the window are valid.
const BE_LIBERAL: u8 = 0x08;
/// `IP_CT_TCP_FLAG_MAXACK_SET`: an RST below the highest acknowledgement is invalid.
const MAXACK_SET: u8 = 0x20;

/// Bits of [`Entry::status`] (`enum ip_conntrack_status` of `nf_conntrack_common.h`).
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

/// What a message tells of a connection of TCP or UDP. An event tells all of it but the state of TCP, if that has not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its packets as they come in, in the direction that it began in.
    pub original: Direction,
    /// The answers as they come in.
    pub reply: Direction,
    /// Bits of [`status`].
    pub status: u32,
    /// What rules of nftables have marked it with.
    pub mark: u32,
    /// Whether it is in another zone than that of all.
    pub has_zone: bool,
    /// Whether a helper reads its packets.
    pub has_helper: bool,
    /// Of TCP, if it is told: whether it is established.
    pub is_established: Option<bool>,
    /// How long the kernel keeps it without a packet, in whole seconds, if it is told.
    pub timeout: Option<Duration>,
}

impl Entry {
    /// Whether answers do not come back as the packets that they answer came in: the kernel translates addresses or ports.
    pub fn is_translated(&self) -> bool {
        let Self { original, reply, .. } = self;
        let answers = Direction {
            source: original.destination,
            destination: original.source,
            source_port: original.destination_port,
            destination_port: original.source_port,
            ..*original
        };
        answers != *reply
    }

    /// Whether another one tells the same of a connection, apart from how long it is kept and how it is marked.
    pub fn is_alike(&self, other: &Self) -> bool {
        let told = |entry: &Self| (entry.original, entry.reply, entry.status, entry.has_zone, entry.has_helper);
        told(self) == told(other) && self.is_established == other.is_established
    }

    /// Reads what is behind the header of netlink; `None` if it is about another protocol than TCP or UDP.
    ///
    /// # Errors
    /// Fails with the place of what is cut short, missing, or not as the kernel writes it.
    pub fn read(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let _family = Fields::new(payload, PLACE).bytes::<HEADER>()?;
        let (mut original, mut reply) = (None, None);
        let (mut status, mut mark, mut has_zone, mut has_helper) = (0, 0, false, false);
        let (mut is_established, mut timeout) = (None, None);
        for attribute in Attributes::new(&payload[HEADER..], PLACE) {
            let attribute = attribute?;
            match attribute.kind {
                TUPLE_ORIGINAL => original = Some(Tuple::read(&attribute, "original direction")?),
                TUPLE_REPLY => reply = Some(Tuple::read(&attribute, "direction of answers")?),
                STATUS => status = attribute.be32()?,
                MARK => mark = attribute.be32()?,
                PROTOCOL_STATE => is_established = tcp_state(&attribute)?.map(|state| state == ESTABLISHED),
                HELPER => has_helper = true,
                TIMEOUT => timeout = Some(Duration::from_secs(attribute.be32()?.into())),
                ZONE => has_zone |= attribute.be16()? != 0,
                _ => {}
            }
        }
        let missing = |kind| Malformed::Missing { place: PLACE, kind };
        let original = original.ok_or(missing(TUPLE_ORIGINAL))?;
        let reply = reply.ok_or(missing(TUPLE_REPLY))?;
        has_zone |= original.has_zone || reply.has_zone;
        let (Some(original), Some(reply)) = (original.direction, reply.direction) else { return Ok(None) };
        if original.source.is_ipv4() != reply.source.is_ipv4() || original.protocol != reply.protocol {
            let value = "another family or protocol than that of the original direction".into();
            return Err(Malformed::Value { place: PLACE, kind: TUPLE_REPLY, value });
        }
        has_helper |= status & status::HELPER != 0;
        Ok(Some(Self { original, reply, status, mark, has_zone, has_helper, is_established, timeout }))
    }
}

/// A direction, if it is of TCP or UDP.
struct Tuple {
    direction: Option<Direction>,
    has_zone: bool,
}

impl Tuple {
    fn read(nest: &Attribute<'_>, place: &'static str) -> Result<Self, Malformed> {
        let (mut addresses, mut protocol, mut has_zone) = (None, None, false);
        for attribute in Attributes::new(nest.payload, place) {
            let attribute = attribute?;
            match attribute.kind {
                TUPLE_IP => addresses = Some(read_addresses(&attribute, place)?),
                TUPLE_PROTOCOL => protocol = Some(read_protocol(&attribute, place)?),
                TUPLE_ZONE => has_zone |= attribute.be16()? != 0,
                _ => {}
            }
        }
        let (source, destination) = addresses.ok_or(Malformed::Missing { place, kind: TUPLE_IP })?;
        let ports = protocol.ok_or(Malformed::Missing { place, kind: TUPLE_PROTOCOL })?;
        let direction = ports.map(|(protocol, source_port, destination_port)| Direction {
            source,
            destination,
            protocol,
            source_port,
            destination_port,
        });
        Ok(Self { direction, has_zone })
    }
}

fn read_addresses(nest: &Attribute<'_>, place: &'static str) -> Result<(IpAddr, IpAddr), Malformed> {
    let (mut source, mut destination) = (None, None);
    for attribute in Attributes::new(nest.payload, place) {
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

/// Returns protocol and ports; `None` for another protocol than TCP or UDP.
fn read_protocol(nest: &Attribute<'_>, place: &'static str) -> Result<Option<(u8, u16, u16)>, Malformed> {
    let (mut number, mut source, mut destination) = (None, None, None);
    for attribute in Attributes::new(nest.payload, place) {
        let attribute = attribute?;
        match attribute.kind {
            PROTOCOL_NUMBER => number = Some(attribute.u8()?),
            SOURCE_PORT => source = Some(attribute.be16()?),
            DESTINATION_PORT => destination = Some(attribute.be16()?),
            _ => {}
        }
    }
    let missing = |kind| Malformed::Missing { place, kind };
    let number = number.ok_or(missing(PROTOCOL_NUMBER))?;
    if !matches!(number, TCP | UDP) {
        return Ok(None);
    }
    Ok(Some((number, source.ok_or(missing(SOURCE_PORT))?, destination.ok_or(missing(DESTINATION_PORT))?)))
}

fn tcp_state(nest: &Attribute<'_>) -> Result<Option<u8>, Malformed> {
    let place = "state of the protocol";
    let mut state = None;
    for attribute in Attributes::new(nest.payload, place) {
        let attribute = attribute?;
        if attribute.kind == STATE_OF_TCP {
            for attribute in Attributes::new(attribute.payload, "state of TCP") {
                let attribute = attribute?;
                if attribute.kind == TCP_STATE {
                    state = Some(attribute.u8()?);
                }
            }
        }
    }
    Ok(state)
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
pub fn put_name(writer: &mut Writer<'_>, original: &Direction) {
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
        writer.nest(TUPLE_PROTOCOL, |writer| {
            writer.put(PROTOCOL_NUMBER, &[original.protocol]);
            writer.put(SOURCE_PORT, &original.source_port.to_be_bytes());
            writer.put(DESTINATION_PORT, &original.destination_port.to_be_bytes());
        });
    });
}

/// Writes what is behind the header of a change of a connection: it lives for so long from now, if that is said. Of TCP, windows no longer
/// count, nor does the highest acknowledgement, since the kernel does not see every segment.
pub fn put_change(writer: &mut Writer<'_>, original: &Direction, timeout: Option<Duration>) {
    put_name(writer, original);
    if let Some(timeout) = timeout {
        let seconds = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
        writer.put(TIMEOUT, &seconds.to_be_bytes());
    }
    if original.protocol == TCP {
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
