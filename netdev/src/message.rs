//! Messages of rtnetlink about links and traffic control, and what they notify of.

use netlink_packet_core::{DecodeError, Emitable, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkHeader, LinkMessage};

use crate::device::{Device, Ifindex, NamespaceId};
use crate::ingress::IngressQdisc;
use crate::kind;
use crate::netlink::attribute::{Attributes, Malformed, Writer};
use crate::netlink::message::{Header, Message};
use crate::touched_filters::TouchedFilters;
use crate::traffic_control::TcView;

/// `IFLA_WIRELESS` and `IFLA_IFALIAS`
const WIRELESS: u16 = 11;
const ALIAS: u16 = 20;

/// What a message of the kernel tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A device is there, and so it is now.
    Link(Box<Device>),
    /// A device is there, of which no sense could be made.
    Unreadable(Ifindex, String),
    /// A device is gone.
    LinkGone(Ifindex, Option<Destination>),
    /// A device has this queueing discipline for filters now. Last the socket that asked for it.
    Qdisc(Ifindex, IngressQdisc, u32),
    /// A device has none for filters any more. Last the socket that asked for it.
    QdiscGone(Ifindex, u32),
    /// A filter was put in or replaced.
    FilterPut(TouchedFilters),
    /// Filters went.
    FiltersGone(TouchedFilters),
    /// Actions were put in, changed or taken away by themselves, and not with a filter. The socket that asked for it.
    Actions(u32),
}

/// Where a device went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) namespace: Option<NamespaceId>,
    pub(crate) ifindex: Option<Ifindex>,
}

impl Notice {
    /// Reads a message; `None` if it is about something else.
    pub(crate) fn read(message: &Message<'_>) -> Result<Option<Self>, Malformed> {
        let Header { kind, port, .. } = message.header;
        match kind {
            kind::NEW_LINK | kind::DELETE_LINK => read_link(message),
            kind::NEW_QDISC => {
                let found = IngressQdisc::read(&TcView::new(message.payload)?)?;
                Ok(found.map(|(ifindex, qdisc)| Self::Qdisc(ifindex, qdisc, port)))
            }
            kind::DELETE_QDISC => {
                let found = IngressQdisc::read(&TcView::new(message.payload)?)?;
                Ok(found.map(|(ifindex, _)| Self::QdiscGone(ifindex, port)))
            }
            kind::NEW_FILTER | kind::DELETE_FILTER => {
                let found = TouchedFilters::read(&TcView::new(message.payload)?, port)?;
                Ok(found.map(if kind == kind::NEW_FILTER { Self::FilterPut } else { Self::FiltersGone }))
            }
            kind::NEW_ACTION | kind::DELETE_ACTION => Ok(Some(Self::Actions(port))),
            _ => Ok(None),
        }
    }
}

fn read_link(message: &Message<'_>) -> Result<Option<Notice>, Malformed> {
    let place = "link";
    let header = LinkHeader::parse(message.payload).map_err(|_| Malformed::Truncated { place })?;
    // A bridge tells of its ports by the same messages: one that leaves it is not gone.
    if header.interface_family != AddressFamily::Unspec {
        return Ok(None);
    }
    // Drivers for wireless LAN tell of scans by a message with the name of the device and nothing else of it.
    let attributes = Attributes::new(message.payload.get(header.buffer_len()..).unwrap_or_default(), place);
    if attributes.flatten().any(|attribute| attribute.kind == WIRELESS) {
        return Ok(None);
    }
    let ifindex = Ifindex(header.index);
    let is_gone = message.header.kind == kind::DELETE_LINK;
    let notice = match parse_link(message.payload) {
        Ok(link) if is_gone => Notice::LinkGone(ifindex, destination(&link)),
        Ok(link) => match Device::new(&link) {
            Ok(device) => Notice::Link(Box::new(device)),
            Err(nameless) => Notice::Unreadable(ifindex, nameless.to_string()),
        },
        Err(_) if is_gone => Notice::LinkGone(ifindex, None),
        Err(error) => Notice::Unreadable(ifindex, error.to_string()),
    };
    Ok(Some(notice))
}

/// Reads what is behind the header of a message about a device. Whoever leaves a text at a device (`IFLA_IFALIAS`) may leave any bytes there:
/// what is no text is passed over, for all else that the kernel says of the device holds.
pub(crate) fn parse_link(payload: &[u8]) -> Result<LinkMessage, DecodeError> {
    LinkMessage::parse(payload).or_else(|error| match without_alias(payload) {
        Some(rest) => LinkMessage::parse(&rest),
        None => Err(error),
    })
}

fn without_alias(payload: &[u8]) -> Option<Vec<u8>> {
    let (header, attributes) = payload.split_at_checked(LinkHeader::default().buffer_len())?;
    let mut rest = header.to_vec();
    let mut writer = Writer::new(&mut rest);
    for attribute in Attributes::new(attributes, "link") {
        let attribute = attribute.ok()?;
        if attribute.kind != ALIAS {
            writer.put(attribute.kind, attribute.payload);
        }
    }
    Some(rest)
}

/// Where it went, if it only went to another namespace.
fn destination(link: &LinkMessage) -> Option<Destination> {
    let namespace = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::NewNetnsId(id) => Some(*id),
        _ => None,
    })?;
    let ifindex = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::NewIfIndex(index) => u32::try_from(*index).ok(),
        _ => None,
    });
    // `NETNSA_NSID_NOT_ASSIGNED` is -1.
    Some(Destination { namespace: u32::try_from(namespace).ok().map(NamespaceId), ifindex: ifindex.map(Ifindex) })
}

/// What a request for devices says: which one, or with an empty name all of them, and that counters are not wanted.
pub(crate) fn emit_get_link(name: Option<&str>, writer: &mut Writer<'_>) {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    message.attributes.extend(name.map(|name| LinkAttribute::IfName(name.into())));
    emit_link(&message, writer);
}

pub(crate) fn emit_link(message: &LinkMessage, writer: &mut Writer<'_>) {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    writer.raw(&bytes);
}
