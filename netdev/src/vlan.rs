//! VLAN devices: which tag their packets have, and by which device these leave.

use netlink_packet_route::link::{InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkMessage};

use crate::device::Ifindex;

/// A tag of IEEE 802.1Q or 802.1ad, without its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Its Ethernet type, 0x8100 or 0x88a8.
    pub protocol: u16,
    /// The number of the VLAN.
    pub id: u16,
}

/// A device of type `vlan`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VlanDevice {
    /// What it puts on packets that leave by it, and takes off those that come in.
    pub tag: VlanTag,
    /// Whether some packets that leave by it may have another priority in their tag than 0 (`egress-qos-map`).
    pub gives_priorities: bool,
    /// The device below it, by which its tagged packets leave; `None` if that is in another network namespace, or was not looked up.
    pub lower: Option<String>,
}

/// Reads of a device whether it is of type `vlan`, and then the number of the device below it, if that is in the same network namespace.
pub(crate) fn read(link: &LinkMessage) -> Option<(VlanDevice, Option<Ifindex>)> {
    let (mut lower, mut is_elsewhere, mut parts) = (None, false, &[][..]);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Link(ifindex) => lower = Some(Ifindex(*ifindex)),
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::LinkInfo(info) => parts = info,
            _ => {}
        }
    }
    if !parts.contains(&LinkInfo::Kind(InfoKind::Vlan)) {
        return None;
    }
    let (mut id, mut protocol, mut gives_priorities) = (None, None, false);
    let data = parts.iter().find_map(|part| match part {
        LinkInfo::Data(InfoData::Vlan(data)) => Some(data),
        _ => None,
    });
    for part in data.into_iter().flatten() {
        match part {
            InfoVlan::Id(told) => id = Some(*told),
            InfoVlan::Protocol(told) => protocol = Some(u16::from(*told)),
            // The kernel tells only of priorities that stand for another one than 0.
            InfoVlan::EgressQos(priorities) => gives_priorities = !priorities.is_empty(),
            _ => {}
        }
    }
    let is_whole = id.is_some() && protocol.is_some() && !is_elsewhere;
    let tag = VlanTag { protocol: protocol.unwrap_or_default(), id: id.unwrap_or_default() };
    Some((VlanDevice { tag, gives_priorities, lower: None }, lower.filter(|_| is_whole)))
}
