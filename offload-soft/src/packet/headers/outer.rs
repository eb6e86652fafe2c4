//! The headers of tunnels.

use super::wire::{Wire, is_inside};

view! {
    /// A VXLAN header (RFC 7348).
    Vxlan, 8 bytes;
    /// Flags (8 bits) and reserved bits.
    flags, set_flags: u32, at 0;
    /// Network identifier (24 bits) and reserved bits.
    vni_and_reserved, set_vni_and_reserved: u32, at 4;
}

/// The flag of VXLAN that says that there is a network identifier; the only one that RFC 7348 has.
pub const VXLAN_VNI: u32 = 0x0800_0000;
/// The flag of VXLAN that says that there is a group policy: flags in the byte behind it, then the group
/// (draft-smith-vxlan-group-policy).
pub const VXLAN_GBP: u32 = 0x8000_0000;

view! {
    /// A Geneve header (RFC 8926).
    Geneve, 8 bytes;
    /// Version (2 bits) and length of the options in units of four bytes (6 bits).
    version_and_length, set_version_and_length: u8, at 0;
    /// Control packet (1 bit), critical options (1 bit), reserved (6 bits).
    flags, set_flags: u8, at 1;
    /// Ethernet type of the payload.
    protocol, set_protocol: u16, at 2;
    /// Network identifier (24 bits) and reserved bits.
    vni_and_reserved, set_vni_and_reserved: u32, at 4;
}

/// The flag of Geneve that marks a control packet; OVS calls it `oam`.
pub const GENEVE_CONTROL: u8 = 0x80;
/// The flag of Geneve that says that some option must be understood.
pub const GENEVE_CRITICAL: u8 = 0x40;

impl<T: AsRef<[u8]>> Geneve<T> {
    /// Version, 0.
    pub fn version(&self) -> u8 {
        self.version_and_length() >> 6
    }

    /// Bytes of the header with its options.
    pub fn header_length(&self) -> usize {
        Self::LENGTH + usize::from(self.version_and_length() & 0x3f) * 4
    }
}

view! {
    /// A GRE header (RFC 2784) without what its flags add.
    Gre, 4 bytes;
    /// Flags (13 bits) and version (3 bits).
    flags, set_flags: u16, at 0;
    /// Ethernet type of the payload.
    protocol, set_protocol: u16, at 2;
}

/// The flag of GRE that says that there is a checksum.
pub const GRE_CHECKSUM: u16 = 0x8000;
/// The flag of GRE that says that there is a source route (RFC 1701).
pub const GRE_ROUTING: u16 = 0x4000;
/// The flag of GRE that says that there is a key.
pub const GRE_KEY: u16 = 0x2000;
/// The flag of GRE that says that there is a sequence number.
pub const GRE_SEQUENCE: u16 = 0x1000;
/// The version in the flags of GRE, 0 (1 is that of PPTP, RFC 2637), with the reserved bits that Linux takes for it.
pub const GRE_VERSION: u16 = 0x007f;

impl<T: AsRef<[u8]>> Gre<T> {
    /// Where what a flag adds stands, if the flag is set.
    pub fn place(&self, flag: u16) -> Option<usize> {
        (self.flags() & flag != 0).then(|| Self::LENGTH + 4 * self.before(flag))
    }

    /// Bytes of the header with what its flags add.
    pub fn header_length(&self) -> usize {
        Self::LENGTH + 4 * self.before(0)
    }

    /// How many words come before that of a flag, or at all: checksum, key, sequence number.
    fn before(&self, flag: u16) -> usize {
        let words = [GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE].into_iter().take_while(|word| *word != flag);
        words.filter(|word| self.flags() & word != 0).count()
    }
}

view! {
    /// A number of 32 bits: the key or the sequence number of GRE, the session of L2TPv3 (RFC 3931, 4.1.1).
    Number, 4 bytes;
    /// The number.
    value, set_value: u32, at 0;
}

view! {
    /// A checksum of 16 bits, and reserved bits.
    Checksum, 4 bytes;
    /// The checksum.
    value, set_value: u16, at 0;
}

view! {
    /// What both versions of ERSPAN begin with (`struct erspan_base_hdr` in `include/net/erspan.h`).
    Erspan, 8 bytes;
    /// Version (4 bits) and VLAN of the mirrored frame (12 bits).
    version_and_vlan, set_version_and_vlan: u16, at 0;
    /// Class of service (3 bits), encapsulation or state of the frame (2 bits), truncated (1 bit), session (10 bits).
    class_and_session, set_class_and_session: u16, at 2;
    /// Of version 1: reserved (12 bits), index (20 bits). Of version 2: time in units of 100 microseconds.
    index_or_time, set_index_or_time: u32, at 4;
}

view! {
    /// ERSPAN version 2 (`struct erspan_md2`), what both versions begin with included.
    Erspan2, 12 bytes;
    /// Security group tag.
    group, set_group: u16, at 8;
    /// Ethernet frame inside (1 bit), frame type (5 bits), hardware (6 bits), direction (1 bit), granularity of the time
    /// (2 bits), optional header (1 bit).
    frame_and_hardware, set_frame_and_hardware: u16, at 10;
}

view! {
    /// A GTP-U header (3GPP TS 29.281, section 5.1).
    Gtpu, 8 bytes;
    /// Version (3 bits), protocol type (1 bit), reserved (1 bit), extension, sequence number, N-PDU number.
    flags, set_flags: u8, at 0;
    /// Message type.
    message_type, set_message_type: u8, at 1;
    /// Bytes behind this header.
    length, set_length: u16, at 2;
    /// Tunnel endpoint.
    endpoint, set_endpoint: u32, at 4;
}

view! {
    /// What a GTP-U header goes on with if any of the last three flags is set.
    GtpuOptional, 4 bytes;
    /// Sequence number.
    sequence, set_sequence: u16, at 0;
    /// Type of the next extension header; 0 for none.
    next_extension, set_next_extension: u8, at 3;
}
