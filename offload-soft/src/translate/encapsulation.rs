//! `set(tunnel(…))`: the outer header of the next outputs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_flow::action::{ActionKind, FieldSet};
use sluice_flow::field::Field;
use sluice_flow::port::TunnelProtocol;
use sluice_flow::refusal::Refusal;

/// The bits of [`sluice_flow::field::TUNNEL_FLAGS`].
pub(crate) mod tunnel_flag {
    pub(crate) const DONT_FRAGMENT: u8 = 1;
    pub(crate) const CHECKSUM: u8 = 2;
    pub(crate) const KEY: u8 = 4;
    pub(crate) const CONTROL: u8 = 8;
}

/// Time to live where none is asked for: the default hop limit of the kernel (`IPDEFTTL`).
const DEFAULT_TTL: u8 = 64;

/// An outer header to be put on.
#[derive(Clone, Debug)]
pub(crate) struct Encapsulation {
    /// Network identifier, 24 bits.
    pub(crate) id: u32,
    /// `None`: the address of this end as far as it is known.
    pub(crate) source: Option<IpAddr>,
    pub(crate) destination: IpAddr,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// `None`: that of the tunnel port.
    pub(crate) udp_port: Option<u16>,
    pub(crate) flags: u8,
}

impl Encapsulation {
    pub(crate) fn new(set: &FieldSet) -> Result<Self, Refusal> {
        for (field, value, mask) in &set.fields {
            match field {
                Field::TunnelPresent
                | Field::TunnelId
                | Field::TunnelIpv4Src
                | Field::TunnelIpv4Dst
                | Field::TunnelIpv6Src
                | Field::TunnelIpv6Dst
                | Field::TunnelTos
                | Field::TunnelTtl
                | Field::TunnelTpDst
                    if *mask == field.full_mask() => {}
                Field::TunnelFlags => {}
                Field::TunnelTpSrc if *value == 0 => {}
                Field::TunnelTpSrc => return field_refusal(*field, "it is chosen by the hash of the inner flow"),
                _ if field.spec().attribute == sluice_flow::field::Attribute::Tunnel => {
                    return field_refusal(*field, "it can be set only as a whole");
                }
                _ => return field_refusal(*field, "it is not of the outer header"),
            }
        }
        let value = |field| set.get(field).map_or(0, |(value, _)| value);
        let id = value(Field::TunnelId);
        let Some(id) = u32::try_from(id).ok().filter(|id| *id < 1 << 24) else {
            return field_refusal(Field::TunnelId, "a network identifier has 24 bits");
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
            tos: octet(value(Field::TunnelTos)),
            ttl: match octet(value(Field::TunnelTtl)) {
                0 => DEFAULT_TTL,
                ttl => ttl,
            },
            udp_port: u16::try_from(value(Field::TunnelTpDst)).ok().filter(|port| *port != 0),
            flags: octet(value(Field::TunnelFlags)),
        })
    }

    /// Whether a protocol has all that is asked for.
    pub(crate) fn fits(&self, protocol: TunnelProtocol) -> Result<(), Refusal> {
        if protocol == TunnelProtocol::Vxlan && self.flags & tunnel_flag::CONTROL != 0 {
            return refuse("VXLAN has no oam flag");
        }
        Ok(())
    }
}

fn octet(value: u128) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

fn field_refusal<T>(field: Field, reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Field { field, reason: reason.into() })
}

fn refuse<T>(reason: &'static str) -> Result<T, Refusal> {
    Err(Refusal::Action { action: ActionKind::SetTunnel, reason: reason.into() })
}
