//! The outer header of a packet that came through a tunnel, and the key fields that tell of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::field::{Field, GENEVE_CHUNKS, GENEVE_OPTIONS};
use sluice_flow::key::Key;

/// What the outer headers said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelMetadata {
    /// Network identifier, key, session or tunnel endpoint.
    pub id: u64,
    /// Addresses.
    pub addresses: TunnelAddresses,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// UDP source port; 0 without UDP.
    pub source_port: u16,
    /// UDP destination port; 0 without UDP.
    pub destination_port: u16,
    /// Bits of [`sluice_flow::field::TUNNEL_FLAGS`].
    pub flags: u8,
    /// What only some protocols have.
    pub options: TunnelOptions,
}

/// Source and destination of an outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelAddresses {
    /// IPv4.
    V4 {
        /// Source.
        source: u32,
        /// Destination.
        destination: u32,
    },
    /// IPv6.
    V6 {
        /// Source.
        source: u128,
        /// Destination.
        destination: u128,
    },
}

/// What only some protocols have.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack for one packet, and must not allocate for each")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelOptions {
    /// Nothing.
    None,
    /// The group policy of VXLAN.
    VxlanGbp {
        /// The group.
        id: u16,
        /// 0x40 do not learn, 0x08 policy applied.
        flags: u8,
    },
    /// The options of Geneve.
    Geneve(GeneveOptions),
    /// ERSPAN version 1.
    Erspan1 {
        /// The mirrored port, 20 bits.
        index: u32,
    },
    /// ERSPAN version 2.
    Erspan2 {
        /// 1 where egress is mirrored.
        direction: u8,
        /// The mirroring hardware, 6 bits.
        hardware_id: u8,
    },
    /// GTP-U.
    Gtpu {
        /// The first byte.
        flags: u8,
        /// The message type.
        message_type: u8,
    },
}

/// Options of a Geneve header, as they stand on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneveOptions {
    bytes: [u8; GENEVE_OPTIONS],
    length: u8,
}

impl GeneveOptions {
    /// The options that these bytes are; `None` if they are more than a header can have.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut options = Self { bytes: [0; GENEVE_OPTIONS], length: u8::try_from(bytes.len()).ok()? };
        options.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(options)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl TunnelMetadata {
    /// The fields of the key that tell of a tunnel, besides the [chunks](sluice_flow::field::GENEVE_CHUNKS) of Geneve options.
    pub(super) const FIELDS: [Field; 24] = [
        Field::TunnelPresent,
        Field::TunnelId,
        Field::TunnelIpv4Src,
        Field::TunnelIpv4Dst,
        Field::TunnelIpv6Src,
        Field::TunnelIpv6Dst,
        Field::TunnelTos,
        Field::TunnelTtl,
        Field::TunnelTpSrc,
        Field::TunnelTpDst,
        Field::TunnelFlags,
        Field::VxlanGbpPresent,
        Field::VxlanGbpId,
        Field::VxlanGbpFlags,
        Field::ErspanPresent,
        Field::ErspanVersion,
        Field::ErspanIndex,
        Field::ErspanDirection,
        Field::ErspanHardwareId,
        Field::GtpuPresent,
        Field::GtpuFlags,
        Field::GtpuMessageType,
        Field::GenevePresent,
        Field::GeneveLength,
    ];

    /// The outer destination address.
    pub fn destination(&self) -> IpAddr {
        match self.addresses {
            TunnelAddresses::V4 { destination, .. } => Ipv4Addr::from(destination).into(),
            TunnelAddresses::V6 { destination, .. } => Ipv6Addr::from(destination).into(),
        }
    }

    /// Sets the fields of the key that tell of the tunnel.
    pub(super) fn write(&self, key: &mut Key) {
        key.set(Field::TunnelPresent, 1);
        key.set(Field::TunnelId, self.id.into());
        match self.addresses {
            TunnelAddresses::V4 { source, destination } => {
                key.set(Field::TunnelIpv4Src, source.into());
                key.set(Field::TunnelIpv4Dst, destination.into());
            }
            TunnelAddresses::V6 { source, destination } => {
                key.set(Field::TunnelIpv6Src, source);
                key.set(Field::TunnelIpv6Dst, destination);
            }
        }
        key.set(Field::TunnelTos, self.tos.into());
        key.set(Field::TunnelTtl, self.ttl.into());
        key.set(Field::TunnelTpSrc, self.source_port.into());
        key.set(Field::TunnelTpDst, self.destination_port.into());
        key.set(Field::TunnelFlags, self.flags.into());
        self.options.write(key);
    }
}

impl TunnelOptions {
    fn write(&self, key: &mut Key) {
        match self {
            Self::None => {}
            Self::VxlanGbp { id, flags } => {
                key.set(Field::VxlanGbpPresent, 1);
                key.set(Field::VxlanGbpId, (*id).into());
                key.set(Field::VxlanGbpFlags, (*flags).into());
            }
            Self::Geneve(options) => {
                key.set(Field::GenevePresent, 1);
                key.set(Field::GeneveLength, options.length.into());
                let (chunks, _) = options.bytes.as_chunks::<16>();
                let used = options.bytes().len().div_ceil(16);
                for (field, chunk) in GENEVE_CHUNKS.iter().zip(chunks).take(used) {
                    key.set(*field, u128::from_be_bytes(*chunk));
                }
            }
            Self::Erspan1 { index } => {
                key.set(Field::ErspanPresent, 1);
                key.set(Field::ErspanVersion, 1);
                key.set(Field::ErspanIndex, (*index).into());
            }
            Self::Erspan2 { direction, hardware_id } => {
                key.set(Field::ErspanPresent, 1);
                key.set(Field::ErspanVersion, 2);
                key.set(Field::ErspanDirection, (*direction).into());
                key.set(Field::ErspanHardwareId, (*hardware_id).into());
            }
            Self::Gtpu { flags, message_type } => {
                key.set(Field::GtpuPresent, 1);
                key.set(Field::GtpuFlags, (*flags).into());
                key.set(Field::GtpuMessageType, (*message_type).into());
            }
        }
    }
}
