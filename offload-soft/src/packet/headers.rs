//! The headers, field by field. Every offset is in bytes from the start of its header.

#[macro_use]
mod wire;
mod outer;

use self::wire::is_inside;
use super::Mac;

pub use self::outer::*;
pub use self::wire::Wire;

view! {
    /// An Ethernet header (IEEE 802.3).
    Ethernet, 14 bytes;
    /// Destination address.
    destination, set_destination: Mac, at 0;
    /// Source address.
    source, set_source: Mac, at 6;
    /// Ethernet type, or length when below 0x600.
    ethernet_type, set_ethernet_type: u16, at 12;
}

view! {
    /// A VLAN tag and the Ethernet type behind it (IEEE 802.1Q), starting with the tag protocol.
    VlanTagged, 6 bytes;
    /// Tag protocol.
    tpid, set_tpid: u16, at 0;
    /// Priority (3 bits), drop eligibility or CFI (1 bit), VLAN number (12 bits).
    tci, set_tci: u16, at 2;
    /// What follows: another tag protocol, an Ethernet type or a length.
    next_type, set_next_type: u16, at 4;
}

view! {
    /// An LLC header with a SNAP header behind it (IEEE 802.2, RFC 1042).
    LlcSnap, 8 bytes;
    /// Destination service access point, 0xaa for SNAP.
    dsap, set_dsap: u8, at 0;
    /// Source service access point, 0xaa for SNAP.
    ssap, set_ssap: u8, at 1;
    /// Upper two bytes of the organisation code.
    organisation_high, set_organisation_high: u16, at 3;
    /// Lowest byte of the organisation code.
    organisation_low, set_organisation_low: u8, at 5;
    /// Ethernet type.
    ethernet_type, set_ethernet_type: u16, at 6;
}

view! {
    /// An ARP packet for Ethernet and IPv4 (RFC 826).
    Arp, 28 bytes;
    /// Hardware type, 1 for Ethernet.
    hardware_type, set_hardware_type: u16, at 0;
    /// Protocol type, 0x0800 for IPv4.
    protocol_type, set_protocol_type: u16, at 2;
    /// Bytes of a hardware address.
    hardware_length, set_hardware_length: u8, at 4;
    /// Bytes of a protocol address.
    protocol_length, set_protocol_length: u8, at 5;
    /// Operation: 1 asks, 2 replies.
    operation, set_operation: u16, at 6;
    /// Hardware address of the sender.
    sender_mac, set_sender_mac: Mac, at 8;
    /// Protocol address of the sender.
    sender_ip, set_sender_ip: u32, at 14;
    /// Hardware address of the target.
    target_mac, set_target_mac: Mac, at 18;
    /// Protocol address of the target.
    target_ip, set_target_ip: u32, at 24;
}

impl<T: AsRef<[u8]>> Arp<T> {
    /// Whether it is about Ethernet and IPv4 addresses, so that the other fields are what they are called.
    pub fn is_ethernet_ipv4(&self) -> bool {
        self.hardware_type() == 1
            && self.protocol_type() == super::eth_type::IPV4
            && self.hardware_length() == 6
            && self.protocol_length() == 4
    }
}

view! {
    /// An IPv4 header (RFC 791).
    Ipv4, 20 bytes;
    /// Version (4 bits) and length of the header in units of four bytes (4 bits).
    version_and_length, set_version_and_length: u8, at 0;
    /// Type of service: DSCP (6 bits) and ECN (2 bits).
    tos, set_tos: u8, at 1;
    /// Bytes of header and payload.
    total_length, set_total_length: u16, at 2;
    /// Identification, for reassembly.
    identification, set_identification: u16, at 4;
    /// Flags (3 bits) and offset of the fragment in units of eight bytes (13 bits).
    flags_and_offset, set_flags_and_offset: u16, at 6;
    /// Time to live.
    ttl, set_ttl: u8, at 8;
    /// Protocol of the payload.
    protocol, set_protocol: u8, at 9;
    /// Checksum of the header.
    checksum, set_checksum: u16, at 10;
    /// Source address.
    source, set_source: u32, at 12;
    /// Destination address.
    destination, set_destination: u32, at 16;
}

/// The flag of IPv4 that forbids fragmentation.
pub const IPV4_DONT_FRAGMENT: u16 = 0x4000;
/// The flag of IPv4 that says that it is not the last fragment.
pub(crate) const IPV4_MORE_FRAGMENTS: u16 = 0x2000;
/// The offset of the fragment, in units of eight bytes.
pub(crate) const IPV4_OFFSET: u16 = 0x1fff;

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Bytes of the header with its options.
    pub fn header_length(&self) -> usize {
        usize::from(self.version_and_length() & 0x0f) * 4
    }

    /// Whether it is a fragment without the transport header.
    pub fn is_later_fragment(&self) -> bool {
        self.flags_and_offset() & IPV4_OFFSET != 0
    }

    /// Whether it is any fragment.
    pub fn is_fragment(&self) -> bool {
        self.flags_and_offset() & (IPV4_OFFSET | IPV4_MORE_FRAGMENTS) != 0
    }
}

view! {
    /// An IPv6 header (RFC 8200).
    Ipv6, 40 bytes;
    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    version_class_label, set_version_class_label: u32, at 0;
    /// Bytes behind this header.
    payload_length, set_payload_length: u16, at 4;
    /// Protocol of what follows.
    next_header, set_next_header: u8, at 6;
    /// Hop limit.
    hop_limit, set_hop_limit: u8, at 7;
    /// Source address.
    source, set_source: u128, at 8;
    /// Destination address.
    destination, set_destination: u128, at 24;
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Traffic class: DSCP (6 bits) and ECN (2 bits).
    #[expect(clippy::cast_possible_truncation, reason = "eight bits remain")]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_label() >> 20) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        self.version_class_label() & 0x000f_ffff
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Writes the traffic class.
    pub fn set_traffic_class(&mut self, value: u8) {
        self.set_version_class_label(self.version_class_label() & 0xf00f_ffff | u32::from(value) << 20);
    }

    /// Writes the flow label, the lowest 20 bits of `value`.
    pub fn set_flow_label(&mut self, value: u32) {
        self.set_version_class_label(self.version_class_label() & 0xfff0_0000 | value & 0x000f_ffff);
    }
}

view! {
    /// What all IPv6 extension headers begin with (RFC 8200).
    Ipv6Extension, 2 bytes;
    /// Protocol of what follows.
    next_header, set_next_header: u8, at 0;
    /// Length, in the unit of the header in question.
    length, set_length: u8, at 1;
}

view! {
    /// An IPv6 fragment header (RFC 8200).
    Ipv6Fragment, 8 bytes;
    /// Protocol of what follows.
    next_header, set_next_header: u8, at 0;
    /// Offset of the fragment in bytes, whose lowest 3 bits are reserved (2 bits) and more fragments (1 bit).
    offset_and_more, set_offset_and_more: u16, at 2;
    /// Identification, for reassembly.
    identification, set_identification: u32, at 4;
}

/// The offset in [`Ipv6Fragment::offset_and_more`].
pub(crate) const IPV6_OFFSET: u16 = 0xfff8;
/// The flag there that says that it is not the last fragment.
pub(crate) const IPV6_MORE_FRAGMENTS: u16 = 1;

view! {
    /// A TCP header (RFC 9293).
    Tcp, 20 bytes;
    /// Source port.
    source, set_source: u16, at 0;
    /// Destination port.
    destination, set_destination: u16, at 2;
    /// Length of the header in units of four bytes (4 bits), flags (12 bits).
    length_and_flags, set_length_and_flags: u16, at 12;
    /// Checksum over pseudo header, header and payload.
    checksum, set_checksum: u16, at 16;
}

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Bytes of the header with its options.
    pub fn header_length(&self) -> usize {
        usize::from(self.length_and_flags() >> 12) * 4
    }

    /// The flags, 12 bits with the reserved ones.
    pub fn flags(&self) -> u16 {
        self.length_and_flags() & 0x0fff
    }
}

view! {
    /// A UDP header (RFC 768).
    Udp, 8 bytes;
    /// Source port.
    source, set_source: u16, at 0;
    /// Destination port.
    destination, set_destination: u16, at 2;
    /// Bytes of header and payload.
    length, set_length: u16, at 4;
    /// Checksum over pseudo header, header and payload; zero where the sender made none.
    checksum, set_checksum: u16, at 6;
}

view! {
    /// The common header of an SCTP packet (RFC 9260).
    Sctp, 12 bytes;
    /// Source port.
    source, set_source: u16, at 0;
    /// Destination port.
    destination, set_destination: u16, at 2;
    /// CRC32c of the packet, in the byte order in which it stands there.
    checksum, set_checksum: u32, at 8;
}

view! {
    /// An ICMP or ICMPv6 header (RFC 792, RFC 4443).
    Icmp, 8 bytes;
    /// Type.
    kind, set_kind: u8, at 0;
    /// Code.
    code, set_code: u8, at 1;
    /// Checksum.
    checksum, set_checksum: u16, at 2;
}

view! {
    /// A neighbour solicitation or advertisement (RFC 4861), ICMPv6 header included.
    Neighbour, 24 bytes;
    /// Flags (3 bits) and reserved bits.
    reserved, set_reserved: u32, at 4;
    /// The address that is asked for or told.
    target, set_target: u128, at 8;
}

view! {
    /// An option of neighbour discovery (RFC 4861) that holds an Ethernet address.
    NeighbourOption, 8 bytes;
    /// Type: 1 source link-layer address, 2 target link-layer address.
    kind, set_kind: u8, at 0;
    /// Length in units of eight bytes.
    length, set_length: u8, at 1;
    /// The address, where the type and the length say that there is one.
    mac, set_mac: Mac, at 2;
}

view! {
    /// An entry of an MPLS label stack (RFC 3032).
    LabelStackEntry, 4 bytes;
    /// Label (20 bits), traffic class (3 bits), bottom of stack (1 bit), time to live (8 bits).
    word, set_word: u32, at 0;
}

impl<T: AsRef<[u8]>> LabelStackEntry<T> {
    /// The label, 20 bits.
    pub fn label(&self) -> u32 {
        self.word() >> 12
    }

    /// The traffic class, 3 bits.
    #[expect(clippy::cast_possible_truncation, reason = "three bits remain")]
    pub fn tc(&self) -> u8 {
        (self.word() >> 9) as u8 & 7
    }

    /// Whether it is the last one.
    pub fn is_bottom(&self) -> bool {
        self.word() & 0x100 != 0
    }

    /// Time to live.
    #[expect(clippy::cast_possible_truncation, reason = "eight bits remain")]
    pub fn ttl(&self) -> u8 {
        self.word() as u8
    }
}

view! {
    /// The base and the service path header of a network service header (RFC 8300).
    Nsh, 8 bytes;
    /// Version (2 bits), flags (2 bits), time to live (6 bits), length in units of four bytes (6 bits).
    version_to_length, set_version_to_length: u16, at 0;
    /// Type of the metadata.
    metadata_type, set_metadata_type: u8, at 2;
    /// What comes behind it.
    next_protocol, set_next_protocol: u8, at 3;
    /// Service path identifier (24 bits) and service index (8 bits).
    path_and_index, set_path_and_index: u32, at 4;
}

#[expect(clippy::cast_possible_truncation, reason = "six bits remain")]
impl<T: AsRef<[u8]>> Nsh<T> {
    /// Version, 0.
    pub fn version(&self) -> u8 {
        (self.version_to_length() >> 14) as u8
    }

    /// Flags, 2 bits.
    pub fn flags(&self) -> u8 {
        (self.version_to_length() >> 12) as u8 & 3
    }

    /// Time to live, 6 bits.
    pub fn ttl(&self) -> u8 {
        (self.version_to_length() >> 6) as u8 & 0x3f
    }

    /// Bytes of the header with its metadata.
    pub fn header_length(&self) -> usize {
        usize::from(self.version_to_length() & 0x3f) * 4
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Nsh<T> {
    /// Writes the flags, the lowest 2 bits of `value`.
    pub fn set_flags(&mut self, value: u8) {
        self.set_version_to_length(self.version_to_length() & 0xcfff | u16::from(value & 3) << 12);
    }

    /// Writes the time to live, the lowest 6 bits of `value`.
    pub fn set_ttl(&mut self, value: u8) {
        self.set_version_to_length(self.version_to_length() & 0xf03f | u16::from(value & 0x3f) << 6);
    }

    /// Writes the length in units of four bytes, the lowest 6 bits of `value`.
    #[expect(clippy::cast_possible_truncation, reason = "six bits remain")]
    pub fn set_length(&mut self, value: usize) {
        self.set_version_to_length(self.version_to_length() & 0xffc0 | (value & 0x3f) as u16);
    }
}

view! {
    /// The metadata of type 1 behind a network service header (RFC 8300).
    NshContexts, 16 bytes;
    /// The first context.
    context_1, set_context_1: u32, at 0;
    /// The second context.
    context_2, set_context_2: u32, at 4;
    /// The third context.
    context_3, set_context_3: u32, at 8;
    /// The fourth context.
    context_4, set_context_4: u32, at 12;
}

view! {
    /// A PPPoE header of the session stage (RFC 2516), and the protocol of PPP behind it (RFC 1661).
    Pppoe, 8 bytes;
    /// Version (4 bits) and type (4 bits), each 1.
    version_and_type, set_version_and_type: u8, at 0;
    /// Code, 0 in the session stage.
    code, set_code: u8, at 1;
    /// Session.
    session, set_session: u16, at 2;
    /// Bytes behind this field.
    length, set_length: u16, at 4;
    /// Protocol of what PPP carries.
    protocol, set_protocol: u16, at 6;
}

impl<T: AsRef<[u8]>> Pppoe<T> {
    /// Whether it is of a session, and the protocol one that PPP can have: its last bit is set, and that of its first
    /// byte is not. One of a single byte is none, as for Linux since it gave up reading them.
    pub fn is_valid(&self) -> bool {
        self.version_and_type() == 0x11 && self.code() == 0 && self.protocol() & 0x0101 == 0x0001
    }
}

view! {
    /// What every CFM message begins with (IEEE 802.1Q, 21.4).
    Cfm, 2 bytes;
    /// Maintenance domain level (3 bits) and version (5 bits).
    level_and_version, set_level_and_version: u8, at 0;
    /// What message it is.
    opcode, set_opcode: u8, at 1;
}

view! {
    /// An encapsulating security payload (RFC 4303), up to what is encrypted.
    Security, 8 bytes;
    /// Security parameters index.
    index, set_index: u32, at 0;
    /// Sequence number.
    sequence, set_sequence: u32, at 4;
}

view! {
    /// An authentication header (RFC 4302) without the integrity check value.
    Authentication, 12 bytes;
    /// Protocol of what follows.
    next_header, set_next_header: u8, at 0;
    /// Security parameters index.
    index, set_index: u32, at 4;
    /// Sequence number.
    sequence, set_sequence: u32, at 8;
}
