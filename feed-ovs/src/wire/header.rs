//! Attributes of a key that are one C structure each.

use sluice_flow::field::Field;
use sluice_flow::field::Field::*;
use sluice_netdev::netlink::attribute::{Attribute, Malformed};

use super::mask::Mask;

/// Numbers of attributes (`enum ovs_key_attr`) that are no single structure, or that decide where others are.
pub(super) mod kind {
    pub(in super::super) const ENCAP: u16 = 1;
    pub(in super::super) const ETHERNET: u16 = 4;
    pub(in super::super) const VLAN: u16 = 5;
    pub(in super::super) const ETHERTYPE: u16 = 6;
    pub(in super::super) const TUNNEL: u16 = 16;
    pub(in super::super) const MPLS: u16 = 21;
    pub(in super::super) const NSH: u16 = 28;
}

/// A structure.
pub(super) struct Header {
    /// Its number (`enum ovs_key_attr`).
    kind: u16,
    order: Order,
    /// Its members, in order, with the bytes of each. C may put unused bytes behind the last.
    members: &'static [(Field, usize)],
}

/// How numbers are stored.
#[derive(Clone, Copy)]
enum Order {
    Network,
    Host,
}

const fn network(kind: u16, members: &'static [(Field, usize)]) -> Header {
    Header { kind, order: Order::Network, members }
}

const fn host(kind: u16, members: &'static [(Field, usize)]) -> Header {
    Header { kind, order: Order::Host, members }
}

const HEADERS: [Header; 22] = [
    host(2, &[(SkbPriority, 4)]),
    host(3, &[(InPort, 4)]),
    network(kind::ETHERNET, &[(EthSrc, 6), (EthDst, 6)]),
    network(7, &[(Ipv4Src, 4), (Ipv4Dst, 4), (Ipv4Proto, 1), (Ipv4Tos, 1), (Ipv4Ttl, 1), (Ipv4Frag, 1)]),
    network(
        8,
        &[
            (Ipv6Src, 16),
            (Ipv6Dst, 16),
            (Ipv6Label, 4),
            (Ipv6Proto, 1),
            (Ipv6Tclass, 1),
            (Ipv6Hlimit, 1),
            (Ipv6Frag, 1),
        ],
    ),
    network(9, &[(TcpSrc, 2), (TcpDst, 2)]),
    network(10, &[(UdpSrc, 2), (UdpDst, 2)]),
    network(11, &[(IcmpType, 1), (IcmpCode, 1)]),
    network(12, &[(Icmpv6Type, 1), (Icmpv6Code, 1)]),
    network(13, &[(ArpSip, 4), (ArpTip, 4), (ArpOp, 2), (ArpSha, 6), (ArpTha, 6)]),
    network(14, &[(NdTarget, 16), (NdSll, 6), (NdTll, 6)]),
    host(15, &[(SkbMark, 4)]),
    network(17, &[(SctpSrc, 2), (SctpDst, 2)]),
    network(18, &[(TcpFlags, 2)]),
    host(19, &[(DpHash, 4)]),
    host(20, &[(RecircId, 4)]),
    host(22, &[(CtState, 4)]),
    host(23, &[(CtZone, 2)]),
    host(24, &[(CtMark, 4)]),
    host(25, &[(CtLabel, 16)]),
    network(26, &[(CtTuple4Src, 4), (CtTuple4Dst, 4), (CtTuple4TpSrc, 2), (CtTuple4TpDst, 2), (CtTuple4Proto, 1)]),
    network(27, &[(CtTuple6Src, 16), (CtTuple6Dst, 16), (CtTuple6TpSrc, 2), (CtTuple6TpDst, 2), (CtTuple6Proto, 1)]),
];

impl Header {
    /// Returns that of a number, if the attribute is one.
    pub(super) fn of(kind: u16) -> Option<&'static Self> {
        HEADERS.iter().find(|header| header.kind == kind)
    }

    /// Passes the fields on, each with its value and mask. Fails if the attribute is shorter than the structure, or the mask is of another
    /// length.
    pub(super) fn read(
        &self,
        attribute: &Attribute<'_>,
        mask: Mask<'_>,
        see: &mut dyn FnMut(Field, u128, u128),
    ) -> Result<(), Malformed> {
        if matches!(mask, Mask::Bytes(bytes) if bytes.len() != attribute.payload.len()) {
            return Err(attribute.value("as long as its mask is not"));
        }
        let mut at = 0;
        for (field, length) in self.members {
            let value = attribute.payload.get(at..at + length).ok_or_else(|| attribute.length())?;
            let mask = (at..at + length).map(|place| mask.byte(place));
            see(*field, self.number(value.iter().copied()), self.number(mask));
            at += length;
        }
        Ok(())
    }

    fn number(&self, bytes: impl DoubleEndedIterator<Item = u8>) -> u128 {
        match self.order {
            Order::Network => number(bytes),
            Order::Host if cfg!(target_endian = "little") => number(bytes.rev()),
            Order::Host => number(bytes),
        }
    }
}

/// A number of which the highest byte is the first.
pub(super) fn number(bytes: impl IntoIterator<Item = u8>) -> u128 {
    bytes.into_iter().fold(0, |number, byte| number << 8 | u128::from(byte))
}
