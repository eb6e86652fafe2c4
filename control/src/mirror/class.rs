//! The kinds of control traffic.

use std::fmt;
use std::str::FromStr;

use super::selector::{IpSelector, Selector, Transport};

/// How many classes there are.
pub const CLASSES: usize = Class::ALL.len();

/// A kind of control traffic. No packet is of two of the classes that have [selectors](Class::selectors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// ARP.
    Arp,
    /// IPv6 neighbour discovery (RFC 4861): ICMPv6 types 133 to 137.
    Nd,
    /// LLDP.
    Lldp,
    /// LACP and the other slow protocols (IEEE 802.3, annex 57A).
    Lacp,
    /// DHCP and DHCPv6, by destination port.
    Dhcp,
    /// BGP, either way.
    Bgp,
    /// BFD: single hop, echo and multihop (RFC 5881, RFC 5883), by destination port.
    Bfd,
    /// OSPF, versions 2 and 3.
    Ospf,
    /// What the action of a flow copies to a mirror port, whatever it is.
    Flow,
}

impl Class {
    /// All classes; the place of one is its code.
    pub const ALL: [Self; 9] =
        [Self::Arp, Self::Nd, Self::Lldp, Self::Lacp, Self::Dhcp, Self::Bgp, Self::Bfd, Self::Ospf, Self::Flow];

    /// Returns the name, as in the configuration and in labels of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arp => "arp",
            Self::Nd => "nd",
            Self::Lldp => "lldp",
            Self::Lacp => "lacp",
            Self::Dhcp => "dhcp",
            Self::Bgp => "bgp",
            Self::Bfd => "bfd",
            Self::Ospf => "ospf",
            Self::Flow => "flow",
        }
    }

    /// Returns the code in messages.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the class of a code, if there is one.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the place in an array of one element per class.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns which packets are of the class, apart from their VLAN tags; any one of them is enough. Empty for [`Class::Flow`], which
    /// has no packets of its own.
    pub const fn selectors(self) -> &'static [Selector] {
        match self {
            Self::Arp => const { &[Selector::ethernet(ARP)] },
            // The types 133 to 137 as values and masks.
            Self::Nd => const { &[nd(133, 0xff), nd(134, 0xfe), nd(136, 0xfe)] },
            Self::Lldp => const { &[Selector::ethernet(LLDP)] },
            Self::Lacp => const { &[Selector::ethernet(SLOW)] },
            Self::Dhcp => const { &[udp(IPV4, 67, EXACT), udp(IPV4, 68, EXACT), udp(IPV6, 546, PAIR)] },
            Self::Bgp => const { &[from_bgp(IPV4), to_bgp(IPV4), from_bgp(IPV6), to_bgp(IPV6)] },
            Self::Bfd => {
                const { &[udp(IPV4, 3784, PAIR), udp(IPV4, 4784, EXACT), udp(IPV6, 3784, PAIR), udp(IPV6, 4784, EXACT)] }
            }
            Self::Ospf => const { &[ospf(IPV4), ospf(IPV6)] },
            Self::Flow => &[],
        }
    }

    /// Returns the flow keys, in the grammar of OVS, that select the class among packets with at most `tags` VLAN tags (at most
    /// [`MAX_TAGS`](super::MAX_TAGS)). They have no `in_port`.
    pub fn flow_keys(self, tags: usize) -> Vec<String> {
        self.selectors().iter().flat_map(|selector| selector.flow_keys(tags)).collect()
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
const LLDP: u16 = 0x88cc;
const SLOW: u16 = 0x8809;

/// One port.
const EXACT: u16 = 0xffff;
/// A port with an even number, and the next one.
const PAIR: u16 = 0xfffe;

const fn nd(value: u8, mask: u8) -> Selector {
    Selector::ip(IPV6, IpSelector { protocol: 58, transport: Transport::Type { value, mask } })
}

const fn udp(ethernet_type: u16, value: u16, mask: u16) -> Selector {
    Selector::ip(ethernet_type, IpSelector { protocol: 17, transport: Transport::DestinationPort { value, mask } })
}

const fn from_bgp(ethernet_type: u16) -> Selector {
    let transport = Transport::SourcePort { value: 179, mask: EXACT };
    Selector::ip(ethernet_type, IpSelector { protocol: 6, transport })
}

const fn to_bgp(ethernet_type: u16) -> Selector {
    let transport = Transport::DestinationPort { value: 179, mask: EXACT };
    Selector::ip(ethernet_type, IpSelector { protocol: 6, transport })
}

const fn ospf(ethernet_type: u16) -> Selector {
    Selector::ip(ethernet_type, IpSelector { protocol: 89, transport: Transport::Any })
}

impl fmt::Display for Class {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A word that names no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no class of control traffic; the classes are arp, nd, lldp, lacp, dhcp, bgp, bfd, ospf and flow")]
pub struct UnknownClass(String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        Self::ALL.into_iter().find(|class| class.name() == name).ok_or_else(|| UnknownClass(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_by_its_name_and_by_its_code() {
        for class in Class::ALL {
            assert_eq!(class.name().parse(), Ok(class));
            assert_eq!(Class::of_code(class.code()), Some(class));
        }
        assert_eq!(Class::of_code(9), None);
        assert!("stp".parse::<Class>().unwrap_err().to_string().starts_with("\"stp\" is no class"));
    }

    #[test]
    fn the_keys_of_a_class_cover_frames_with_no_tag_one_and_two() {
        assert_eq!(Class::Arp.flow_keys(0), ["eth_type(0x0806)"]);
        assert_eq!(
            Class::Arp.flow_keys(2),
            [
                "eth_type(0x0806)",
                "eth_type(0x8100),vlan(),encap(eth_type(0x0806))",
                "eth_type(0x88a8),vlan(),encap(eth_type(0x0806))",
                "eth_type(0x8100),vlan(),encap(eth_type(0x8100),vlan(),encap(eth_type(0x0806)))",
                "eth_type(0x88a8),vlan(),encap(eth_type(0x8100),vlan(),encap(eth_type(0x0806)))",
            ]
        );
        assert_eq!(
            Class::Nd.flow_keys(0),
            [
                "eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=133)",
                "eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=134/0xfe)",
                "eth_type(0x86dd),ipv6(proto=58,frag=no),icmpv6(type=136/0xfe)",
            ]
        );
        assert_eq!(Class::Bgp.flow_keys(0)[0], "eth_type(0x0800),ipv4(proto=6,frag=no),tcp(src=179)");
        assert_eq!(Class::Bfd.flow_keys(0)[2], "eth_type(0x86dd),ipv6(proto=17,frag=no),udp(dst=3784/0xfffe)");
        assert_eq!(
            Class::Ospf.flow_keys(0),
            ["eth_type(0x0800),ipv4(proto=89)", "eth_type(0x86dd),ipv6(proto=89,frag=no)"]
        );
        assert!(Class::Flow.flow_keys(2).is_empty());
    }
}
