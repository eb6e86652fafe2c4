//! Messages of netlink and their attributes, read without any belief in them.

use crate::layout::Name;

/// `struct nlmsghdr`
pub(super) const NETLINK_HEADER: usize = 16;
/// `struct nlattr`
pub(super) const ATTRIBUTE_HEADER: usize = 4;
/// `struct genlmsghdr` behind the header of netlink, and `struct ovs_header` behind that.
const FLOW_HEADER: usize = NETLINK_HEADER + 8;
/// `NLA_TYPE_MASK`
const KIND: u16 = 0x3fff;

/// `OVS_FLOW_CMD_DEL`. Messages of a dump have a command that says nothing.
const DELETE: u8 = 2;

/// `enum ovs_flow_attr`
pub(super) mod attribute {
    pub(in super::super) const STATS: u16 = 3;
    pub(in super::super) const TCP_FLAGS: u16 = 4;
    pub(in super::super) const USED: u16 = 5;
    pub(in super::super) const UFID: u16 = 9;
}

/// Bytes up to the next border of four.
pub(super) const fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

pub(super) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).map(u16::from_ne_bytes)
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    chunk(bytes, at).map(u64::from_ne_bytes)
}

/// Writes over what is there. Returns whether there was as much.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) -> bool {
    let place = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
    place.map(|place| *place = value).is_some()
}

/// The message that begins at a place: its type, and where it ends. `None` if it makes no sense.
pub(super) fn message(datagram: &[u8], at: usize) -> Option<(u16, usize)> {
    let length = chunk(datagram, at).map(u32::from_ne_bytes).and_then(|length| usize::try_from(length).ok())?;
    let kind = half(datagram, at.wrapping_add(4))?;
    let end = at.checked_add(length)?;
    (length >= NETLINK_HEADER && end <= datagram.len()).then_some((kind, end))
}

/// Passes on where the payload of each attribute begins, its kind and its length. Returns whether all made sense.
pub(super) fn attributes(message: &[u8], mut at: usize, mut see: impl FnMut(u16, usize, usize)) -> bool {
    while at < message.len() {
        let (Some(length), Some(kind)) = (half(message, at), half(message, at.wrapping_add(2))) else { return false };
        let length = usize::from(length);
        let Some(payload) = length.checked_sub(ATTRIBUTE_HEADER) else { return false };
        if length > message.len().wrapping_sub(at) {
            return false;
        }
        see(kind & KIND, at.wrapping_add(ATTRIBUTE_HEADER), payload);
        at = at.wrapping_add(aligned(length));
    }
    true
}

/// The UFID of the message that begins at a place, if it is the first of its attributes, as it is in all of the kernel's.
pub(super) fn leading_name(datagram: &[u8], at: usize) -> Option<Name> {
    let attribute = at.wrapping_add(FLOW_HEADER);
    let is_name =
        half(datagram, attribute)? == 20 && half(datagram, attribute.wrapping_add(2))? & KIND == attribute::UFID;
    chunk(datagram, attribute.wrapping_add(ATTRIBUTE_HEADER)).filter(|_| is_name).map(Name::from_message)
}

/// What is of interest in a message about a flow. Places are those of payloads; 0 is that it is not there, for a header is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) name: Option<Name>,
    pub(super) is_deletion: bool,
    pub(super) statistics: usize,
    pub(super) used: usize,
    pub(super) tcp_flags: usize,
}

impl Flow {
    /// `None` if the message makes no sense.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let [command] = chunk(message, NETLINK_HEADER)?;
        let mut flow = Self { is_deletion: command == DELETE, ..Self::default() };
        let mut is_sound = message.len() >= FLOW_HEADER;
        is_sound &= attributes(message, FLOW_HEADER, |kind, place, length| match (kind, length) {
            (attribute::UFID, 16) => flow.name = chunk(message, place).map(Name::from_message),
            // Of another length than ever: nothing that we know how to add to. Short UFIDs name no record.
            (attribute::UFID, _) => {}
            (attribute::STATS, 16) => flow.statistics = place,
            (attribute::USED, 8) => flow.used = place,
            (attribute::TCP_FLAGS, 1) => flow.tcp_flags = place,
            (attribute::STATS | attribute::USED | attribute::TCP_FLAGS, _) => flow.name = None,
            _ => {}
        });
        is_sound.then_some(flow)
    }
}
