//! Headers that actions put on.

use crate::port::PortNumber;

/// The VLAN tag of a push. `tci` fields are those of IEEE 802.1Q.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Tag protocol. The kernel takes 0x8100 and 0x88a8 only, OVS's own datapath any.
    pub tpid: u16,
    /// VLAN number, 0 to 4095.
    pub vid: u16,
    /// Priority, 0 to 7.
    pub pcp: u8,
    /// The CFI bit; OVS sets it in every tag that is there.
    pub cfi: bool,
}

/// The Ethernet header of `push_eth`; the type comes from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EthernetAddresses {
    /// Source, the lowest 48 bits.
    pub source: u64,
    /// Destination, the lowest 48 bits.
    pub destination: u64,
}

/// The label stack entry of `push_mpls` and `add_mpls` (RFC 3032).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MplsEntry {
    /// Label, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits.
    pub tc: u8,
    /// Time to live.
    pub ttl: u8,
    /// Whether it is the bottom of the stack.
    pub bos: bool,
    /// The Ethernet type of the packet after the push, 0x8847 or 0x8848.
    pub eth_type: u16,
}

/// The header of `push_nsh` (RFC 8300).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NshHeader {
    /// Flags, 2 bits: the upper one marks a control packet (OAM).
    pub flags: u8,
    /// Time to live, 6 bits.
    pub ttl: u8,
    /// Next protocol: 1 IPv4, 2 IPv6, 3 Ethernet, 4 NSH, 5 MPLS.
    pub next_protocol: u8,
    /// Service path identifier, 24 bits.
    pub path: u32,
    /// Service index.
    pub index: u8,
    /// What comes behind it.
    pub metadata: NshMetadata,
}

/// The metadata of an NSH header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NshMetadata {
    /// Type 1: four contexts.
    Contexts([u32; 4]),
    /// Type 2: TLVs, whole words of 4 bytes, at most 244 in all. OVS prints them without zeros in front; they are put
    /// back when that is read.
    Tlvs(Box<[u8]>),
}

/// The arguments of `tnl_push` (`struct ovs_action_push_tnl`): a whole outer header, as bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TunnelPush {
    /// The tunnel port that counts the packet.
    pub tunnel_port: PortNumber,
    /// The port out of which the packet goes.
    pub out_port: PortNumber,
    /// The kind of tunnel (`enum ovs_vport_type`): 3 GRE, 4 VXLAN, 5 Geneve, 107 ERSPAN, 109 GTP-U, ...
    pub tunnel_type: u32,
    /// The outer headers from Ethernet on, see [`OuterHeaders`](super::OuterHeaders). Lengths, checksums and the UDP
    /// source port are filled in for each packet. What the text of OVS cannot say is written as `bytes(HEX)`.
    pub header: Box<[u8]>,
}
