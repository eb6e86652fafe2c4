//! `set(tunnel(…))`: the outer header of the next outputs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::list::{ActionKind, FieldSet};
use crate::field::{Attribute, Field, GENEVE_CHUNKS};
use crate::port::TunnelProtocol;
use crate::refusal::Refusal;

/// The bits of [`TUNNEL_FLAGS`](crate::field::TUNNEL_FLAGS).
pub mod tunnel_flag {
    /// The outer header says "do not fragment".
    pub const DONT_FRAGMENT: u8 = 1;
    /// The outer header has a checksum of its payload.
    pub const CHECKSUM: u8 = 2;
    /// There is an identifier.
    pub const KEY: u8 = 4;
    /// A control packet, of Geneve only.
    pub const CONTROL: u8 = 8;
}

/// Time to live where none is asked for: the default hop limit of the kernel (`IPDEFTTL`).
const DEFAULT_TTL: u8 = 64;
/// The flags of a group policy that VXLAN carries: do not learn, and policy applied (`struct vxlanhdr_gbp`).
pub const POLICY_FLAGS: u8 = 0x48;
/// Bytes of Geneve options that the length in the header can say (RFC 8926, section 3.4).
const GENEVE_LIMIT: usize = 252;
/// The bit in the type of a Geneve option that says that it must be understood.
const GENEVE_CRITICAL_TYPE: u8 = 0x80;
/// Bytes of a Geneve option before its data.
const GENEVE_OPTION: usize = 4;

/// An outer header to be put on.
#[derive(Clone, Debug)]
pub struct Encapsulation {
    /// Network identifier, key, session or tunnel endpoint.
    pub id: u32,
    /// `None`: the address of this end as far as it is known.
    pub source: Option<IpAddr>,
    /// The other end.
    pub destination: IpAddr,
    /// Type of service or traffic class, without the mark of congestion that the packet inside has.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// `None`: that of the tunnel port.
    pub udp_port: Option<u16>,
    /// Bits of [`tunnel_flag`].
    pub flags: u8,
    /// What only some protocols have.
    pub options: EncapsulationOptions,
}

/// What only some protocols have.
#[derive(Clone, Debug)]
pub enum EncapsulationOptions {
    /// Nothing.
    None,
    /// A group policy.
    VxlanGbp {
        /// Its id.
        id: u16,
        /// Bits of [`POLICY_FLAGS`].
        flags: u8,
    },
    /// Options of Geneve.
    Geneve {
        /// Whole options.
        bytes: Box<[u8]>,
        /// Whether some option must be understood.
        is_critical: bool,
    },
    /// ERSPAN version 1.
    Erspan1 {
        /// The mirrored port.
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

impl Encapsulation {
    /// Reads what `set(tunnel(…))` asks for. Fails if that is not one whole header.
    pub fn new(set: &FieldSet) -> Result<Self, Refusal> {
        for (field, value, mask) in &set.fields {
            if field.spec().attribute != Attribute::Tunnel {
                return field_refusal(*field, "it is not of the outer header");
            }
            // Bytes of options and flags that are not set are zero.
            let may_be_partial = *field == Field::TunnelFlags || GENEVE_CHUNKS.contains(field);
            if *field == Field::TunnelTpSrc && *value != 0 {
                return field_refusal(*field, "it is chosen by the hash of the inner flow");
            }
            if *mask != field.full_mask() && !may_be_partial {
                return field_refusal(*field, "it can be set only as a whole");
            }
        }
        let value = |field| set.get(field).map_or(0, |(value, _)| value);
        let Ok(id) = u32::try_from(value(Field::TunnelId)) else {
            return field_refusal(Field::TunnelId, "no tunnel has more than 32 bits for it");
        };
        let v4 = |field| u32::try_from(value(field)).ok().filter(|ip| *ip != 0).map(|ip| Ipv4Addr::from(ip).into());
        let v6 = |field| Some(value(field)).filter(|ip| *ip != 0).map(|ip| Ipv6Addr::from(ip).into());
        let (source, destination) = match (v4(Field::TunnelIpv4Dst), v6(Field::TunnelIpv6Dst)) {
            (Some(destination), None) if v6(Field::TunnelIpv6Src).is_none() => (v4(Field::TunnelIpv4Src), destination),
            (None, Some(destination)) if v4(Field::TunnelIpv4Src).is_none() => (v6(Field::TunnelIpv6Src), destination),
            (None, None) => return refuse("there is no destination"),
            _ => return refuse("there are addresses of both families"),
        };
        Ok(Self {
            id,
            source,
            destination,
            tos: byte(value(Field::TunnelTos)),
            ttl: match byte(value(Field::TunnelTtl)) {
                0 => DEFAULT_TTL,
                ttl => ttl,
            },
            udp_port: u16::try_from(value(Field::TunnelTpDst)).ok().filter(|port| *port != 0),
            flags: byte(value(Field::TunnelFlags)),
            options: EncapsulationOptions::new(set)?,
        })
    }

    /// Whether a protocol has all that is asked for.
    pub fn fits(&self, protocol: TunnelProtocol) -> Result<(), Refusal> {
        self.id_fits(protocol)?;
        let is_over_udp = protocol.default_udp_port().is_some();
        if self.udp_port.is_some() && !is_over_udp {
            return field_refusal(Field::TunnelTpDst, "a tunnel in GRE has no UDP port");
        }
        if protocol != TunnelProtocol::Geneve && self.flags & tunnel_flag::CONTROL != 0 {
            return field_refusal(Field::TunnelFlags, "only Geneve has the flag oam");
        }
        if protocol == TunnelProtocol::Erspan && self.flags & tunnel_flag::CHECKSUM != 0 {
            return field_refusal(Field::TunnelFlags, "ERSPAN is sent without a checksum");
        }
        let (field, owner) = match self.options {
            EncapsulationOptions::None if protocol == TunnelProtocol::Erspan => {
                return field_refusal(Field::ErspanVersion, "ERSPAN needs a version");
            }
            EncapsulationOptions::None => return Ok(()),
            EncapsulationOptions::VxlanGbp { .. } => (Field::VxlanGbpPresent, TunnelProtocol::Vxlan),
            EncapsulationOptions::Geneve { .. } => (Field::GenevePresent, TunnelProtocol::Geneve),
            EncapsulationOptions::Erspan1 { .. } | EncapsulationOptions::Erspan2 { .. } => {
                (Field::ErspanPresent, TunnelProtocol::Erspan)
            }
            EncapsulationOptions::Gtpu { .. } => (Field::GtpuPresent, TunnelProtocol::Gtpu),
        };
        if owner == protocol { Ok(()) } else { field_refusal(field, "the tunnel port is of another kind") }
    }

    fn id_fits(&self, protocol: TunnelProtocol) -> Result<(), Refusal> {
        let (width, reason) = match protocol {
            TunnelProtocol::Vxlan | TunnelProtocol::Geneve => (24, "a network identifier has 24 bits"),
            TunnelProtocol::Erspan => (10, "a session has 10 bits"),
            TunnelProtocol::Gre if self.flags & tunnel_flag::KEY == 0 => (0, "GRE has it only with the flag key"),
            TunnelProtocol::Gre | TunnelProtocol::Gtpu => return Ok(()),
        };
        if self.id >> width == 0 { Ok(()) } else { field_refusal(Field::TunnelId, reason) }
    }
}

impl EncapsulationOptions {
    fn new(set: &FieldSet) -> Result<Self, Refusal> {
        let is_any = |fields: &[Field]| fields.iter().any(|field| set.get(*field).is_some());
        let has = [
            is_any(&[Field::VxlanGbpPresent, Field::VxlanGbpId, Field::VxlanGbpFlags]),
            is_any(&[Field::GenevePresent, Field::GeneveLength]) || is_any(&GENEVE_CHUNKS),
            is_any(&[
                Field::ErspanPresent,
                Field::ErspanVersion,
                Field::ErspanIndex,
                Field::ErspanDirection,
                Field::ErspanHardwareId,
            ]),
            is_any(&[Field::GtpuPresent, Field::GtpuFlags, Field::GtpuMessageType]),
        ];
        let value = |field| set.get(field).map_or(0, |(value, _)| value);
        match has {
            [false, false, false, false] => Ok(Self::None),
            [true, false, false, false] => {
                let flags = byte(value(Field::VxlanGbpFlags));
                if flags & !POLICY_FLAGS != 0 {
                    return field_refusal(Field::VxlanGbpFlags, "there are only 0x8 (applied) and 0x40 (do not learn)");
                }
                Ok(Self::VxlanGbp { id: u16::try_from(value(Field::VxlanGbpId)).unwrap_or(u16::MAX), flags })
            }
            [false, true, false, false] => Self::geneve(set),
            [false, false, true, false] => Self::erspan(set),
            [false, false, false, true] => Ok(Self::Gtpu {
                flags: byte(value(Field::GtpuFlags)),
                message_type: byte(value(Field::GtpuMessageType)),
            }),
            _ => refuse("there are options of more than one kind of tunnel"),
        }
    }

    /// Options must be whole, as in the kernel (`validate_geneve_opts` in `net/openvswitch/flow_netlink.c`).
    fn geneve(set: &FieldSet) -> Result<Self, Refusal> {
        let value = |field| set.get(field).map_or(0, |(value, _)| value);
        let mut bytes: Vec<u8> = GENEVE_CHUNKS.iter().flat_map(|chunk| value(*chunk).to_be_bytes()).collect();
        let length = usize::from(byte(value(Field::GeneveLength)));
        if length > GENEVE_LIMIT || !length.is_multiple_of(4) {
            return field_refusal(Field::GeneveLength, "it is a multiple of 4 and at most 252");
        }
        if bytes[length..].iter().any(|byte| *byte != 0) {
            return field_refusal(Field::GeneveLength, "there are options behind their end");
        }
        bytes.truncate(length);
        let mut is_critical = false;
        let mut rest = bytes.as_slice();
        while let [_, _, kind, words, ..] = rest {
            is_critical |= kind & GENEVE_CRITICAL_TYPE != 0;
            let Some(next) = rest.get(GENEVE_OPTION + usize::from(words & 0x1f) * 4..) else {
                return field_refusal(Field::GeneveLength, "the last option is cut off");
            };
            rest = next;
        }
        Ok(Self::Geneve { bytes: bytes.into(), is_critical })
    }

    fn erspan(set: &FieldSet) -> Result<Self, Refusal> {
        let value = |field| set.get(field).map_or(0, |(value, _)| value);
        let lacks = |field, reason| if value(field) == 0 { Ok(()) } else { field_refusal(field, reason) };
        match value(Field::ErspanVersion) {
            1 => {
                lacks(Field::ErspanDirection, "ERSPAN version 1 does not have it")?;
                lacks(Field::ErspanHardwareId, "ERSPAN version 1 does not have it")?;
                Ok(Self::Erspan1 { index: u32::try_from(value(Field::ErspanIndex)).unwrap_or(u32::MAX) })
            }
            2 => {
                lacks(Field::ErspanIndex, "ERSPAN version 2 does not have it")?;
                let (direction, hardware_id) =
                    (byte(value(Field::ErspanDirection)), byte(value(Field::ErspanHardwareId)));
                if direction > 1 {
                    return field_refusal(Field::ErspanDirection, "it is 0 or 1");
                }
                if hardware_id > 0x3f {
                    return field_refusal(Field::ErspanHardwareId, "it has 6 bits");
                }
                Ok(Self::Erspan2 { direction, hardware_id })
            }
            _ => field_refusal(Field::ErspanVersion, "there are versions 1 and 2"),
        }
    }
}

fn byte(value: u128) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

fn field_refusal<T>(field: Field, reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Field { field, reason: reason.into() })
}

fn refuse<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Action { action: ActionKind::SetTunnel, reason: reason.into() })
}
