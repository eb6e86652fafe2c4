//! The attributes of a flow key that are one C structure each.

use sluice_flow::field::{Attribute, Field};
use sluice_flow::key::Key;

/// `enum ovs_key_attr`.
pub(super) mod number {
    pub(in super::super) const ENCAP: u16 = 1;
    pub(in super::super) const PRIORITY: u16 = 2;
    pub(in super::super) const IN_PORT: u16 = 3;
    pub(in super::super) const ETHERNET: u16 = 4;
    pub(in super::super) const VLAN: u16 = 5;
    pub(in super::super) const ETHERTYPE: u16 = 6;
    pub(in super::super) const IPV4: u16 = 7;
    pub(in super::super) const IPV6: u16 = 8;
    pub(in super::super) const TCP: u16 = 9;
    pub(in super::super) const UDP: u16 = 10;
    pub(in super::super) const ICMP: u16 = 11;
    pub(in super::super) const ICMPV6: u16 = 12;
    pub(in super::super) const ARP: u16 = 13;
    pub(in super::super) const ND: u16 = 14;
    pub(in super::super) const SKB_MARK: u16 = 15;
    pub(in super::super) const TUNNEL: u16 = 16;
    pub(in super::super) const SCTP: u16 = 17;
    pub(in super::super) const TCP_FLAGS: u16 = 18;
    pub(in super::super) const DP_HASH: u16 = 19;
    pub(in super::super) const RECIRC_ID: u16 = 20;
    pub(in super::super) const MPLS: u16 = 21;
    pub(in super::super) const CT_STATE: u16 = 22;
    pub(in super::super) const CT_ZONE: u16 = 23;
    pub(in super::super) const CT_MARK: u16 = 24;
    pub(in super::super) const CT_LABELS: u16 = 25;
    pub(in super::super) const CT_ORIG_TUPLE_IPV4: u16 = 26;
    pub(in super::super) const CT_ORIG_TUPLE_IPV6: u16 = 27;
    pub(in super::super) const NSH: u16 = 28;
}

/// A structure: its number and its members in order.
pub(super) struct Header {
    pub(super) number: u16,
    members: &'static [(Field, usize)],
    order: Order,
    /// Bytes that C puts behind the last member.
    padding: usize,
}

/// How the members are stored.
#[derive(Clone, Copy)]
enum Order {
    Network,
    Host,
}

impl Header {
    const fn network(number: u16, members: &'static [(Field, usize)]) -> Self {
        Self { number, members, order: Order::Network, padding: 0 }
    }

    const fn host(number: u16, members: &'static [(Field, usize)]) -> Self {
        Self { number, members, order: Order::Host, padding: 0 }
    }

    const fn padded(self, padding: usize) -> Self {
        Self { padding, ..self }
    }

    /// The structure with the values of a key.
    pub(super) fn bytes(&self, key: &Key) -> Vec<u8> {
        let mut bytes = vec![];
        for (field, width) in self.members {
            let value = key.get(*field);
            match self.order {
                Order::Network => bytes.extend(&value.to_be_bytes()[16 - width..]),
                Order::Host => bytes.extend(&value.to_le_bytes()[..*width]),
            }
        }
        bytes.resize(bytes.len() + self.padding, 0);
        bytes
    }

    /// Whether any member is not zero.
    pub(super) fn touches(&self, mask: &Key) -> bool {
        self.members.iter().any(|(field, _)| mask.get(*field) != 0)
    }
}

// The module's host order is written as little-endian, which the lab's machine is.
const _: () = assert!(cfg!(target_endian = "little"));

/// The structure of an attribute; `None` for what is no structure.
pub(super) const fn header(attribute: Attribute) -> Option<Header> {
    use Field::*;
    Some(match attribute {
        Attribute::RecircId => Header::host(number::RECIRC_ID, &[(RecircId, 4)]),
        Attribute::DpHash => Header::host(number::DP_HASH, &[(DpHash, 4)]),
        Attribute::SkbPriority => Header::host(number::PRIORITY, &[(SkbPriority, 4)]),
        Attribute::InPort => Header::host(number::IN_PORT, &[(InPort, 4)]),
        Attribute::SkbMark => Header::host(number::SKB_MARK, &[(SkbMark, 4)]),
        Attribute::CtState => Header::host(number::CT_STATE, &[(CtState, 4)]),
        Attribute::CtZone => Header::host(number::CT_ZONE, &[(CtZone, 2)]),
        Attribute::CtMark => Header::host(number::CT_MARK, &[(CtMark, 4)]),
        Attribute::CtLabel => Header::host(number::CT_LABELS, &[(CtLabel, 16)]),
        Attribute::CtTuple4 => Header::network(
            number::CT_ORIG_TUPLE_IPV4,
            &[(CtTuple4Src, 4), (CtTuple4Dst, 4), (CtTuple4TpSrc, 2), (CtTuple4TpDst, 2), (CtTuple4Proto, 1)],
        )
        .padded(3),
        Attribute::CtTuple6 => Header::network(
            number::CT_ORIG_TUPLE_IPV6,
            &[(CtTuple6Src, 16), (CtTuple6Dst, 16), (CtTuple6TpSrc, 2), (CtTuple6TpDst, 2), (CtTuple6Proto, 1)],
        )
        .padded(3),
        Attribute::Ethernet => Header::network(number::ETHERNET, &[(EthSrc, 6), (EthDst, 6)]),
        Attribute::EthType => Header::network(number::ETHERTYPE, &[(EthType, 2)]),
        Attribute::Ipv4 => Header::network(
            number::IPV4,
            &[(Ipv4Src, 4), (Ipv4Dst, 4), (Ipv4Proto, 1), (Ipv4Tos, 1), (Ipv4Ttl, 1), (Ipv4Frag, 1)],
        ),
        Attribute::Ipv6 => Header::network(
            number::IPV6,
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
        Attribute::Arp => {
            Header::network(number::ARP, &[(ArpSip, 4), (ArpTip, 4), (ArpOp, 2), (ArpSha, 6), (ArpTha, 6)]).padded(2)
        }
        Attribute::Tcp => Header::network(number::TCP, &[(TcpSrc, 2), (TcpDst, 2)]),
        Attribute::TcpFlags => Header::network(number::TCP_FLAGS, &[(TcpFlags, 2)]),
        Attribute::Udp => Header::network(number::UDP, &[(UdpSrc, 2), (UdpDst, 2)]),
        Attribute::Sctp => Header::network(number::SCTP, &[(SctpSrc, 2), (SctpDst, 2)]),
        Attribute::Icmp => Header::network(number::ICMP, &[(IcmpType, 1), (IcmpCode, 1)]),
        Attribute::Icmpv6 => Header::network(number::ICMPV6, &[(Icmpv6Type, 1), (Icmpv6Code, 1)]),
        Attribute::Nd => Header::network(number::ND, &[(NdTarget, 16), (NdSll, 6), (NdTll, 6)]),
        Attribute::Tunnel
        | Attribute::PacketType
        | Attribute::NumOfVlans
        | Attribute::Vlan
        | Attribute::Cvlan
        | Attribute::Mpls
        | Attribute::Nsh
        | Attribute::Pppoe
        | Attribute::Cfm
        | Attribute::NdExt
        | Attribute::L2tpv3
        | Attribute::Ipsec => return None,
    })
}
