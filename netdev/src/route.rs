//! Messages of rtnetlink about routes and neighbours (`struct rtmsg` and `struct ndmsg` in `include/uapi/linux`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rustix::io::Errno;

use crate::control::Control;
use crate::device::Ifindex;
use crate::error::LinkError;
use crate::netlink::attribute::{Attribute, Attributes, Fields, Malformed, Writer};
use crate::netlink::message::{Message, flag};
use crate::next_hop::{PacketPorts, Target};
use crate::vlan::{self, VlanDevice};
use crate::{kind, message};

/// An Ethernet address.
pub type MacAddress = [u8; 6];

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_VIA: u16 = 18;
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;
/// In `RTA_METRICS`.
const RTAX_MTU: u16 = 2;
/// `IFLA_AF_SPEC`, in it `AF_INET6`, and in that `IFLA_INET6_CONF`: numbers of which the third is the MTU for IPv6 (`DEVCONF_MTU6`).
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_CONF: u16 = 2;
const DEVCONF_MTU6: usize = 2;
/// Bytes of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;
/// `RTN_UNICAST`
const UNICAST: u8 = 1;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// `NTF_USE`: the neighbour is to be found, as if a packet were sent to it.
const USE: u8 = 1;
/// `NUD_REACHABLE`, `NUD_STALE`, `NUD_DELAY`, `NUD_PROBE`, `NUD_NOARP` and `NUD_PERMANENT`: packets are sent to it (`NUD_VALID`).
const VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// `NUD_REACHABLE`, `NUD_NOARP` and `NUD_PERMANENT`: nothing is in doubt (`NUD_CONNECTED`).
const CONNECTED: u16 = 0x02 | 0x40 | 0x80;
/// `NUD_FAILED`
const FAILED: u16 = 0x20;

/// Devices of VLANs, one above the other, of which it is looked up what is below them. Packets with more tags match no flow.
const VLAN_DEVICES: usize = 2;

/// The way that the kernel sends packets to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The device by which they leave.
    pub(crate) egress: Ifindex,
    /// Whom they are given to on the way.
    pub(crate) neighbour: IpAddr,
    /// From which address they come.
    pub(crate) source: Option<IpAddr>,
    /// The bytes of the longest packet, if the route says so and not the device.
    pub(crate) mtu: Option<u32>,
}

/// Whom packets are given to, on one device.
pub(crate) type NeighbourKey = (Ifindex, IpAddr);

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Neighbour {
    /// Its Ethernet address, as long as packets are sent to it.
    pub(crate) mac: Option<MacAddress>,
    /// It was asked for and did not answer.
    pub(crate) has_failed: bool,
    /// It answered lately, or need not.
    pub(crate) is_certain: bool,
}

/// The end of a device that packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    pub(crate) name: String,
    pub(crate) mac: Option<MacAddress>,
    pub(crate) mtu: u32,
    /// That of packets of IPv6, if it has IPv6: a router may have announced a shorter one (RFC 4861, section 4.6.4), or somebody set it.
    pub(crate) mtu6: Option<u32>,
    /// It is up, and so are the devices below it, if it is one of a VLAN.
    pub(crate) is_up: bool,
    /// If it is one of a VLAN: itself, and those devices of VLANs that are below it, the lowest one last.
    pub(crate) vlans: Arc<[VlanDevice]>,
}

/// Asks the kernel for its way to an address: that of its own packets, or of those that came in by a device. Fails with its reason if it
/// has none.
pub(crate) fn route(control: &mut Control, target: Target) -> Result<Option<Route>, LinkError> {
    let Target { destination, source, ingress, ports } = target;
    let mut found = None;
    let body = |writer: &mut Writer<'_>| {
        let bits = |address: Option<IpAddr>| address.map_or(0, |address| if address.is_ipv4() { 32 } else { 128 });
        writer.raw(&[family(destination), bits(Some(destination)), bits(source), 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        put_address(writer, RTA_DST, destination);
        if let Some(source) = source {
            put_address(writer, RTA_SRC, source);
        }
        if let Some(ingress) = ingress {
            writer.put(RTA_IIF, &ingress.0.to_ne_bytes());
        }
        if let Some(PacketPorts { protocol, source, destination }) = ports {
            writer.put(RTA_IP_PROTO, &[protocol]);
            writer.put(RTA_SPORT, &source.to_be_bytes());
            writer.put(RTA_DPORT, &destination.to_be_bytes());
        }
    };
    control.request("look up a route", kind::GET_ROUTE, 0, body, |message| {
        if message.header.kind == kind::NEW_ROUTE {
            found = read_route(message, destination)?;
        }
        Ok(())
    })?;
    Ok(found.map(|route: Route| Route { source: source.or(route.source), ..route }))
}

/// Returns `None` for a way that is none: to this host itself, to a group, or nowhere.
fn read_route(message: &Message<'_>, destination: IpAddr) -> Result<Option<Route>, Malformed> {
    let place = "route";
    let mut fields = Fields::new(message.payload, place);
    let [.., route_type] = fields.bytes::<8>()?;
    let _flags = fields.u32()?;
    if route_type != UNICAST {
        return Ok(None);
    }
    let (mut egress, mut neighbour, mut source, mut mtu) = (None, destination, None, None);
    for attribute in Attributes::new(message.payload.get(12..).unwrap_or_default(), place) {
        let attribute = attribute?;
        match attribute.kind {
            RTA_OIF => egress = Some(Ifindex(attribute.u32()?)),
            RTA_GATEWAY => neighbour = address(&attribute, attribute.payload)?,
            // Its family comes first: a gateway of IPv6 for addresses of IPv4 (RFC 5549).
            RTA_VIA => neighbour = address(&attribute, attribute.payload.get(2..).unwrap_or_default())?,
            RTA_PREFSRC => source = Some(address(&attribute, attribute.payload)?),
            RTA_METRICS => {
                for metric in Attributes::new(attribute.payload, "metrics of a route") {
                    let metric = metric?;
                    if metric.kind == RTAX_MTU {
                        mtu = Some(metric.u32()?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(egress.map(|egress| Route { egress, neighbour, source, mtu }))
}

/// Returns the addresses that a route is for, of which a message tells that it is there, has changed or is gone; `None` if it is about something
/// else.
pub(crate) fn read_destinations(message: &Message<'_>) -> Result<Option<RangeInclusive<IpAddr>>, Malformed> {
    if !matches!(message.header.kind, kind::NEW_ROUTE | kind::DELETE_ROUTE) {
        return Ok(None);
    }
    let place = "route";
    let [family, length, ..]: [u8; 12] = Fields::new(message.payload, place).bytes()?;
    // Without an address it is for all.
    let mut first = match family {
        AF_INET => Ok(Ipv4Addr::UNSPECIFIED.into()),
        AF_INET6 => Ok(Ipv6Addr::UNSPECIFIED.into()),
        _ => Err(Malformed::Missing { place, kind: RTA_DST }),
    }?;
    for attribute in Attributes::new(message.payload.get(12..).unwrap_or_default(), place) {
        let attribute = attribute?;
        if attribute.kind == RTA_DST {
            first = address(&attribute, attribute.payload)?;
        }
    }
    let length = u32::from(length);
    Ok(Some(match first {
        IpAddr::V4(first) => {
            let host = u32::MAX.checked_shr(length).unwrap_or(0);
            IpAddr::V4((first.to_bits() & !host).into())..=IpAddr::V4((first.to_bits() | host).into())
        }
        IpAddr::V6(first) => {
            let host = u128::MAX.checked_shr(length).unwrap_or(0);
            IpAddr::V6((first.to_bits() & !host).into())..=IpAddr::V6((first.to_bits() | host).into())
        }
    }))
}

/// Returns what the kernel knows of a neighbour.
pub(crate) fn neighbour(control: &mut Control, (egress, address): NeighbourKey) -> Result<Neighbour, LinkError> {
    let mut found = Neighbour::default();
    let body = |writer: &mut Writer<'_>| put_neighbour(writer, egress, address, 0);
    let answer = control.request("look up a neighbour", kind::GET_NEIGHBOUR, 0, body, |message| {
        if let Some((_, neighbour)) = read_neighbour(message)? {
            found = neighbour;
        }
        Ok(())
    });
    match answer {
        Err(error) if error.is(Errno::NOENT) => Ok(Neighbour::default()),
        answer => answer.map(|()| found),
    }
}

/// Has the kernel find a neighbour, or make sure of it, as it does before it sends a packet.
pub(crate) fn solicit(control: &mut Control, (egress, address): NeighbourKey) -> Result<(), LinkError> {
    let body = |writer: &mut Writer<'_>| put_neighbour(writer, egress, address, USE);
    control.request("ask for a neighbour", kind::NEW_NEIGHBOUR, flag::CREATE | flag::REPLACE, body, |_| Ok(()))
}

/// Reads a message about a neighbour; `None` if it is about something else.
pub(crate) fn read_neighbour(message: &Message<'_>) -> Result<Option<(NeighbourKey, Neighbour)>, Malformed> {
    if !matches!(message.header.kind, kind::NEW_NEIGHBOUR | kind::DELETE_NEIGHBOUR) {
        return Ok(None);
    }
    let place = "neighbour";
    let mut fields = Fields::new(message.payload, place);
    let [family, _, _, _] = fields.bytes()?;
    let (egress, state) = (fields.u32()?, fields.u16()?);
    // Bridges tell of their ports by the same messages.
    if !matches!(family, AF_INET | AF_INET6) {
        return Ok(None);
    }
    let (mut known_as, mut mac) = (None, None);
    for attribute in Attributes::new(message.payload.get(12..).unwrap_or_default(), place) {
        let attribute = attribute?;
        match attribute.kind {
            NDA_DST => known_as = Some(address(&attribute, attribute.payload)?),
            NDA_LLADDR => mac = attribute.payload.try_into().ok(),
            _ => {}
        }
    }
    let is_gone = message.header.kind == kind::DELETE_NEIGHBOUR;
    let is_valid = state & VALID != 0 && !is_gone;
    let neighbour = Neighbour {
        mac: mac.filter(|_| is_valid),
        has_failed: state & FAILED != 0,
        is_certain: state & CONNECTED != 0 && !is_gone,
    };
    Ok(known_as.map(|address| ((Ifindex(egress), address), neighbour)))
}

/// Returns the end of a device; `None` if it is gone, or if no sense can be made of it.
pub(crate) fn egress(control: &mut Control, ifindex: Ifindex) -> Result<Option<Egress>, LinkError> {
    let Some((mut found, mut vlan)) = link(control, ifindex)? else { return Ok(None) };
    let mut vlans = Vec::new();
    while let Some((device, lower)) = vlan.take() {
        vlans.push(device);
        let (Some(lower), 1..=VLAN_DEVICES) = (lower, vlans.len()) else { break };
        let Some((below, next)) = link(control, lower)? else { break };
        found.is_up &= below.is_up;
        vlan = next;
        if let Some(device) = vlans.last_mut() {
            device.lower = Some(below.name);
        }
    }
    found.vlans = vlans.into();
    Ok(Some(found))
}

/// Looks up one device, and if it is one of a VLAN, which one is below it.
fn link(control: &mut Control, ifindex: Ifindex) -> Result<Option<Link>, LinkError> {
    let mut request = LinkMessage::default();
    request.header.index = ifindex.0;
    let mut found = None;
    let body = |writer: &mut Writer<'_>| message::emit_link(&request, writer);
    let answer = control.request("look up a device", kind::GET_LINK, 0, body, |message| {
        found = read_link(message.payload);
        Ok(())
    });
    match answer {
        Err(error) if error.is(Errno::NODEV) => Ok(None),
        answer => answer.map(|()| found),
    }
}

/// A device, and what is to be known of it if it is one of a VLAN.
type Link = (Egress, Option<(VlanDevice, Option<Ifindex>)>);

/// Returns `None` if no sense can be made of it, which must not hold up those that leave by other devices.
fn read_link(payload: &[u8]) -> Option<Link> {
    let link = message::parse_link(payload).ok()?;
    let vlan = vlan::read(&link);
    let is_up = link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
    let (mtu6, vlans) = (mtu6(payload), Arc::default());
    let mut egress = Egress { name: String::new(), mac: None, mtu: 0, mtu6, is_up, vlans };
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => egress.name = name,
            LinkAttribute::Address(bytes) => egress.mac = bytes.try_into().ok(),
            LinkAttribute::Mtu(mtu) => egress.mtu = mtu,
            _ => {}
        }
    }
    Some((egress, vlan))
}

fn mtu6(payload: &[u8]) -> Option<u32> {
    let find = |bytes, wanted| Attributes::new(bytes, "device").flatten().find(|attribute| attribute.kind == wanted);
    let families = find(payload.get(LINK_HEADER..)?, IFLA_AF_SPEC)?;
    let numbers = find(find(families.payload, AF_INET6.into())?.payload, IFLA_INET6_CONF)?;
    numbers.payload.as_chunks().0.get(DEVCONF_MTU6).map(|number| u32::from_ne_bytes(*number))
}

fn put_neighbour(writer: &mut Writer<'_>, egress: Ifindex, address: IpAddr, flags: u8) {
    let [a, b, c, d] = egress.0.to_ne_bytes();
    writer.raw(&[family(address), 0, 0, 0, a, b, c, d, 0, 0, flags, 0]);
    put_address(writer, NDA_DST, address);
}

fn put_address(writer: &mut Writer<'_>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => writer.put(kind, &address.octets()),
        IpAddr::V6(address) => writer.put(kind, &address.octets()),
    }
}

const fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn address(attribute: &Attribute<'_>, bytes: &[u8]) -> Result<IpAddr, Malformed> {
    let four = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    let six = || <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into());
    four.or_else(|_| six()).map_err(|_| attribute.length())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::golden;

    #[test]
    fn a_device_of_which_no_sense_can_be_made_is_no_error_and_one_with_an_odd_text_at_it_a_way_as_any() {
        let (_, link) = golden("link-veth");
        // IFLA_MTU of one byte, and an IFLA_IFALIAS in ISO 8859-1.
        assert_eq!(read_link(&[&link[..], &[5, 0, 4, 0, 1, 0, 0, 0]].concat()), None);
        let named = read_link(&[&link[..], &[6, 0, 20, 0, b'b', 0xfc, 0, 0]].concat());
        assert_eq!(named, read_link(&link));
        assert_eq!(named.unwrap().0.name, "v0");
    }

    #[test]
    fn a_device_says_how_long_packets_of_ipv6_may_be() {
        let numbers: Vec<u8> = [0, 64, 1_400, 1].into_iter().flat_map(i32::to_ne_bytes).collect();
        let of = |numbers: &[u8]| {
            let mut bytes = vec![0; LINK_HEADER];
            let mut writer = Writer::new(&mut bytes);
            writer.put(4, &1_500_u32.to_ne_bytes());
            writer.nest(IFLA_AF_SPEC, |writer| {
                writer.nest(AF_INET.into(), |writer| writer.put(IFLA_INET6_CONF, &[7; 16]));
                writer.nest(AF_INET6.into(), |writer| writer.put(IFLA_INET6_CONF, numbers));
            });
            writer.finish().unwrap();
            read_link(&bytes).map(|(egress, _)| (egress.mtu, egress.mtu6))
        };
        assert_eq!(of(&numbers), Some((1_500, Some(1_400))));
        assert_eq!(of(&numbers[..10]), Some((1_500, None)));
        let (_, link) = golden("link-veth");
        assert_eq!(read_link(&link).unwrap().0.mtu6, Some(1_500));
    }

    /// The destinations of a message about a route for the addresses of a prefix.
    fn destinations(family: u8, length: u8, address: &[u8]) -> Result<Option<RangeInclusive<IpAddr>>, Malformed> {
        let mut payload = vec![0; 12];
        (payload[0], payload[1]) = (family, length);
        let mut writer = Writer::new(&mut payload);
        if !address.is_empty() {
            writer.put(RTA_DST, address);
        }
        writer.finish().unwrap();
        let header = crate::netlink::message::Header { kind: kind::DELETE_ROUTE, flags: 0, sequence: 0, port: 0 };
        read_destinations(&Message { header, payload: &payload })
    }

    #[test]
    fn a_route_is_for_the_addresses_of_its_prefix() {
        let addresses = |first: &str, last: &str| Ok(Some(first.parse().unwrap()..=last.parse().unwrap()));
        assert_eq!(destinations(AF_INET, 20, &[10, 1, 16, 0]), addresses("10.1.16.0", "10.1.31.255"));
        assert_eq!(destinations(AF_INET, 32, &[10, 1, 16, 7]), addresses("10.1.16.7", "10.1.16.7"));
        assert_eq!(destinations(AF_INET, 0, &[]), addresses("0.0.0.0", "255.255.255.255"));
        let prefix: Ipv6Addr = "2001:db8::".parse().unwrap();
        assert_eq!(
            destinations(AF_INET6, 32, &prefix.octets()),
            addresses("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff")
        );
        assert_eq!(destinations(AF_INET6, 0, &[]), addresses("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
        assert!(destinations(AF_INET, 20, &[10, 1]).is_err() && destinations(28, 20, &[0; 4]).is_err());
    }
}
