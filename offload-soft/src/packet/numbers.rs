//! Numbers that headers tell of what comes behind them, and addresses.

/// An Ethernet address as it stands on the wire.
pub type Mac = [u8; 6];

/// Bytes of an Ethernet header: nothing is cut shorter than that (`ETH_HLEN`).
pub(crate) const MIN_FRAME: usize = 14;

/// The Ethernet type that `flow_extract` of OVS gives to a frame that has none (`FLOW_DL_TYPE_NONE` in `lib/flow.h`):
/// an 802.3 frame whose payload is not SNAP-encapsulated Ethernet II.
pub const ETH_TYPE_NONE: u16 = 0x05ff;

/// Ethernet types (`include/uapi/linux/if_ether.h`).
pub mod eth_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// ERSPAN type III, version 2 in OVS, as the protocol type of GRE (`ETH_P_ERSPAN2`).
    pub const ERSPAN2: u16 = 0x22eb;
    /// Transparent Ethernet bridging: the payload is an Ethernet frame.
    pub const TEB: u16 = 0x6558;
    /// Reverse ARP.
    pub const RARP: u16 = 0x8035;
    /// MPLS, unicast.
    pub const MPLS: u16 = 0x8847;
    /// MPLS, multicast.
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// PPPoE, session stage.
    pub const PPPOE: u16 = 0x8864;
    /// Connectivity fault management.
    pub const CFM: u16 = 0x8902;
    /// Network service header.
    pub const NSH: u16 = 0x894f;
    /// IEEE 802.1Q customer tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// IEEE 802.1ad service tag.
    pub const QINQ: u16 = 0x88a8;
    /// ERSPAN type II, version 1 in OVS, as the protocol type of GRE (`ETH_P_ERSPAN`).
    pub const ERSPAN: u16 = 0x88be;
}

/// Whether an Ethernet type is one of those of MPLS.
pub fn is_mpls(ethernet_type: u16) -> bool {
    matches!(ethernet_type, eth_type::MPLS | eth_type::MPLS_MULTICAST)
}

/// Whether an Ethernet type is the tag protocol of a VLAN.
pub fn is_vlan(ethernet_type: u16) -> bool {
    matches!(ethernet_type, eth_type::VLAN | eth_type::QINQ)
}

/// Protocol numbers of IP (IANA, Assigned Internet Protocol Numbers).
pub mod ip_proto {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// GRE.
    pub const GRE: u8 = 47;
    /// Encapsulating security payload of IPsec.
    pub const SECURITY: u8 = 50;
    /// Authentication header of IPsec.
    pub const AUTHENTICATION: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// No next header.
    pub const NONE: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION: u8 = 60;
    /// L2TP, version 3.
    pub const L2TPV3: u8 = 115;
    /// SCTP.
    pub const SCTP: u8 = 132;
}

/// The bits of an Ethernet address as the flow key holds them, the first byte highest.
pub fn mac_to_bits(mac: Mac) -> u64 {
    mac.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// The Ethernet address of which these are the lowest 48 bits.
pub fn mac_from_bits(bits: u128) -> Mac {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bits.to_be_bytes()[10..]);
    mac
}
